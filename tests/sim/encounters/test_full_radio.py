"""The short cut of contacts without a MAC leads to the same conclusions as the full radio (U9).

The same nodes, paths, subscriptions and publications run on both media, in a small square.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from thyme.model.ids import ObjectId
from thyme.model.rng import derive_rng
from thyme.model.subscriptions import Conjunction
from thyme.model.time_frames import ALWAYS
from thyme.protocol.app_interface import AppEvent, Insert, NotificationEvent, Subscribe
from thyme.sim.encounters.run import Deliveries, EventCounts, event_name, node_id_of, run_encounters
from thyme.sim.encounters.scenario import (
    EncounterKind,
    EncounterProtocol,
    EncounterScenario,
    make_workload,
    mobility_of,
    protocol_config,
)
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.sim.radio.radio import RadioConfig
from thyme.sim.radio.unit_disk import UnitDisk
from thyme.storage.store import MemoryStore
from thyme.substrates.encounters.config import EncounterConfig
from thyme.substrates.encounters.node import EncounterNode

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
    workload = make_workload(scenario)
    deliveries = Deliveries(workload)
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
        topics = workload.subscriptions[number]
        conjunctions = tuple(Conjunction((topic,)) for topic in topics)
        request = Subscribe(request_id=1, conjunctions=conjunctions, frame=ALWAYS, batch=0)
        network.send_request(node_id_of(number), request)
    for number, publication in enumerate(workload.publications):
        insert = Insert(
            request_id=2 + number,
            data=bytes(scenario.event_bytes - 1) + bytes([number]),
            tags=publication.tags,
            oid=ObjectId(event_name(number)),
        )
        network.kernel.schedule(
            publication.at_us,
            lambda item: network.send_request(*item),
            (node_id_of(publication.node), insert),
        )
    network.kernel.run(scenario.duration_us)
    return deliveries.count()


def _add_node(
    network: WirelessNetwork, scenario: EncounterScenario, number: int, deliveries: Deliveries
) -> None:
    config = EncounterConfig(protocol=protocol_config(scenario, make_workload(scenario).topics))
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
