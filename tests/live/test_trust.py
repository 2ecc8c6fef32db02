"""On real sockets: a member of a world that says things in the name of another (B5)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec import structs

from tests.daemon.pages import BRISK, a_node, a_place
from tests.live.nodes import free_group
from tests.transport.pipe import ALICE, WORLD
from thyme.api.world import OpenedWorld, World
from thyme.cli.option_values import parse_quota
from thyme.live.host import Host
from thyme.live.keys.identity import Identity
from thyme.live.keys.record_signer import Ed25519RecordSigner
from thyme.live.node_factory import QUOTA
from thyme.live.node_options import NodeOptions
from thyme.live.open_node import LiveNode, open_node
from thyme.live.sockets import Sockets
from thyme.model.errors import OptionError, QuotaError, ThymeError
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata, make_metadata
from thyme.model.signed_records import DeleteRecord, UnsubscribeRecord, signing_bytes
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.model.tags import Tag
from thyme.model.time_frames import ALWAYS
from thyme.model.worlds import Area
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    Failed,
    Finished,
    Insert,
    InsertBatch,
    ListSubscriptions,
)
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId, CellTarget, IndexedMetadata, Replica
from thyme.protocol.node import Action, AppRequested, Emit, Input, Started
from thyme.query.query import Query
from thyme.storage.store import MemoryStore
from thyme.substrates.common.quotas import Quota
from thyme.substrates.es import EsConfig, EsNode
from thyme.transport.link import Link
from thyme.transport.link_config import LinkConfig

JOIN_S = 4.5
HERE = CellId(0)
MALLORY = Identity(b"m" * 32)


async def a_member(group: str) -> World:
    live = await open_node(NodeOptions(world="lisbon", network=a_place(group), link=BRISK))

    async def opened() -> OpenedWorld:
        return live.world, live.start

    return await World(opened)


def dropped(live: LiveNode) -> Counter[str]:
    node: Any = getattr(live.node, "inner", live.node)
    found: Counter[str] = node.dropped
    return found


def say(host: Host, to: NodeId, *messages: wire.Message) -> None:
    """A node sends what no node of ours would."""
    link = host._link
    assert link is not None
    for message in messages:
        link.send(to, message, host.now_us())
    host._handle_link_events()
    host._flush()


async def until(true: Callable[[], bool]) -> None:
    for _ in range(200):
        if true():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come to be")


def proof(record: DeleteRecord | UnsubscribeRecord) -> bytes:
    """What Mallory can sign: with her key, whatever she likes."""
    return MALLORY.sign(signing_bytes(record, "w"))


def forged(alice: NodeId, oid: str, sid: str) -> list[wire.Message]:
    """Deletes and unsubscribes of Alice's, unsigned and signed by another; what she never said."""
    delete = DeleteRecord(Key(ObjectId(oid), alice))
    stop = UnsubscribeRecord(SubscriptionKey(SubscriptionId(sid), alice))
    new = SubscriptionKey(SubscriptionId("forged"), alice)
    return [
        wire.DeleteObject(1, delete.key),
        wire.SignedDelete(2, delete.key, proof(delete)),
        wire.StopSubscription(3, stop.key),
        wire.SignedStop(4, stop.key, proof(stop)),
        wire.StartSubscription(5, SubscriptionRecord(new, Query("goal").conjunctions, ALWAYS), 20),
    ]


def a_lie(owner: NodeId) -> Metadata:
    return make_metadata(Key(ObjectId("lie"), owner), b"lies", ["goal"], 1_000_000)


SUBSTRATES: dict[str, dict[str, Any]] = {
    "es": {},
    "ls": {},
    "dcs": {"area": Area(40, 40), "cell_m": 40.0},
}


def carried(
    substrate: str, alice: NodeId, to: NodeId, number: int, message: wire.Message
) -> wire.Message:
    """A message as it travels in a substrate, with Alice as its origin."""
    match substrate:
        case "es":
            return wire.Packet(alice, to, 0, message)
        case "ls":
            return wire.Flooded(alice, number, 0, message)
    return wire.CellPacket(alice, HERE, number, 0, (CellTarget(HERE),), message)


@pytest.mark.slow
@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_b5_nobody_is_believed_in_anothers_name(substrate: str) -> None:
    async def story() -> None:
        group = free_group()
        options = SUBSTRATES[substrate] | {"substrate": substrate, "network": a_place(group)}
        async with a_node(**options) as first:
            alice = await a_member(group)
            mallory = await a_member(group)
            try:
                await asyncio.sleep(JOIN_S)
                feed = await alice.subscribe("goal")
                await feed.caught_up()
                key = await alice.insert(b"a photo", tags=["goal"])
                assert (await asyncio.wait_for(anext(feed), 10)).key == key
                await asyncio.sleep(1)
                before = dropped(first.live).copy()
                assert not [cause for cause in before if "genuine" in cause]

                lies = forged(alice.node_id, key.oid, feed.sid)
                if substrate == "dcs":
                    listed = IndexedMetadata(a_lie(alice.node_id), (Replica(HERE),))
                    lies += [
                        cell_wire.IndexObject(6, listed),
                        cell_wire.LocationUpdate(7, (feed.sid,)),
                    ]
                else:
                    lies.append(wire.ReliableMessage(6, wire.Notify(a_lie(alice.node_id), ())))
                to, port = first.host.node_id, mallory._session._port
                assert isinstance(port, Host)
                messages = [
                    carried(substrate, alice.node_id, to, 2**40 + number, lie)
                    for number, lie in enumerate(lies)
                ]
                say(port, to, *messages)
                await until(lambda: sum((dropped(first.live) - before).values()) >= len(lies))
                assert all("not genuine" in cause for cause in dropped(first.live) - before)

                again = await mallory.insert(b"a photo of hers", tags=["goal"])
                assert (await asyncio.wait_for(anext(feed), 10)).key == again, "it still stands"
                found = await mallory.search("goal")
                assert {note.key for note in found} == {key, again}
                _, metrics = await first.ask("GET", "/metrics")
                assert b'cause="not genuine: delete"' in metrics
                _, shares = await first.ask("GET", "/v1/peers")
                at = {share["nodes"][0]: share for share in shares["addresses"] if share["nodes"]}
                assert set(at) == {alice.node_id.hex(), mallory.node_id.hex()}
                assert all(share["datagrams"] and share["bytes"] for share in at.values())
                of = {share["node"]: share for share in shares["authors"]}
                assert of[alice.node_id.hex()]["rejected"] >= len(lies) - 2
                assert of[alice.node_id.hex()]["verifications"] >= 1
                if substrate == "es":
                    # A few datagrams are not read before she has responded to the challenge.
                    of_hers = at[mallory.node_id.hex()]["dropped"]
                    assert of_hers < len(lies), "she may pass on for others"
                    assert of[mallory.node_id.hex()]["objects"] == 1
            finally:
                await alice.leave()
                await mallory.leave()

    asyncio.run(story())


