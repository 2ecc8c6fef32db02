"""Messages of a member that are changed at random and signed afterwards, in long sequences, against
a node of each substrate with real signatures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from tests.live.forgeries import (
    ALICE,
    ENDED,
    HERE,
    KEPT,
    MALLORY,
    NODE,
    NOW_US,
    SIGNERS,
    STANDING,
    Forger,
    a_location,
)
from tests.wire.test_schema import GOLDEN
from thyme.live.keys.pair_keys import X25519PairKeys
from thyme.live.node_factory import unwrap_node
from thyme.model.errors import ThymeError
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.signed_records import (
    DeleteRecord,
    LocationRecord,
    UnsubscribeRecord,
    sign_metadata,
    sign_subscription,
)
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.model.time_frames import ALWAYS
from thyme.protocol import app_interface as asked
from thyme.protocol.answer_auth import AnswerAuthenticator
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import (
    CellSubscription,
    CellTarget,
    SignedInstant,
    SignedLocation,
    TombstoneRecord,
)
from thyme.protocol.messages.compact import CompactNotifyBatch
from thyme.protocol.node import Action, Input, Received, Send
from thyme.substrates.dcs.node import DcsNode
from thyme.wire import codec

NUMBERS = (0, 1, 2, -1, 255, 65_535, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63))
ANY_MESSAGE = [message for message, _ in GOLDEN]
OWN = MALLORY.node_id
BEACON_US = 1_000_000


class SignedFuzzer(Forger):
    """A member that sends anything of its own, all of it genuine, and one node that receives it."""

    def __init__(self, substrate: str, seed: int, *, alice_is_there: bool = True) -> None:
        self._alice_is_there = alice_is_there
        self._answers_of_alice = AnswerAuthenticator(X25519PairKeys(ALICE, "w1"), Counter())
        self._beacon_us = 0
        self.acknowledged = 0
        """Notifications and probes that Alice has acknowledged."""
        super().__init__(substrate, seed)
        self._answers = AnswerAuthenticator(X25519PairKeys(MALLORY, "w1"), Counter())
        self._answers_of_node(NODE.public_key)
        self._not_spoken: set[type] = set()
        """Kinds of messages that the node does not speak; they are sent rarely."""
        self.refused = 0
        """Changed messages that cannot be encoded or decoded at all."""

    def _answers_of_node(self, public_key: bytes) -> None:
        introduced = wire.Authenticated(
            public_key, b"", codec.encode_message(wire.FetchStatus(1, KEPT))
        )
        self._answers.open(NODE.node_id, introduced)

    def attempt(self) -> None:
        """Sends one changed message, or a short sequence of the same kind of them."""
        whole = self._rng.choice(ANY_MESSAGE)
        while type(whole) in self._not_spoken and self._rng.random() < 0.95:
            whole = self._rng.choice(ANY_MESSAGE)
        for _ in range(self._rng.choice((1, 1, 1, 4))):
            self._send(whole)
        self._now_us += self._rng.choice((10, 1_000, 20_000))
        if self._rng.random() < 0.02:
            self._pass_time(self._rng.choice((100_000, 1_000_000)))

    def _handle(self, event: Input) -> list[Action]:
        """Alice is there and acknowledges: a cell forgets a subscriber who does not (D22)."""
        actions = super()._handle(event)
        if self._substrate == "dcs" and self._alice_is_there:
            for action in actions:
                if isinstance(action, Send) and action.to == ALICE.node_id:
                    self._acknowledge(action.message)
            if self._now_us - self._beacon_us >= BEACON_US:
                self._beacon_us = self._now_us
                beacon = cell_wire.CellBeacon(HERE, False, b"", b"")
                self._handle(Received(ALICE.node_id, beacon))
        return actions

    def _acknowledge(self, packet: wire.Message) -> None:
        """Alice acknowledges the notifications in a packet."""
        assert isinstance(packet, wire.CellPacket)
        content = self._answers_of_alice.open(NODE.node_id, packet.message)
        if isinstance(content, cell_wire.CellNotifyBatch | CompactNotifyBatch):
            self.acknowledged += 1
            ack = cell_wire.NotifyAck((packet.number,))
            sealed = self._answers_of_alice.seal(NODE.node_id, ack)
            target = CellTarget(HERE, NODE.node_id)
            to_node = wire.CellPacket(ALICE.node_id, HERE, self._next(), 0, (target,), sealed)
            self._handle(Received(ALICE.node_id, to_node))

    def suspect_alice(self) -> None:
        """Mallory says as a peer that Alice could not be notified: the node probes her."""
        suspect = cell_wire.SuspectSubscriber(ALICE.node_id, HERE)
        self._handle(
            Received(OWN, wire.CellBroadcast(OWN, HERE, self._next(), 0, HERE, HERE, suspect))
        )

    def pass_second(self) -> None:
        """A second in which Mallory says nothing."""
        self._pass_time(1_000_000)

    def _send(self, whole: wire.Message) -> None:
        try:
            changed = sign(self._change(whole), self._now_us)
            message = codec.decode(codec.encode(cast("wire.Message", changed)))
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, ThymeError):
            self.refused += 1
            return
        self.tried[type(message).__name__] += 1
        dropped = unwrap_node(self.node).dropped
        not_spoken = dropped["not spoken here"]
        carried = self._carry(message) if self._rng.random() < 0.7 else None
        if carried is None:
            self._handle(Received(OWN, message))
        else:
            self._hear(carried, by=MALLORY)
        if dropped["not spoken here"] != not_spoken and type(carried) is type(message):
            self._not_spoken.add(type(message))

    def _carry(self, message: wire.Message) -> wire.Message | None:
        """A message as it is sent in a packet; None if it cannot be in one."""
        try:
            if self._substrate != "dcs" and self._rng.random() < 0.1:
                message = wire.ReliableMessage(self._next(), message)
            sealed = message
            if self._substrate == "es" or _is_answer(message):
                sealed = self._answers.seal(NODE.node_id, message)
            wire.Packet(OWN, NODE.node_id, 0, sealed)
            wire.CellPacket(OWN, HERE, 1, 0, (CellTarget(HERE),), sealed)
            wire.Flooded(OWN, 1, 0, sealed)
        except ValueError:
            return None
        return sealed

    def _change(self, value: Any) -> Any:
        """A value with some of its parts replaced."""
        rng = self._rng
        if isinstance(value, msgspec.Struct):
            names = value.__struct_fields__
            changes = {
                name: self._change(getattr(value, name)) for name in names if rng.random() < 0.3
            }
            return replace(value, **changes)
        if isinstance(value, tuple):
            return self._change_list(value)
        if rng.random() < 0.6:
            return self._own_name(value)
        change: Callable[[Any], Any] | None = {
            bool: lambda it: not it,
            int: lambda it: rng.choice((*NUMBERS, it + 1, self._now_us, rng.getrandbits(16))),
            str: lambda it: rng.choice(("", it + "x", it[:1], "goal", f"m{rng.randrange(20)}")),
            bytes: lambda it: rng.choice((b"", it[:-1], it + b"x", rng.randbytes(len(it)))),
        }.get(type(value))
        return value if change is None else change(value)

    def _change_list(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        changed = tuple(self._change(each) for each in value)
        match self._rng.randrange(8):
            case 0:
                return ()
            case 1:
                return changed * 3
            case 2:
                return changed[::-1]
        return changed

    def _own_name(self, value: Any) -> Any:
        """Names of nodes become known ones."""
        if isinstance(value, bytes) and 2 < len(value) <= 16:
            return self._rng.choice((OWN, OWN, NODE.node_id, ALICE.node_id))
        return value

    def own_records(self) -> int:
        """The objects and subscriptions of Mallory that the node has."""
        inner = unwrap_node(self.node)
        broker = inner.index.broker if isinstance(inner, DcsNode) else inner.broker  # type: ignore[union-attr]
        assert broker is not None
        objects = [one for one in broker.catalogue.history if one.owner == OWN]
        return len(objects) + broker.subscription_count

    def check(self) -> None:
        """Asserts that nothing of Alice's is other than she said."""
        inner = unwrap_node(self.node)
        broker = inner.index.broker if isinstance(inner, DcsNode) else inner.broker  # type: ignore[union-attr]
        assert broker is not None
        theirs = {one.key: one for one in broker.catalogue.history if one.owner == ALICE.node_id}
        if self._substrate == "ls":
            events = [one for one in self.told if isinstance(one, asked.NotificationEvent)]
            keys = [one.notification.key for one in events]
            assert len([key for key in keys if key.owner == ALICE.node_id]) == 2
            assert len(keys) == len(set(keys)), "each once"
        else:
            assert theirs == {KEPT: self.kept}
        assert broker.is_known(STANDING)
        assert broker.is_cancelled(ENDED)
        if isinstance(inner, DcsNode):
            standing = [
                one.located
                for one in inner.index.cell_subscriptions()
                if one.subscription.key == STANDING
            ]
            assert standing == [a_location(NOW_US).since]
        self.node.check()


