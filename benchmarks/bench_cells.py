"""Routing by cells: does every message find its cell or the proxy, how long are the ways, what does
a step cost?

Four questions: (a) over random topologies without loss, from sparse to dense, with holes, rings, U
shapes and combs, connected or not: how many messages are handled in the right cell, by everybody
there, and whether all sources agree on the proxy; (b) how long ways are, against the shortest, and
what the loop around empty cells costs, made always or only where needed; (c) the same on the radio,
100 nodes, with and without rerouting; (d) the time of a step and of a beacon. Times are processor
time of one core.
Clauses: D1–D10.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.rng import derive_rng
from thyme.protocol.messages.cell_records import CellId, CellTarget, PerimeterState
from thyme.protocol.messages.cells import CellBeacon
from thyme.protocol.messages.common import CellPacket, Message
from thyme.protocol.messages.requests import FetchStatus
from thyme.protocol.node import (
    Action,
    Broadcast,
    Input,
    Received,
    Send,
    SendFailed,
    Started,
    TimerFired,
)
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import (
    BeaconReceived,
    CellRoutingConfig,
    Delivery,
    DeliveryFailure,
    Destination,
    GeographicRouting,
    Grid,
)
from thyme.routing.cells.interface import BeaconTimer
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.storage.store import MemoryStore
from thyme.wire.codec import encode, size_of

SECOND_US = 1_000_000
RIGHT_LEAST = 0.999
STRETCH_MOST = 1.5
QUESTION = FetchStatus(1, Key(ObjectId("any"), NodeId(b"a")))
Place = tuple[float, float]


class Station:
    """A node that does nothing but route by cells, and counts what it is told."""

    def __init__(self, number: int, grid: Grid, place: Place, seed: int, config: CellRoutingConfig):
        self.node_id = NodeId(number.to_bytes(2, "big"))
        self.outbox = Outbox()
        self.told: dict[tuple[NodeId, int], Delivery] = {}
        self._cell = grid.cell_at(place)
        rng = derive_rng(seed, "cells", number)
        self.routing = GeographicRouting(self.node_id, grid, self.outbox, rng, self, config)

    def start(self, now_us: int) -> None:
        self.routing.start(self._cell, now_us, serving=True)

    def handle(self, event: Input, now_us: int) -> list[Action]:
        match event:
            case Started():
                self.start(now_us)
            case Received():
                self.routing.on_received(event.sender, event.message, now_us)
            case SendFailed():
                self.routing.on_send_failed(event.to, event.message, now_us)
            case TimerFired():
                self.routing.on_timer(event.timer, now_us)
            case _:
                pass
        return self.outbox.drain_actions()

    def check(self) -> None:
        self.routing.check()

    def on_delivery(self, arrival: Delivery, now_us: int) -> None:
        self.told[arrival.origin, arrival.number] = arrival

    def on_delivery_failure(self, failure: DeliveryFailure, now_us: int) -> None:
        pass

    def on_beacon(self, sighting: BeaconReceived, now_us: int) -> None:
        pass

    def is_redundant(self, origin: NodeId, origin_cell: CellId, message: Message) -> bool:
        return False

    def on_payload(self, node: NodeId, cell: CellId, payload: bytes) -> None:
        pass

    def is_new_payload(self, payload: bytes) -> bool:
        return False

    def may_become_new(self, payload: bytes) -> bool:
        return self.is_new_payload(payload)

    def beacon_payload(self, now_us: int) -> bytes:
        return b""


class Plain:
    """A carrier without loss: whoever is within range hears everything."""

    def __init__(
        self, grid: Grid, places: list[Place], seed: int, config: CellRoutingConfig
    ) -> None:
        self.grid = grid
        stations = [Station(n, grid, place, seed, config) for n, place in enumerate(places)]
        self.stations = {station.node_id: station for station in stations}
        self.links = {
            one.node_id: [
                other.node_id
                for other, other_place in zip(stations, places, strict=True)
                if other is not one and math.dist(place, other_place) <= grid.range_m
            ]
            for one, place in zip(stations, places, strict=True)
        }
        self._queue: deque[tuple[NodeId, NodeId, Any]] = deque()
        for station in stations:
            station.start(0)
            station.outbox.drain_actions()
        for now_us in range(4):
            for station in stations:
                station.routing.on_timer(BeaconTimer(), now_us)
                self.run(station)

    def run(self, station: Station) -> None:
        self._post(station)
        while self._queue:
            sender, to, message = self._queue.popleft()
            station = self.stations[to]
            station.routing.on_received(sender, message, 0)
            self._post(station)

    def _post(self, station: Station) -> None:
        sender = station.node_id
        for action in station.outbox.drain_actions():
            if isinstance(action, Send):
                self._queue.append((sender, action.to, action.message))
            elif isinstance(action, Broadcast):
                self._queue.extend((sender, to, action.message) for to in self.links[sender])

    def reached(self, source: NodeId) -> dict[NodeId, int]:
        """Whom a node can reach, and over how many links."""
        found, waiting = {source: 0}, deque([source])
        while waiting:
            at = waiting.popleft()
            for other in self.links[at]:
                if other not in found:
                    found[other] = found[at] + 1
                    waiting.append(other)
        return found


SHAPES: dict[str, Callable[[float, float], bool]] = {
    "open": lambda x, y: True,
    "ring": lambda x, y: max(abs(x - 0.5), abs(y - 0.5)) > 0.33,
    "U": lambda x, y: x < 0.25 or x > 0.75 or y < 0.25,
    "comb": lambda x, y: y < 0.25 or int(8 * x) % 4 == 0,
    "parts": lambda x, y: x < 0.3 or x > 0.7,
}
"""Where nodes may stand on a square of side 1."""


def topology(rng: Random, *, per_cell: float) -> tuple[Grid, list[Place]]:
    """Nodes at random on ground of some shape, and up to three round holes."""
    columns, rows = rng.choice([(10, 5), (8, 8), (6, 6), (12, 4), (12, 12)])
    grid = Grid(columns=columns, rows=rows)
    width_m, height_m = columns * grid.cell_m, rows * grid.cell_m

    allowed = SHAPES[rng.choice(sorted(SHAPES))]

    def somewhere() -> Place:
        while True:
            x, y = rng.random(), rng.random()
            if allowed(x, y):
                return x * width_m, y * height_m

    places = [somewhere() for _ in range(max(2, round(per_cell * len(grid))))]
    for _ in range(rng.randint(0, 3)):
        hole, radius_m = somewhere(), rng.uniform(30, 130)
        places = [place for place in places if math.dist(place, hole) > radius_m] or places
    return grid, places


@dataclass
class Count:
    """What came of many messages."""

    topologies: int = 0
    messages: int = 0
    right: int = 0
    """Handled once, in the right cell, and heard by everybody there."""
    empty: int = 0
    """Connected parts and empty cells, each pair once."""
    agreed: int = 0
    """Those for which all sources found the same proxy."""
    hops: int = 0
    shortest: int = 0
    to_empty: int = 0
    """Messages to empty cells, and their hops."""
    to_empty_hops: int = 0
    wrong: Counter[int] = field(default_factory=Counter)
    """Wrong answers by topology."""


def ask(world: Plain, source: NodeId, cells: list[CellId]) -> dict[CellId, dict[NodeId, Delivery]]:
    """Sends a message to each of these cells; returns who was told."""
    station = world.stations[source]
    numbers = {}
    for cell in cells:
        numbers[cell] = station.routing.send([Destination(cell)], QUESTION, 0)
        world.run(station)
    return {
        cell: {
            node_id: other.told[source, number]
            for node_id, other in world.stations.items()
            if (source, number) in other.told
        }
        for cell, number in numbers.items()
    }


def try_out(world: Plain, count: Count, rng: Random, sources: int) -> None:
    """Sends from some nodes to every cell."""
    grid = world.grid
    cells = [CellId(number) for number in range(len(grid))]
    where = {node_id: station.routing.cell for node_id, station in world.stations.items()}
    proxies: dict[tuple[CellId, CellId], set[CellId | None]] = {}
    count.topologies += 1
    for source in rng.sample(list(world.stations), min(sources, len(world.stations))):
        reached = world.reached(source)
        populated = {where[node_id] for node_id in reached}
        part = min(populated)
        for cell, told in ask(world, source, cells).items():
            right = min(populated, key=lambda one: grid.distance_key(one, cell))
            firsts = [n for n, arrival in told.items() if arrival.is_first]
            members = {n for n in reached if where[n] == right}
            sound = len(firsts) == 1 and where[firsts[0]] == right and set(told) == members
            count.messages += 1
            count.right += sound
            if not sound:
                count.wrong[count.topologies] += 1
            if cell not in populated:
                found = where[firsts[0]] if firsts else None
                proxies.setdefault((part, cell), set()).add(found)
                count.to_empty += 1
                count.to_empty_hops += sum(told[n].hops for n in firsts)
            elif sound and where[source] != cell:
                count.hops += told[firsts[0]].hops
                count.shortest += min(reached[n] for n in members)
    count.empty += len(proxies)
    count.agreed += sum(len(found) == 1 for found in proxies.values())


def delivery(topologies: int, sources: int, seed: int) -> dict[str, Any]:
    print("\n(a, b) Without loss: from some nodes to every cell of random topologies\n")
    print("nodes per cell  loop    messages  right      proxies agree  stretch  hops to empty")
    found, all_right, all_messages, hops, shortest = [], 0, 0, 0, 0
    for per_cell in (0.2, 0.3, 0.5, 1.0, 2.0):
        for loop_always in (True, False):
            config = CellRoutingConfig(always_perimeter=loop_always)
            rng, count = derive_rng(seed, "topologies", round(10 * per_cell)), Count()
            for _ in range(topologies):
                grid, places = topology(rng, per_cell=per_cell)
                try_out(Plain(grid, places, seed, config), count, rng, sources)
            stretch = count.hops / max(1, count.shortest)
            to_empty = count.to_empty_hops / max(1, count.to_empty)
            print(
                f"{per_cell:14.1f}  {'always' if loop_always else 'spared'}  {count.messages:8}"
                f"  {count.right / count.messages:9.4%}  {count.agreed / max(1, count.empty):13.4%}"
                f"  {stretch:7.3f}  {to_empty:13.2f}"
            )
            found.append(
                {
                    "per_cell": per_cell,
                    "loop_always": loop_always,
                    "messages": count.messages,
                    "right": count.right,
                    "agreed": count.agreed,
                    "empty": count.empty,
                    "stretch": round(stretch, 4),
                    "hops_to_empty": round(to_empty, 3),
                    "topologies_wrong": len(count.wrong),
                }
            )
            all_right += count.right
            all_messages += count.messages
            hops += count.hops
            shortest += count.shortest
    right, stretch = all_right / all_messages, hops / shortest
    print(f"\nright: {right:.5%}, target {RIGHT_LEAST:.1%}: {met(right >= RIGHT_LEAST)}")
    print(f"stretch: {stretch:.3f}, target {STRETCH_MOST}: {met(stretch <= STRETCH_MOST)}")
    return {"right": right, "stretch": stretch, "by_density": found}


def on_the_radio(nodes: int, messages: int, seed: int, config: CellRoutingConfig) -> dict[str, Any]:
    """Static nodes, two per cell, a message every 20 ms from anywhere to any cell."""
    side_m = 40.0 * math.sqrt(nodes / 4)
    grid = Grid.covering(2 * side_m, side_m)
    rng = derive_rng(seed, "radio field")
    places = [(rng.uniform(0, 2 * side_m), rng.uniform(0, side_m)) for _ in range(nodes)]
    truth = Plain(grid, places, seed, config)
    named: Mapping[NodeId, Place] = dict(zip(truth.stations, places, strict=True))
    world = WirelessNetwork(named, seed=seed)
    stations = [Station(n, grid, place, seed, config) for n, place in enumerate(places)]
    for station in stations:
        world.add(station, MemoryStore(), lambda told: None)
    world.run(8 * SECOND_US)
    sent = []
    for _ in range(messages):
        station, cell = rng.choice(stations), CellId(rng.randrange(len(grid)))
        number = station.routing.send([Destination(cell)], QUESTION, world.now_us)
        for action in station.outbox.drain_actions():
            if isinstance(action, Send):
                world.send(station.node_id, action.to, action.message)
            elif isinstance(action, Broadcast):
                world.broadcast(station.node_id, action.message)
        sent.append((station.node_id, cell, number))
        world.run(world.now_us + SECOND_US // 50)
    world.run(world.now_us + 2 * SECOND_US)
    right = heard = members = hops = 0
    for source, cell, number in sent:
        populated = {truth.stations[n].routing.cell for n in truth.reached(source)}
        where = min(populated, key=lambda one: grid.distance_key(one, cell))
        there = [s for s in stations if s.routing.cell == where]
        told = {s.node_id: s.told[source, number] for s in there if (source, number) in s.told}
        right += sum(arrival.is_first for arrival in told.values()) == 1
        hops += sum(arrival.hops for arrival in told.values() if arrival.is_first)
        heard += len(told)
        members += len(there)
    traffic = [station.routing.traffic for station in stations]
    seconds = world.now_us / SECOND_US
    beacon_bytes = size_of(CellBeacon(CellId(len(grid) - 1), True, bytes(12), b""))
    return {
        "right": right / messages,
        "heard": heard / members,
        "hops": hops / messages,
        "rerouted": sum(one.rerouted for one in traffic),
        "beacon_bytes": beacon_bytes,
        "beacon_bytes_per_node_s": beacon_bytes
        * sum(one.beacons for one in traffic)
        / (nodes * seconds),
    }


def radio(nodes: int, messages: int, seeds: int, seed: int) -> list[dict[str, Any]]:
    print(f"\n(c) On the radio: {nodes} nodes, {messages} messages, {seeds} seeds\n")
    print("reroute  loop    right     heard     hops  rerouted  beacon bytes per node and second")
    found = []
    for reroute, loop_always in ((True, True), (False, True), (True, False)):
        config = CellRoutingConfig(reroute=reroute, always_perimeter=loop_always)
        runs = [on_the_radio(nodes, messages, seed + more, config) for more in range(seeds)]
        mean = {key: sum(run[key] for run in runs) / seeds for key in runs[0]}
        print(
            f"{'yes' if reroute else 'no':7}  {'always' if loop_always else 'spared'}"
            f"  {mean['right']:8.3%}  {mean['heard']:8.3%}  {mean['hops']:4.2f}"
            f"  {mean['rerouted']:8.1f}  {mean['beacon_bytes_per_node_s']:8.1f}"
        )
        found.append({"reroute": reroute, "loop_always": loop_always, **mean})
    return found


def steps(seed: int) -> dict[str, float]:
    """The time a node in the middle of 100 takes for one thing, again and again."""
    print("\n(d) The time of a step, 100 nodes in 10 by 5 cells\n")
    rng = derive_rng(seed, "steps")
    grid = Grid.covering(400.0, 200.0)
    places = [(rng.uniform(0, 400), rng.uniform(0, 200)) for _ in range(100)]
    world = Plain(grid, places, seed, CellRoutingConfig())
    station = min(world.stations.values(), key=lambda one: abs(one.routing.cell - 24))
    routing, here = station.routing, station.routing.cell
    far = max(map(CellId, range(len(grid))), key=lambda cell: grid.distance2(here, cell))
    sender = routing.neighbours.all()[0]
    around = routing.neighbours.neighbourhood(here)
    edge = grid.cell_at_offset(here, around.edges[0])
    assert edge is not None
    plain = CellTarget(far)
    # A target in the own cell's place that is never closer: the walk goes on.
    perimeter = PerimeterState(here, CellId(0), edge, here)
    beacon = CellBeacon(
        sender.cell, True, routing.neighbours.layout.encode(sender.direct, sender.second), b""
    )
    cases = {
        "greedy step": CellPacket(b"x", here, 1, 3, (plain,), QUESTION),
        "greedy step, five targets": CellPacket(
            b"x",
            here,
            1,
            3,
            tuple(CellTarget(CellId(cell)) for cell in (0, 9, 40, 49, 5)),
            QUESTION,
        ),
        "beacon that teaches nothing": beacon,
    }
    found = {}
    for what, message in cases.items():
        found[what] = timed(lambda message=message: _step(station, sender.node_id, message))
    found["turn around a void"] = timed(
        lambda: routing._selector._next_perimeter_edge(around, CellId(0), perimeter)
    )
    found["own view made anew"] = timed(lambda: _anew(routing))
    for what, step_us in found.items():
        print(f"{what:30} {step_us:7.1f} µs")
    print(f"\nneighbours: {len(routing.neighbours)}, beacon: {len(encode(beacon))} bytes")
    return {what: round(step_us, 2) for what, step_us in found.items()}


def _step(station: Station, sender: NodeId, message: Any) -> None:
    station.routing._forwarded._until_us.clear()  # else it would be known to have come before
    station.routing.on_received(sender, message, 0)
    station.outbox.drain_actions()


def _anew(routing: GeographicRouting) -> None:
    routing.neighbours._neighbourhood = None
    assert routing.neighbours.neighbourhood(routing.cell).edges


def timed(what: Any, rounds: int = 2_000) -> float:
    best_s = float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(rounds):
            what()
        best_s = min(best_s, time.process_time() - began)
    return 1e6 * best_s / rounds


def met(target: bool) -> str:
    return "met" if target else "MISSED"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topologies", type=int, default=100, help="for each density")
    parser.add_argument("--sources", type=int, default=4, help="nodes that send, per topology")
    parser.add_argument("--nodes", type=int, default=100, help="on the radio")
    parser.add_argument("--seeds", type=int, default=3, help="on the radio")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few topologies, and no radio")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, too")
    args = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, seed {args.seed}")
    topologies = 10 if args.quick else args.topologies
    found: dict[str, Any] = {"delivery": delivery(topologies, args.sources, args.seed)}
    if not args.quick:
        found["radio"] = radio(args.nodes, 300, args.seeds, args.seed)
    found["steps"] = steps(args.seed)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
