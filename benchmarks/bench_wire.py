"""Wire formats: our Notify message in msgspec's MessagePack, Protocol Buffers and CBOR.

Four questions of each format: how many bytes; how long from our record to bytes; how long from
bytes until every field has been read; how long from bytes to our record, checked as everything
that arrives is. Formats take turns in every round, so that a busy machine slows them alike.
Decision: docs/decisions/0003-wire.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median
from typing import Any

import msgspec

from thyme.distribution import install_hint
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata, make_metadata
from thyme.protocol.messages.replies import Notify
from thyme.wire import codec

CALLS = 2_000
NUMBER = 32  # of Notify among our messages

Plain = tuple[Any, ...]
"""Every field of the message, none left lazy: what a reader ends up touching."""


def a_notify() -> Notify:
    """Owner 16 bytes, identifiers 13 letters, three tags, summary 64 bytes, two subscriptions."""
    key = Key(ObjectId("8f3kz0q1vx7mc"), NodeId(bytes(range(16))))
    metadata = make_metadata(
        key, b"\x00" * 300, ["goal", "ronaldo", "photo"], 1_752_950_400_123_456, summary=b"s" * 64
    )
    return Notify(metadata, (SubscriptionId("2c5m9d0r7ynsk"), SubscriptionId("t40wq8h1e6pxa")))


def fields_of(message: Notify) -> Plain:
    """Reads the record."""
    m = message.metadata
    return (
        (m.key.oid, m.key.owner, m.tags, m.summary, m.published_us, m.size, m.digest),
        m.expires_us,
        message.sids,
    )


def record_of(plain: Plain) -> Notify:
    """Builds the record, checks included, as a format without typed records has to."""
    (oid, owner, tags, summary, published_us, size, digest), expires_us, sids = plain
    key = Key(oid, owner)
    return Notify(Metadata(key, tags, summary, published_us, size, digest, expires_us), sids)


MESSAGE = a_notify()


class Format(ABC):
    """One way to write the message."""

    name: str

    @abstractmethod
    def encode(self, message: Notify) -> bytes:
        """From our record to bytes."""

    @abstractmethod
    def read(self, frame: bytes) -> Plain:
        """From bytes to every field, unchecked."""

    def decode(self, frame: bytes) -> Notify:
        """From bytes to our record, checked."""
        return record_of(self.read(frame))


class _Key(msgspec.Struct, frozen=True, array_like=True):
    oid: str
    owner: bytes


class _Metadata(msgspec.Struct, frozen=True, array_like=True):
    key: _Key
    tags: tuple[str, ...]
    summary: bytes
    published_us: int
    size: int
    digest: bytes
    expires_us: int | None = None


class _Notify(msgspec.Struct, frozen=True, array_like=True, tag=NUMBER):
    """The record without its checks, to time the format alone."""

    metadata: _Metadata
    sids: tuple[str, ...]


class Msgspec(Format):
    """What `thyme.wire` does."""

    name = f"msgspec {msgspec.__version__}"

    def __init__(self) -> None:
        self._unchecked = msgspec.msgpack.Decoder(_Notify)

    def encode(self, message: Notify) -> bytes:
        return codec.encode(message)

    def read(self, frame: bytes) -> Plain:
        return fields_of(self._unchecked.decode(memoryview(frame)[1:]))  # type: ignore[arg-type]

    def decode(self, frame: bytes) -> Notify:
        message = codec.decode(frame)
        assert isinstance(message, Notify)
        return message


class Protobuf(Format):
    """The same schema in Protocol Buffers, its descriptor made here instead of by protoc."""

    def __init__(self) -> None:
        from google.protobuf.internal import api_implementation

        self.name = f"protobuf {version('protobuf')} ({api_implementation.Type()})"
        self._envelope = _envelope_class()

    def encode(self, message: Notify) -> bytes:
        envelope = self._envelope()
        notify = envelope.notify
        theirs, ours = notify.metadata, message.metadata
        theirs.key.oid = ours.key.oid
        theirs.key.owner = ours.key.owner
        theirs.tags.extend(ours.tags)
        theirs.summary = ours.summary
        theirs.published_us = ours.published_us
        theirs.size = ours.size
        theirs.digest = ours.digest
        if ours.expires_us is not None:
            theirs.expires_us = ours.expires_us
        notify.sids.extend(message.sids)
        return b"\x01" + bytes(envelope.SerializeToString())

    def read(self, frame: bytes) -> Plain:
        notify = self._envelope.FromString(frame[1:]).notify
        m = notify.metadata
        key = m.key
        return (
            (key.oid, key.owner, tuple(m.tags), m.summary, m.published_us, m.size, m.digest),
            m.expires_us if m.HasField("expires_us") else None,
            tuple(notify.sids),
        )


class Cbor(Format):
    """The same arrays in CBOR."""

    def __init__(self) -> None:
        import cbor2

        self.name = f"cbor2 {version('cbor2')}"
        self._dumps: Callable[[Any], bytes] = cbor2.dumps
        self._loads: Callable[[bytes], Any] = cbor2.loads

    def encode(self, message: Notify) -> bytes:
        m = message.metadata
        key = (m.key.oid, m.key.owner)
        head = (key, m.tags, m.summary, m.published_us, m.size, m.digest, m.expires_us)
        return b"\x01" + self._dumps((NUMBER, head, message.sids))

    def read(self, frame: bytes) -> Plain:
        _, (key, tags, summary, at_us, size, digest, expires_us), sids = self._loads(frame[1:])
        return (*key, tuple(tags), summary, at_us, size, digest), expires_us, tuple(sids)


def _envelope_class() -> Any:
    """`message Envelope { oneof body { Notify notify = 32; } }` and what it holds, in proto3."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="thyme.proto", package="t", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, Any]) -> Any:
        made = file.message_type.add(name=name)
        for number, (field, label, kind) in enumerate(fields, start=1):
            added = made.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".t.{kind}"
            else:
                added.type = kind
        return made

    one, many = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    message("Key", ("oid", one, kinds.TYPE_STRING), ("owner", one, kinds.TYPE_BYTES))
    metadata = message(
        "Metadata",
        ("key", one, "Key"),
        ("tags", many, kinds.TYPE_STRING),
        ("summary", one, kinds.TYPE_BYTES),
        ("published_us", one, kinds.TYPE_INT64),
        ("size", one, kinds.TYPE_UINT64),
        ("digest", one, kinds.TYPE_BYTES),
        ("expires_us", one, kinds.TYPE_INT64),
    )
    metadata.oneof_decl.add(name="_expires_us")
    metadata.field[-1].oneof_index = 0
    metadata.field[-1].proto3_optional = True
    message("Notify", ("metadata", one, "Metadata"), ("sids", many, kinds.TYPE_STRING))
    envelope = message("Envelope", ("notify", one, "Notify"))
    envelope.oneof_decl.add(name="body")
    envelope.field[0].number = NUMBER
    envelope.field[0].oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Envelope"))