def _is_answer(message: wire.Message) -> bool:
    return getattr(message, "message", message).authenticated


def sign(value: Any, now_us: int) -> Any:
    """The same value with all records in it signed by Mallory, in her own name."""
    signer = SIGNERS[MALLORY]
    match value:
        case Metadata():
            at_us = value.published_us if value.published_us > 10**12 else now_us
            expires_us = value.expires_us if value.expires_us in (None, *NUMBERS) else None
            own = replace(
                value, key=_own_key(value.key, now_us), published_us=at_us, expires_us=expires_us
            )
            return sign_metadata([replace(own, digest_and_proof=own.digest)], signer)[0]
        case SubscriptionRecord():
            key = _own_sub(value.key, now_us)
            frame = ALWAYS if value.frame.end_us and value.frame.end_us < now_us else value.frame
            own_record = SubscriptionRecord(key, value.conjunctions, frame)
            return sign_subscription(own_record, signer)
        case SignedLocation():
            at_us = value.since.at_us
            proof = signer.sign(LocationRecord(OWN, value.cell, at_us))
            return SignedLocation(value.cell, SignedInstant(at_us, proof))
        case TombstoneRecord():
            return _sign_tombstone(value, now_us)
        case wire.SignedDelete():
            own_key = _own_key(value.key, now_us)
            return wire.SignedDelete(value.request_id, own_key, signer.sign(DeleteRecord(own_key)))
        case wire.SignedStop():
            sub_key = _own_sub(value.key, now_us)
            return wire.SignedStop(
                value.request_id, sub_key, signer.sign(UnsubscribeRecord(sub_key))
            )
        case CellSubscription():
            since = sign(SignedLocation(value.cell, SignedInstant(now_us, b"")), now_us).since
            subscription = sign(value.subscription, now_us)
            return replace(value, subscription=subscription, located=since)
        case msgspec.Struct():
            value = _with_digest(value)
            parts = {name: sign(getattr(value, name), now_us) for name in value.__struct_fields__}
            return replace(value, **parts)
        case tuple():
            return tuple(sign(each, now_us) for each in value)
    return value


