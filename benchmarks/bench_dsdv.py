"""DSDV: does it agree with ns-3's, what does it cost to hear an update, and what a whole run?

Three questions: (a) control traffic with nothing to carry, by the number of nodes, against ns-3;
(b) 50 unicasts per second among 100 nodes: what arrives, over how many hops, with how many frames;
(c) the time a node takes for an update of three entries that teaches nothing, which is what nine
in ten do. Times are processor time of one core. Clauses: R1–R3.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.rng import derive_rng
from thyme.protocol.app_interface import Lookup
from thyme.protocol.messages.common import Packet, RouteUpdate
from thyme.protocol.messages.replies import ObjectData
from thyme.protocol.node import Action, AppRequested, Input, Received, Send
from thyme.protocol.outbox import Outbox
from thyme.routing import Dsdv, DsdvConfig, RoutedNode
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.sim.validation import reference
from thyme.storage.store import MemoryStore
from thyme.wire.codec import size_of

SECOND_US = 1_000_000
OVERHEAD_BYTES = 64
BYTES_OFF_MOST = 0.20
DELIVERED_OFF_MOST = 0.03
HEAR_US_MOST = 3.0
IDLE_S = 120
LOAD_S = 155


def address(number: int) -> NodeId:
    """Four bytes, as long as the addresses in ns-3."""
    return NodeId(bytes([10, 1, number >> 8, number & 255]))


KEY = Key(ObjectId("o"), address(0))


def payload(number: int) -> ObjectData:
    """A message whose packet is as long as the sends of the reference."""
    size = size_of(Packet(address(1), address(2), 0, ObjectData(number, KEY, bytes(256))))
    return ObjectData(number, KEY, bytes(256 + reference.PAYLOAD_BYTES - size))


@dataclass(slots=True)
class Application:
    """Sends to the owner of the key it is asked about; notes when what number arrived."""

    node_id: NodeId
    arrived_us: dict[int, int] = field(default_factory=dict)

    def handle(self, event: Input, now_us: int) -> list[Action]:
        match event:
            case AppRequested(Lookup() as request):
                return [Send(request.key.owner, payload(request.request_id))]
            case Received(_, ObjectData() as message):
                self.arrived_us[message.request_id] = now_us
        return []

    def check(self) -> None:
        pass


class Field:
    """Nodes of the reference with DSDV, on the radio."""

    def __init__(self, nodes: int, *, seed: int, config: DsdvConfig) -> None:
        places = reference.dsdv_positions(nodes)
        names = [address(number) for number in range(nodes)]
        self.world = WirelessNetwork(dict(zip(names, places, strict=True)), seed=seed)
        self.applications = [Application(name) for name in names]
        self.relays: list[RoutedNode] = []
        for application in self.applications:
            outbox = Outbox()
            rng = derive_rng(seed, "dsdv", application.node_id)
            routing = Dsdv(application.node_id, outbox, rng, config)
            self.relays.append(RoutedNode(application, routing, outbox, size_of=size_of))
        for relay in self.relays:
            self.world.add(relay, MemoryStore(), lambda told: None)
        self.cpu_s = 0.0

    def run(self, until_s: int) -> None:
        began = time.process_time()
        self.world.run(until_s * SECOND_US)
        self.cpu_s += time.process_time() - began
        for relay in self.relays:
            relay.check()

    @property
    def control_frames(self) -> int:
        return self.world.radio.frames_by_kind["broadcast"]

    @property
    def control_bytes(self) -> int:
        """Of MPDUs."""
        payloads = sum(relay.traffic.control_bytes for relay in self.relays)
        return payloads + OVERHEAD_BYTES * self.control_frames


def met(ok: bool) -> str:
    return "met" if ok else "NOT met"


# (a) nothing to carry


def idle(sizes: list[int], *, seed: int, config: DsdvConfig) -> dict[str, Any]:
    print(f"\n(a) DSDV with nothing to carry, {IDLE_S} s, per node and second\n")
    print(f"{'nodes':>6}{'frames':>9}{'ns-3':>8}{'off':>8}", end="")
    print(f"{'bytes':>10}{'ns-3':>8}{'off':>8}{'cpu s per s':>13}")
    found: dict[str, Any] = {}
    worst = 0.0
    for expected in reference.dsdv_figures().idle:
        if expected.nodes not in sizes:
            continue
        run = Field(expected.nodes, seed=seed, config=config)
        run.run(IDLE_S)
        frames = run.control_frames / expected.nodes / IDLE_S
        octets = run.control_bytes / expected.nodes / IDLE_S
        frames_off, bytes_off = frames / expected.frames - 1, octets / expected.bytes - 1
        worst = max(worst, abs(bytes_off))
        print(
            f"{expected.nodes:>6}{frames:>9.3f}{expected.frames:>8.3f}{frames_off:>+8.1%}"
            f"{octets:>10.1f}{expected.bytes:>8.1f}{bytes_off:>+8.1%}{run.cpu_s / IDLE_S:>13.3f}"
        )
        found[str(expected.nodes)] = {"frames": round(frames, 4), "bytes": round(octets, 1)}
    print(
        f"target: bytes within {BYTES_OFF_MOST:.0%} at every size: {met(worst <= BYTES_OFF_MOST)}"
    )
    return found


# (b) something to carry


def load(*, seed: int, config: DsdvConfig) -> dict[str, Any]:
    expected = reference.dsdv_figures().load
    print("\n(b) 50 unicasts of 300 bytes per second among 100 nodes\n")
    run = Field(100, seed=seed, config=config)
    sends = reference.dsdv_sends()
    for send in sends:
        request = Lookup(request_id=send.id, key=Key(ObjectId("o"), address(send.to)))
        ask = (address(send.source), request)
        run.world.kernel.schedule(send.at_us, lambda ask: run.world.send_request(*ask), ask)
    run.run(LOAD_S)
    arrived = {
        number: at_us
        for application in run.applications
        for number, at_us in application.arrived_us.items()
    }
    delays_us = sorted(arrived[send.id] - send.at_us for send in sends if send.id in arrived)
    delivered = len(arrived) / len(sends)
    hops = sum(relay.traffic.hops for relay in run.relays) / len(arrived)
    rows = [
        ("delivered", delivered, expected.delivered),
        ("hops", hops, expected.hops_mean),
        ("delay ms, median", delays_us[len(delays_us) // 2] / 1e3, expected.delay_p50_us / 1e3),
        ("delay ms, p95", delays_us[len(delays_us) * 95 // 100] / 1e3, expected.delay_p95_us / 1e3),
        ("data frames", run.world.radio.frames_by_kind["unicast"], expected.data_frames),
        ("retransmissions", run.world.radio.retransmissions, expected.retransmissions),
        ("control frames", run.control_frames, expected.control_frames),
        ("control bytes", run.control_bytes, expected.control_bytes),
    ]
    print(f"{'':<18}{'ours':>16}{'ns-3':>16}{'off':>9}")
    for what, ours, theirs in rows:
        print(f"{what:<18}{ours:>16,.3f}{theirs:>16,.3f}{ours / theirs - 1:>+9.1%}")
    dropped: Counter[str] = Counter()
    for relay in run.relays:
        dropped += relay.traffic.dropped
    print(f"dropped: {dict(dropped)}; processor time {run.cpu_s / LOAD_S:.3f} s per second")
    off = abs(delivered - expected.delivered)
    print(f"target: delivered within 3 points: {met(off <= DELIVERED_OFF_MOST)}")
    return {what: round(ours, 4) for what, ours, _ in rows}


# (c) an update that teaches nothing


def reception(*, seed: int, config: DsdvConfig) -> dict[str, Any]:
    """The update is made from a table that has been in use for a while."""
    run = Field(100, seed=seed, config=config)
    run.run(29)
    relay = run.relays[0]
    routing = relay.routing
    assert isinstance(routing, Dsdv)
    known = [route for route in routing.routes.values() if route.min_useful_sequence > 0]
    sender = next(route.destination for route in known if route.hops == 1)
    others = [route for route in known if route.next_hop != sender][:2]
    entries = tuple((route.destination, route.sequence, route.hops + 1) for route in others)
    event = Received(sender, RouteUpdate(((sender, 2, 1), *entries)))
    rounds, best_s = 20_000, float("inf")
    for _ in range(7):
        began = time.process_time()
        for _ in range(rounds):
            relay.handle(event, 29 * SECOND_US)
        best_s = min(best_s, time.process_time() - began)
    per_update_us = 1e6 * best_s / rounds
    print("\n(c) An update of three entries that teaches nothing\n")
    print(f"{per_update_us:.2f} µs, the relay included")
    print(f"target: at most {HEAR_US_MOST:.0f} µs: {met(per_update_us <= HEAR_US_MOST)}")
    return {"hear_us": round(per_update_us, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = [figures.nodes for figures in reference.dsdv_figures().idle]
    parser.add_argument("--sizes", type=int, nargs="*", default=sizes, help="numbers of nodes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="up to 64 nodes, and no load")
    parser.add_argument("--textbook", action="store_true", help="news is never taken back")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, too")
    args = parser.parse_args()
    config = DsdvConfig(suppress_repeated=not args.textbook)
    print(f"{platform.machine()}, Python {platform.python_version()}, seed {args.seed}")
    wanted = [size for size in args.sizes if size <= 64 or not args.quick]
    found = {"idle": idle(wanted, seed=args.seed, config=config)}
    if not args.quick:
        found["load"] = load(seed=args.seed, config=config)
    found["reception"] = reception(seed=args.seed, config=config)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
