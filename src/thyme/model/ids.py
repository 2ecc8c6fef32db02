"""Identifiers of nodes, objects, subscriptions and requests; the key of an object.

An object's key is the pair of the object's identifier and its owner's identifier (M3): two owners
may use the same object identifier. `str(key)` and `Key.parse` convert to and from text.
"""

from __future__ import annotations

import re
from random import Random
from typing import NewType

import msgspec

from thyme.model.errors import KeyFormatError, safe_repr
from thyme.model.time_frames import SECOND_US

NodeId = NewType("NodeId", bytes)
ObjectId = NewType("ObjectId", str)
SubscriptionId = NewType("SubscriptionId", str)
RequestId = int
"""The sender of a request chooses it; retransmissions and the reply repeat it."""

NODE_ID_BYTES_MAX = 32
ID_BYTES_MAX = 64
_HEXADECIMAL = re.compile(r"([0-9a-fA-F]{2})+")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no look-alikes
_STARTED_DIGITS = 7
_STARTED = re.compile(rf"([{_ALPHABET}]{{{_STARTED_DIGITS}}})-.+")


def as_node_id(value: object) -> NodeId:
    """Checks a node identifier: 1 to 32 bytes."""
    if not isinstance(value, bytes) or not 1 <= len(value) <= NODE_ID_BYTES_MAX:
        raise KeyFormatError(f"a node id is 1 to {NODE_ID_BYTES_MAX} bytes, not {safe_repr(value)}")
    return NodeId(value)


def as_object_id(value: str) -> ObjectId:
    """Checks an object identifier: 1 to 64 bytes, printable, no white space, no `@`."""
    return ObjectId(_check_id(value, "an object id"))


def as_subscription_id(value: str) -> SubscriptionId:
    """Checks a subscription identifier, which has the form of an object identifier."""
    return SubscriptionId(_check_id(value, "a subscription id"))


def random_id(rng: Random, bits: int = 65) -> str:
    """Returns a random identifier of `bits` bits, 5 bits per character."""
    getrandbits = rng.getrandbits
    return "".join([_ALPHABET[getrandbits(5)] for _ in range(-(-bits // 5))])


def new_subscription_id(rng: Random, started_us: int | None) -> SubscriptionId:
    """A random identifier. With an instant it begins with that, in seconds, as long as an
    identifier without one and a few characters: brokers then know how old a subscription is, which
    its subscriber signs with the identifier (B5)."""
    random_part = random_id(rng)
    if started_us is None:
        return SubscriptionId(random_part)
    seconds, digits = max(0, started_us // SECOND_US), ""
    for _ in range(_STARTED_DIGITS):
        seconds, digit = divmod(seconds, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return SubscriptionId(f"{digits}-{random_part[:8]}")


def subscription_started_us(sid: SubscriptionId) -> int:
    """When a subscription was started by the clock of its subscriber; 0 if it does not say."""
    found = _STARTED.fullmatch(sid)
    if found is None:
        return 0
    seconds = 0
    for digit in found[1]:
        seconds = seconds * len(_ALPHABET) + _ALPHABET.index(digit)
    return seconds * SECOND_US


class Key(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True, cache_hash=True):
    """The system-wide key ⟨oid, nid⟩ of an object (M3)."""

    oid: ObjectId
    owner: NodeId

    def __post_init__(self) -> None:
        as_object_id(self.oid)
        as_node_id(self.owner)

    def __str__(self) -> str:
        return f"{self.oid}@{self.owner.hex()}"

    def __repr__(self) -> str:
        return f"Key.parse({str(self)!r})"

    @classmethod
    def parse(cls, text: object) -> Key:
        """Parses `oid@owner`, the owner in hexadecimal."""
        oid, _, owner = text.rpartition("@") if isinstance(text, str) else ("", "", "")
        if not _HEXADECIMAL.fullmatch(owner):
            raise KeyFormatError(
                f"a key is written oid@owner (owner in hexadecimal), not {safe_repr(text)}"
            )
        return cls(as_object_id(oid), as_node_id(bytes.fromhex(owner)))


def _check_id(value: str, label: str) -> str:
    if not isinstance(value, str):
        raise KeyFormatError(f"{label} is text, not {type(value).__name__}: {safe_repr(value)}")
    if value.isascii() and value.isalnum() and 0 < len(value) <= ID_BYTES_MAX:
        return value
    valid = value.isprintable() and "@" not in value and not any(map(str.isspace, value))
    if not valid or not 1 <= len(value.encode()) <= ID_BYTES_MAX:
        raise KeyFormatError(
            f"{label} is 1 to {ID_BYTES_MAX} bytes of printable text without white space "
            f"or '@', not {safe_repr(value)}"
        )
    return value