def _own_key(key: Key, now_us: int) -> Key:
    """A key of Mallory's: one of a few hundred, so that the same ones come again."""
    return Key(ObjectId(f"{key.oid[:16]}-{now_us // 1_000 % 300}"), OWN)


def _own_sub(key: SubscriptionKey, now_us: int) -> SubscriptionKey:
    return SubscriptionKey(SubscriptionId(f"{key.sid[:16]}-{now_us // 1_000 % 300}"), OWN)


def _with_digest(message: Any) -> Any:
    """A message whose metadata fits the data in it."""
    metadata, data = getattr(message, "metadata", None), getattr(message, "data", None)
    if not isinstance(metadata, Metadata) or not isinstance(data, bytes):
        return message
    fitting = replace(metadata, size=len(data), digest_and_proof=sha256(data).digest())
    return replace(message, metadata=fitting)


def _sign_tombstone(tombstone: TombstoneRecord, now_us: int) -> TombstoneRecord:
    """A tombstone of Mallory's own object, or of her subscription of this name."""
    key = _own_key(Key.parse(tombstone.key), now_us)
    record = DeleteRecord(key)
    if tombstone.reason != "deleted":
        record_key = SubscriptionKey(SubscriptionId(key.oid), NodeId(OWN))
        proof = SIGNERS[MALLORY].sign(UnsubscribeRecord(record_key))
    else:
        proof = SIGNERS[MALLORY].sign(record)
    return TombstoneRecord(str(key), tombstone.reason, SignedInstant(now_us, proof))
