"""The short cut of contacts without a MAC leads to the same conclusions as the full radio (U9).

The same nodes, paths, subscriptions and publications run on both media, in a small square.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from thyme.model.ids import ObjectId
from thyme.model.rng import derive_rng
from thyme.protocol.app_interface import AppEvent, Insert, NotificationEvent, Subscribe
from thyme.sim.encounters.run import Deliveries, EventCounts, node_id_of, run_encounters
from thyme.sim.encounters.scenario import (
    EncounterKind,
    EncounterProtocol,
    EncounterScenario,
    make_trace,
    mobility_of,
    protocol_config,
    topics_of_trace,
)
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.sim.radio.radio import RadioConfig
from thyme.sim.radio.unit_disk import UnitDisk
from thyme.storage.store import MemoryStore
from thyme.substrates.encounters.config import EncounterConfig
from thyme.substrates.encounters.node import EncounterNode
from thyme.traces.operations import InsertOperation, SubscribeOperation

SCENARIO = EncounterScenario(
    protocol=EncounterProtocol.MOBUSER,
    kind=EncounterKind.WAYPOINT,
    nodes=12,
    side_m=50.0,
    duration_us=3_600 * 1_000_000,
    publishers_share=1.0,
    memory_events=4,
)


def run_on_radio(scenario: EncounterScenario) -> EventCounts:
    """Runs a scenario on IEEE 802.11 with its range of 10 m."""
    trace = make_trace(scenario)
    deliveries = Deliveries(trace)
    paths = {
        node_id_of(number): list(
            mobility_of(scenario, number).path(
                derive_rng(scenario.seed, "mobility", number), scenario.duration_us
            )
        )
        for number in range(scenario.nodes)
    }
    disk = UnitDisk(range_m=scenario.range_m, interference_m=2 * scenario.range_m)
    network = WirelessNetwork(
        {node_id: path[0].start for node_id, path in paths.items()},
        seed=scenario.seed,
        config=RadioConfig(unit_disk=disk),
        paths=paths,
    )
    for number in range(scenario.nodes):
        _add_node(network, scenario, number, deliveries)
    for number, operation in enumerate(trace.operations, 1):
        request: Subscribe | Insert
        match operation:
            case SubscribeOperation():
                request = Subscribe(
                    request_id=number,
                    conjunctions=operation.conjunctions,
                    frame=operation.frame,
                    batch=0,
                )
            case InsertOperation():
                data = derive_rng(scenario.seed, "content", operation.oid).randbytes(operation.size)
                request = Insert(
                    request_id=number,
                    data=data,
                    tags=operation.tags,
                    oid=ObjectId(operation.oid),
                )
            case _:
                raise AssertionError(operation)
        network.kernel.schedule(
            operation.at_us,
            lambda item: network.send_request(*item),
            (node_id_of(operation.user), request),
        )
    network.kernel.run(scenario.duration_us)
    return deliveries.count()


def _add_node(
    network: WirelessNetwork, scenario: EncounterScenario, number: int, deliveries: Deliveries
) -> None:
    topics = topics_of_trace(make_trace(scenario))
    config = EncounterConfig(protocol=protocol_config(scenario, topics))
    store = MemoryStore()
    rng = derive_rng(scenario.seed, scenario.protocol, number)
    node = EncounterNode(node_id_of(number), store, rng, config)

    def on_event(event: AppEvent) -> None:
        if isinstance(event, NotificationEvent):
            deliveries.record(event.notification.key.oid, number, network.kernel.now_us)

    network.add(node, store, on_event)


def test_u9_the_short_cut_and_the_full_radio_agree() -> None:
    found: dict[str, tuple[float, float]] = {}
    for protocol in EncounterProtocol:
        scenario = replace(SCENARIO, protocol=protocol)
        short_cut = run_encounters(scenario).events.reliability
        on_radio = run_on_radio(scenario).reliability
        assert short_cut is not None
        assert on_radio is not None
        found[protocol] = short_cut, on_radio

    for short_cut, on_radio in found.values():
        assert on_radio == pytest.approx(short_cut, abs=0.2), found
    for medium in (0, 1):
        rivals = max(found["mfps"][medium], found["rapid"][medium])
        assert found["mobuser"][medium] > 1.5 * rivals, found
