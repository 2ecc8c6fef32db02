"""Golden bytes: everything sent between processes is written and read as ever (M25, I24).

The examples are those of the tests of each format. The bytes are recorded separately, by the names
and numbers in the bytes themselves: they do not change when a class is renamed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, get_args

import msgspec
import pytest

from tests.builders import ALICE, conjunctions, key, photo, subscribe
from tests.golden.frozen import Frozen, read
from tests.pipeline.planned import STORY
from tests.transport.pipe import WORLD
from tests.wire.test_app_rpc import REQUESTS, TOLD
from tests.wire.test_schema import GOLDEN
from thyme.live.keys.identity import SEED_BYTES, Identity
from thyme.live.keys.peer_authenticator import Ed25519PeerAuthenticator
from thyme.live.keys.record_signer import Ed25519RecordSigner
from thyme.model import signed_records
from thyme.model.ids import SubscriptionId
from thyme.model.subscriptions import SubscriptionKey
from thyme.model.worlds import Area, GeoPoint, WorldInfo
from thyme.protocol.messages.common import Message
from thyme.traces.operations import Operation
from thyme.transport import datagrams
from thyme.transport.encryption import DatagramCipher, derive_world_key
from thyme.wire import app_rpc
from thyme.wire.codec import decode, encode

FILE = "wire.json"
LIFE = b"life1234"
IDENTITY = Identity(bytes(range(SEED_BYTES)))
TAG = datagrams.digest_world(WORLD)
PLACE = WorldInfo(
    "lisbon",
    "w1",
    area=Area(400.0, 200.0),
    cell_m=40.0,
    ends_us=1_468_187_340_000_000,
    substrate="dcs",
    closed=True,
    origin=GeoPoint(38.7, -9.1),
)
PART = datagrams.Fragment(7, 1, 3, b"\x01\x02")
GOT = datagrams.FragmentAck(7, 2, 5)
CONTENTS: dict[str, datagrams.Content] = {
    "greeting": datagrams.Hello(WORLD),
    "greeting with an introduction": datagrams.Hello(
        PLACE, True, Ed25519PeerAuthenticator(IDENTITY, TAG, LIFE, 1_468_187_340_000_000).own_proof
    ),
    "broadcast": datagrams.BroadcastBody(b"\x00\xff"),
    "part": PART,
    "acknowledgement": GOT,
    "clock": datagrams.ClockReading(1_468_187_340_000_000),
    "several": datagrams.Bundle((datagrams.BroadcastBody(b"a"), PART, GOT)),
}
OWN_KEY = key(7, by=IDENTITY.node_id)
OWN_SUBSCRIPTION = SubscriptionKey(SubscriptionId("sub1"), IDENTITY.node_id)
SIGNED: dict[str, signed_records.Record] = {
    "metadata": photo(7, by=IDENTITY.node_id, data=b"pixels", summary=b"th", expires_us=9),
    "delete": signed_records.DeleteRecord(OWN_KEY),
    "subscribe": signed_records.SubscribeRecord(
        OWN_SUBSCRIPTION,
        subscribe(1).frame,
        signed_records.conjunction_digests(conjunctions("goal & !replay | eder")),
    ),
    "unsubscribe": signed_records.UnsubscribeRecord(OWN_SUBSCRIPTION),
    "location": signed_records.LocationRecord(IDENTITY.node_id, 7, 5),
}


def name_in(frame: bytes) -> str:
    """The name at the start of an application frame, and the type of a reply's value."""
    name, body = msgspec.msgpack.decode(frame)
    return f"{name} {body[1]}" if isinstance(body, list) else str(name)


def frames(encode_one: Callable[[Any], bytes], examples: list[Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for example in examples:
        frame = encode_one(example)
        found[f"{name_in(frame)} {len(found)}"] = frame.hex()
    return found


def test_messages_have_the_bytes_they_always_had(frozen: Frozen) -> None:
    found = {str(encode(message)[2]): encode(message).hex() for message, _ in GOLDEN}

    assert len(found) == len(get_args(Message))
    frozen.check(FILE, "messages", found)


def test_requests_and_news_of_applications_have_the_bytes_they_always_had(frozen: Frozen) -> None:
    frozen.check(FILE, "requests", frames(app_rpc.encode_request, REQUESTS))
    frozen.check(FILE, "told", frames(app_rpc.encode_event, TOLD))


def test_datagrams_have_the_bytes_they_always_had(frozen: Frozen) -> None:
    found = {
        name: datagrams.encode(TAG, LIFE, ALICE, content).hex()
        for name, content in CONTENTS.items()
    }

    assert {type(content) for content in CONTENTS.values()} == set(get_args(datagrams.Content))
    frozen.check(FILE, "datagrams", found)


def test_sealed_datagrams_have_the_bytes_they_always_had(frozen: Frozen) -> None:
    seal = DatagramCipher(derive_world_key("correct horse", WORLD), WORLD, Random(1).randbytes)
    datagram = datagrams.encode(TAG, LIFE, ALICE, PART)

    frozen.check(FILE, "sealed datagram", seal.encrypt(datagram).hex())


def test_what_is_signed_and_the_signatures_are_as_ever(frozen: Frozen) -> None:
    signer = Ed25519RecordSigner(IDENTITY, "w1")
    texts = {
        name: signed_records.signing_bytes(record, "w1").hex() for name, record in SIGNED.items()
    }
    proofs = {name: signer.sign(record).hex() for name, record in SIGNED.items()}
    together = [proof.hex() for proof in signer.sign_all(list(SIGNED.values()))]

    assert {type(record) for record in SIGNED.values()} == set(get_args(signed_records.Record))
    frozen.check(FILE, "signed texts", texts)
    frozen.check(FILE, "signatures", proofs)
    frozen.check(FILE, "signatures together", together)


def test_operations_of_traces_have_the_bytes_they_always_had(frozen: Frozen) -> None:
    found = {operation: msgspec.json.encode(operation).decode() for operation in STORY.operations}

    assert {type(operation) for operation in found} == set(get_args(Operation))
    frozen.check(FILE, "operations of a trace", list(found.values()))


READERS: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    "messages": (decode, encode),
    "requests": (app_rpc.decode_request, app_rpc.encode_request),
    "told": (app_rpc.decode_event, app_rpc.encode_event),
    "datagrams": (
        datagrams.decode,
        lambda it: datagrams.encode(it.world_digest, it.incarnation, it.sender, it.content),
    ),
}


@pytest.mark.parametrize("what", READERS)
def test_the_bytes_of_earlier_versions_are_read_and_written_again(what: str) -> None:
    reads, writes = READERS[what]
    for name, golden in read(FILE)[what].items():
        assert writes(reads(bytes.fromhex(golden))).hex() == golden, name
