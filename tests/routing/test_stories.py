"""Substrates over routing, which they do not know, several hops apart (E3, R1–R3)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from thyme.model.ids import NodeId, ObjectId
from thyme.model.rng import derive_rng
from thyme.model.tags import as_tags
from thyme.model.time_frames import TimeFrame
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    CaughtUp,
    Failed,
    Finished,
    Insert,
    NotificationEvent,
    Retrieve,
    Search,
    SearchResult,
    Subscribe,
    SubscriptionStarted,
)
from thyme.protocol.messages.common import Packet, RouteUpdate
from thyme.protocol.node import Action, Broadcast, Input, Send
from thyme.protocol.outbox import Outbox
from thyme.query.query import Query
from thyme.routing import Dsdv, DsdvConfig, RoutedNode
from thyme.sim.networks.ideal_network import IdealNetwork
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.sim.validation import reference
from thyme.storage.store import MemoryStore
from thyme.substrates.es import EsConfig, EsNode
from thyme.wire.codec import size_of

SECOND_US = 1_000_000
READY_US = 40 * SECOND_US
"""When the substrates start: routes are known by then."""

Place = tuple[float, float]


def name(number: int) -> NodeId:
    return NodeId(number.to_bytes(2, "big"))


SERVER = name(0)


class Gathering:
    """Nodes of Thyme-ES over DSDV, on the radio or in the ideal network; node 0 is the server."""

    def __init__(
        self,
        places: Mapping[NodeId, Place],
        *,
        radio: bool = True,
        seed: int = 1,
        config: DsdvConfig | None = None,
    ) -> None:
        self.lines: list[str] = []
        self.world = (
            WirelessNetwork(places, seed=seed, journal=self._journal)
            if radio
            else IdealNetwork(seed=seed, journal=self._journal)
        )
        self.told: dict[NodeId, list[AppEvent]] = {node_id: [] for node_id in places}
        self.relays: dict[NodeId, RoutedNode] = {}
        for node_id in places:
            outbox, store = Outbox(), MemoryStore()
            inner = EsNode(node_id, SERVER, store, derive_rng(seed, "es", node_id), EsConfig())
            routing = Dsdv(node_id, outbox, derive_rng(seed, "dsdv", node_id), config)
            relay = RoutedNode(inner, routing, outbox, inner_start_us=READY_US, size_of=size_of)
            self.relays[node_id] = relay
            self.world.add(relay, store, self.told[node_id].append)

    def _journal(self, at_us: int, node_id: NodeId, entry: Input | Action) -> None:
        if isinstance(entry, Send | Broadcast):
            self.lines.append(f"{at_us} {node_id.hex()} {entry}")

    def ask(self, number: int, request: AppRequest, run_s: int = 10) -> list[AppEvent]:
        """Sends a request, lets time pass, and returns the events of the application meanwhile."""
        told = self.told[name(number)]
        already = len(told)
        self.world.send_request(name(number), request)
        self.world.run(self.world.now_us + run_s * SECOND_US)
        for relay in self.relays.values():
            relay.check()
        return told[already:]


def insert(ask: int, oid: str, *tags: str) -> Insert:
    return Insert(request_id=ask, data=b"pixels", tags=as_tags(tags), oid=ObjectId(oid))


def subscribe(ask: int, query: str) -> Subscribe:
    conjunctions = Query(query).conjunctions
    return Subscribe(request_id=ask, conjunctions=conjunctions, frame=TimeFrame(), batch=20)


def search(ask: int, query: str) -> Search:
    conjunctions = Query(query).conjunctions
    return Search(request_id=ask, conjunctions=conjunctions, frame=TimeFrame(), count=5)


def row(count: int, apart_m: float) -> dict[NodeId, Place]:
    return {name(number): (apart_m * number, 0.0) for number in range(count)}


@pytest.mark.parametrize("radio", [True, False], ids=["radio", "network"])
def test_e3_es_works_over_dsdv_though_it_knows_nothing_of_it(radio: bool) -> None:
    """Five nodes in a row, 90 m apart: on the radio the last one is four hops from the server."""
    world = Gathering(row(5, 90.0), radio=radio)
    world.world.run(READY_US)

    [begun, caught_up] = world.ask(3, subscribe(1, "goal"))
    [inserted] = world.ask(4, insert(1, "photo-1", "goal", "eder"))
    [notified] = world.told[name(3)][2:]
    [found] = world.ask(2, search(1, "eder"))

    assert isinstance(begun, Finished)
    assert isinstance(begun.value, SubscriptionStarted)
    assert isinstance(caught_up, CaughtUp)
    assert isinstance(inserted, Finished)
    assert isinstance(notified, NotificationEvent)
    assert isinstance(found, Finished)
    assert isinstance(found.value, SearchResult)
    [note] = found.value.notifications
    assert note.metadata.key.owner == name(4)
    [got] = world.ask(1, Retrieve(request_id=1, metadata=note.metadata))
    assert isinstance(got, Finished)
    server = world.relays[SERVER].traffic
    assert server.delivered == 4
    assert server.hops == (3 + 4 + 2 + 1 if radio else 4)
    assert world.relays[name(1)].traffic.forwarded == (7 if radio else 0)
    assert bool(world.relays[name(1)].traffic.forwarded_bytes) == radio


def test_r1_a_request_made_before_there_are_routes_is_served_later() -> None:
    world = Gathering(row(4, 90.0))

    assert world.ask(3, insert(1, "photo-1", "goal"), run_s=1) == []
    world.world.run(READY_US + SECOND_US)

    [inserted] = world.told[name(3)]
    assert isinstance(inserted, Finished)


def test_r1_when_a_node_on_the_way_goes_the_others_find_a_way_around_it() -> None:
    """Two nodes are between the client and the server; the one in use is switched off."""
    world = Gathering(
        {SERVER: (0.0, 0.0), name(1): (85.0, 20.0), name(2): (85.0, -20.0), name(3): (170.0, 0.0)}
    )
    world.world.run(READY_US)
    assert isinstance(world.ask(3, insert(1, "photo-1", "goal"))[0], Finished)

    used = {n: relay.traffic.forwarded for n, relay in world.relays.items()}
    gone = max(used, key=lambda node_id: used[node_id])
    [left] = {name(1), name(2)} - {gone}
    world.world.remove(gone)
    del world.relays[gone]
    world.world.run(world.world.now_us + 75 * SECOND_US)
    [second] = world.ask(3, insert(2, "photo-2", "goal"), run_s=60)

    assert isinstance(second, Finished)
    assert world.relays[left].traffic.forwarded > used[left]
    routing = world.relays[SERVER].routing
    assert isinstance(routing, Dsdv)
    assert gone not in routing.routes


def test_e4_a_server_out_of_reach_ends_in_a_timeout() -> None:
    world = Gathering({**row(2, 5_000.0), name(2): (5_050.0, 0.0)})
    world.world.run(READY_US)

    [told] = world.ask(1, insert(1, "photo-1", "goal"), run_s=300)

    assert isinstance(told, Failed)
    assert told.code == "timeout"
    assert world.relays[name(1)].traffic.dropped["waited too long"] > 0


def lines_of(seed: int) -> list[str]:
    world = Gathering(row(4, 90.0), seed=seed)
    world.world.run(READY_US)
    world.ask(3, insert(1, "photo-1", "goal"))
    return world.lines


def test_the_same_seed_gives_the_same_messages() -> None:
    assert lines_of(5) == lines_of(5)
    assert lines_of(5) != lines_of(6)


def test_r2_updates_and_packets_are_messages_on_the_radio() -> None:
    world = Gathering(row(4, 90.0))
    world.world.run(READY_US)
    world.ask(3, insert(1, "photo-1", "goal"))

    for kind in (RouteUpdate, Packet):
        assert any(f"{kind.__name__}(" in line for line in world.lines)
    control = sum(relay.traffic.control for relay in world.relays.values())
    assert control == sum("RouteUpdate(" in line for line in world.lines)


@pytest.mark.parametrize("nodes", [16, 36])
def test_r3_control_traffic_is_that_of_ns3(nodes: int) -> None:
    """Frames and bytes per node and second in the first two minutes, within 20 %."""
    [expected] = [figures for figures in reference.dsdv_figures().idle if figures.nodes == nodes]
    names = [NodeId(bytes([10, 1, 0, number])) for number in range(nodes)]
    places = dict(zip(names, reference.dsdv_positions(nodes), strict=True))
    world = Gathering(places)
    world.world.run(120 * SECOND_US)

    frames = sum(relay.traffic.control for relay in world.relays.values())
    octets = 64 * frames + sum(relay.traffic.control_bytes for relay in world.relays.values())
    assert frames / nodes / 120 == pytest.approx(expected.frames, rel=0.20)
    assert octets / nodes / 120 == pytest.approx(expected.bytes, rel=0.20)