def formats() -> dict[str, Format]:
    """Those that are installed here; the others are named and left out."""
    found: dict[str, Format] = {"msgspec": Msgspec()}
    for name, module, make in (
        ("protobuf", "google.protobuf", Protobuf),
        ("cbor2", "cbor2", Cbor),
    ):
        if _installed(module):
            found[name] = make()
        else:
            print(f"{name} is not installed and is left out ({install_hint('bench')})")
    return found


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def time_us(call: Callable[[], object]) -> float:
    """Microseconds per call, over a burst."""
    began_ns = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - began_ns) / CALLS / 1_000


def measure(rivals: dict[str, Format], rounds: int) -> dict[str, dict[str, float]]:
    """Median microseconds of each work of each format."""
    frames = {name: rival.encode(MESSAGE) for name, rival in rivals.items()}
    works: dict[str, dict[str, Callable[[], object]]] = {}
    for name, rival in rivals.items():
        assert rival.decode(frames[name]) == MESSAGE, f"{name} does not give back what went in"
        assert rival.read(frames[name]) == fields_of(MESSAGE)
        works[name] = {
            "encode": lambda rival=rival: rival.encode(MESSAGE),  # type: ignore[misc]
            "read": lambda rival=rival, frame=frames[name]: rival.read(frame),  # type: ignore[misc]
            "decode": lambda rival=rival, frame=frames[name]: rival.decode(frame),  # type: ignore[misc]
        }
    times: dict[str, dict[str, list[float]]] = {
        name: {work: [] for work in works[name]} for name in rivals
    }
    for _ in range(rounds):
        for work in ("encode", "read", "decode"):
            for name in rivals:
                times[name][work].append(time_us(works[name][work]))
    return {
        name: {work: round(median(taken), 3) for work, taken in by_work.items()}
        for name, by_work in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=41)
    rounds: int = parser.parse_args().rounds
    rivals = formats()
    times = measure(rivals, rounds)
    sizes = {name: len(rival.encode(MESSAGE)) for name, rival in rivals.items()}
    print(f"one Notify message; median of {rounds} interleaved rounds of {CALLS:,} calls\n")
    print(f"{'format':<24}{'bytes':>6}{'encode':>10}{'read':>10}{'decode':>10}   µs per message")
    for name, rival in rivals.items():
        cells = "".join(f"{times[name][work]:>10.2f}" for work in ("encode", "read", "decode"))
        print(f"{rival.name:<24}{sizes[name]:>6}{cells}")
    ours = times["msgspec"]
    ratios = {
        name: {work: round(times[name][work] / ours[work], 2) for work in ours}
        for name in rivals
        if name != "msgspec"
    }
    print("\nencode: our record to bytes; read: bytes to every field; decode: bytes to our checked")
    print("record. Time of the other format, msgspec = 1:")
    for name, ratio in ratios.items():
        print(f"  {name:<10}" + "  ".join(f"{work} {share:.2f}" for work, share in ratio.items()))
    figures = {
        "benchmark": "wire",
        "python": platform.python_version(),
        "machine": platform.machine(),
        "formats": {name: rival.name for name, rival in rivals.items()},
        "bytes": sizes,
        "us": times,
        "ratio_to_msgspec": ratios,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