def test_b5_who_is_over_its_quota_is_told_so() -> None:
    async def story() -> None:
        group = free_group()
        options = {"substrate": "es", "network": a_place(group), "quota": Quota(objects=1)}
        async with a_node(**options):
            alice = await a_member(group)
            bob = await a_member(group)
            try:
                await alice.insert(b"one", tags=["goal"])
                with pytest.raises(QuotaError, match="at most 1 here"):
                    await alice.insert(b"two", tags=["goal"])
                await bob.insert(b"his", tags=["goal"])
            finally:
                await alice.leave()
                await bob.leave()

    asyncio.run(story())


def test_b5_a_quota_is_written_in_words() -> None:
    assert parse_quota("bytes=2K,subscriptions=none", QUOTA) == Quota(
        bytes=2048, objects=QUOTA.objects, subscriptions=None
    )
    for wrong in ("", "bytes", "bytes=-1", "bytes=1T", "cells=3", "objects=1,"):
        with pytest.raises(OptionError, match="--quota takes"):
            parse_quota(wrong, QUOTA)


def an_insert(number: int) -> Insert:
    return Insert(request_id=number, data=b"", tags=(Tag("goal"),), oid=ObjectId(f"o{number}"))


class Ledger:
    """A node that notes what it is asked."""

    node_id = MALLORY.node_id

    def __init__(self) -> None:
        self.asked: list[AppRequest | InsertBatch] = []

    def handle(self, event: Input, now_us: int) -> list[Action]:
        if isinstance(event, AppRequested):
            self.asked.append(event.request)
        return []

    def check(self) -> None:
        """Nothing to check."""


class Deaf:
    def on_event(self, told: AppEvent) -> None:
        raise AssertionError("nothing is told")

    def on_node_failed(self, error: ThymeError) -> None:
        raise error


def test_b5_inserts_of_one_moment_are_asked_together_and_in_order() -> None:
    """So that they share a signature; what stands between them stays there."""
    ledger = Ledger()
    search = ListSubscriptions(request_id=50)

    async def story() -> None:
        sockets = Sockets(a_place())
        await sockets.open()
        link = Link(MALLORY.node_id, WORLD, b"12345678", LinkConfig())
        host = Host(ledger, MemoryStore(), Deaf(), link, sockets)
        for request in (an_insert(1), search, *map(an_insert, range(2, 20)), search):
            host.send_request(request)
        await asyncio.sleep(0.05)
        host.close()

    asyncio.run(story())
    asked = [
        [insert.request_id for insert in request.inserts]
        if isinstance(request, InsertBatch)
        else getattr(request, "request_id", None)
        for request in ledger.asked
    ]
    assert asked == [1, 50, list(range(2, 18)), [18, 19], 50]


def test_b5_each_of_several_inserts_is_answered() -> None:
    """One that is refused does not take the others with it."""
    node = EsNode(
        MALLORY.node_id,
        MALLORY.node_id,
        MemoryStore(),
        Random(1),
        EsConfig(),
        MessageAuthenticator(MALLORY.node_id, Ed25519RecordSigner(MALLORY, "w")),
    )
    node.handle(Started(), 0)
    wrong = structs.replace(an_insert(2), copies=3)
    actions = node.handle(AppRequested(InsertBatch((an_insert(1), wrong, an_insert(3)))), 100)

    told = [action.event for action in actions if isinstance(action, Emit)]
    assert {one.request_id: type(one) for one in told if isinstance(one, Finished | Failed)} == {
        1: Finished,
        2: Failed,
        3: Finished,
    }
    assert node.broker is not None
    stored = list(node.broker.catalogue.history)
    theirs = Ed25519RecordSigner(Identity(b"b" * 32), "w")
    assert len(stored) == 2
    assert all(theirs.verify(metadata, metadata.proof) for metadata in stored)
    assert len({metadata.proof[:96] for metadata in stored}) == 1


def test_m21_several_inserts_that_come_too_late_all_fail() -> None:
    node = EsNode(ALICE, ALICE, MemoryStore(), Random(1), EsConfig(world_ends_us=50))
    node.handle(Started(), 0)
    actions = node.handle(AppRequested(InsertBatch((an_insert(1), an_insert(2)))), 100)

    told = [action.event for action in actions if isinstance(action, Emit)]
    assert [one.code for one in told if isinstance(one, Failed)] == ["ended", "ended"]
