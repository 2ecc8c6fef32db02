"""Encounter run: simulates one encounter scenario and measures what was delivered.

Entry point: `run_encounters`. The nodes are those that run live; only the medium is simulated. The
same scenario gives the same results on every machine, except for the wall time.
Clauses: U8, U9.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import msgspec

from thyme.model.ids import NodeId, ObjectId
from thyme.model.rng import derive_rng
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.model.time_frames import ALWAYS, SECOND_US
from thyme.protocol.app_interface import AppEvent, Insert, NotificationEvent, Subscribe
from thyme.sim.encounters.contact_files import ContactTrace
from thyme.sim.encounters.exchange_times import ExchangeTimes
from thyme.sim.encounters.network import EncounterNetwork
from thyme.sim.encounters.scenario import (
    EncounterProtocol,
    EncounterScenario,
    EncounterWorkload,
    Publication,
    make_contacts,
    make_workload,
    protocol_config,
)
from thyme.sim.progress import RunProgress, run_with_progress
from thyme.sim.run import rare_gc
from thyme.storage.store import MemoryStore
from thyme.substrates.encounters.config import EncounterConfig
from thyme.substrates.encounters.location_topics import topics_of
from thyme.substrates.encounters.node import EncounterNode

POSITIONS_EVERY_US = 60 * SECOND_US
"""How often nodes that need their speed learn their position."""
PROGRESS_EVERY_US = 600 * SECOND_US


class Delay(msgspec.Struct, frozen=True):
    """Delays from publication to delivery, in seconds; None without deliveries."""

    mean: float | None
    p50: float | None
    p95: float | None


class ExchangeDurations(msgspec.Struct, frozen=True):
    """How long exchanges took, from discovery to the arrival of the last events, in seconds."""

    min: float
    mean: float
    max: float


class EventCounts(msgspec.Struct, frozen=True):
    """What became of the published events (U8)."""

    published: int
    due: int
    """Pairs of an event and another node that subscribes to it."""
    delivered: int
    reliability: float | None
    """Share of the due pairs that were delivered; None if nothing was due."""
    delay_s: Delay


class TrafficCounts(msgspec.Struct, frozen=True):
    """What was sent (U8)."""

    bytes: int
    exchanges: int
    """Receptions of events or of a profile with events, from one neighbour each."""
    messages: int
    broken: int
    """Messages whose contact ended before they arrived."""
    bytes_by_type: dict[str, int]
    exchange_s: ExchangeDurations | None
    """Durations of the exchanges of MobUser; None for other protocols and without any (C44)."""


class EncounterSummary(msgspec.Struct, frozen=True):
    """The measurements of one run."""

    protocol: str
    scenario: str
    nodes: int
    hours: float
    seed: int
    events: EventCounts
    traffic: TrafficCounts
    contacts: int
    dropped: dict[str, int]
    """What nodes refused, by reason; rows that the contact file's reader left out, too."""
    timeline: list[tuple[float, float]]
    """Reliability over time: seconds since the start, and the share delivered by then."""
    wall_s: float


TIMELINE_POINTS = 48


class Deliveries:
    """The deliveries of a run: each pair of an event and a subscriber once."""

    def __init__(self, workload: EncounterWorkload) -> None:
        self._published_us: dict[str, int] = {}
        self._due: set[tuple[str, int]] = set()
        self._delivered_us: dict[tuple[str, int], int] = {}
        for number, publication in enumerate(workload.publications):
            name = event_name(number)
            topics = topics_of(tuple(sorted(publication.tags)))
            self._published_us[name] = publication.at_us
            for node, wanted in enumerate(workload.subscriptions):
                if node != publication.node and not topics.isdisjoint(wanted):
                    self._due.add((name, node))

    def record(self, name: str, node: int, at_us: int) -> None:
        """Records a notification; those of a node's own events are not counted."""
        pair = name, node
        if pair in self._due and pair not in self._delivered_us:
            self._delivered_us[pair] = at_us

    def count(self) -> EventCounts:
        """Counts and delays of all deliveries."""
        delays = sorted(
            (at_us - self._published_us[name]) / SECOND_US
            for (name, _), at_us in self._delivered_us.items()
        )
        delivered, due = len(delays), len(self._due)
        delay = Delay(
            sum(delays) / delivered if delays else None,
            delays[delivered // 2] if delays else None,
            delays[min(delivered - 1, int(delivered * 0.95))] if delays else None,
        )
        reliability = delivered / due if due else None
        return EventCounts(len(self._published_us), due, delivered, reliability, delay)

    def timeline(self, duration_us: int) -> list[tuple[float, float]]:
        """The share delivered by each of a number of instants."""
        instants = sorted(self._delivered_us.values())
        points: list[tuple[float, float]] = []
        done = 0
        for step in range(1, TIMELINE_POINTS + 1):
            at_us = duration_us * step // TIMELINE_POINTS
            while done < len(instants) and instants[done] <= at_us:
                done += 1
            points.append((at_us / SECOND_US, done / len(self._due) if self._due else 0.0))
        return points


def event_name(number: int) -> str:
    """The object identifier of the event with a number."""
    return f"event{number}"


def node_id_of(number: int) -> NodeId:
    """The identifier of the node with a number."""
    return NodeId(number.to_bytes(4, "big"))


class _Run:
    """The nodes, the network and the users of one run."""

    def __init__(
        self, scenario: EncounterScenario, trace: ContactTrace | None, times: ExchangeTimes | None
    ) -> None:
        self.scenario = scenario
        self.workload = make_workload(scenario)
        self.network = EncounterNetwork(make_contacts(scenario, trace), times)
        self.deliveries = Deliveries(self.workload)
        self.nodes = [self._make_node(number) for number in range(scenario.nodes)]
        self._schedule_users()

    def _make_node(self, number: int) -> EncounterNode:
        scenario = self.scenario
        config = EncounterConfig(protocol=protocol_config(scenario, self.workload.topics))
        store = MemoryStore()
        rng = derive_rng(scenario.seed, scenario.protocol, number)
        node = EncounterNode(node_id_of(number), store, rng, config)
        self.network.add(node, store, self._listener(number))
        return node

    def _listener(self, number: int) -> Callable[[AppEvent], None]:
        def on_event(event: AppEvent) -> None:
            if isinstance(event, NotificationEvent):
                name = event.notification.key.oid
                self.deliveries.record(name, number, self.network.kernel.now_us)

        return on_event

    def _schedule_users(self) -> None:
        for node, topics in enumerate(self.workload.subscriptions):
            if topics:
                self.network.send_request(node, _subscribe(topics))
        for number, publication in enumerate(self.workload.publications):
            self.network.kernel.schedule(publication.at_us, self._publish, (number, publication))
        if self.scenario.protocol is EncounterProtocol.MFPS:
            self._update_positions(None)

    def _publish(self, argument: tuple[int, Publication]) -> None:
        number, publication = argument
        self.network.update_positions([publication.node])
        data = derive_rng(self.scenario.seed, "content", number).randbytes(
            self.scenario.event_bytes
        )
        self.network.send_request(
            publication.node,
            Insert(
                request_id=2 + number,
                data=data,
                tags=publication.tags,
                oid=ObjectId(event_name(number)),
            ),
        )

    def _update_positions(self, _: None) -> None:
        self.network.update_positions()
        kernel = self.network.kernel
        kernel.schedule(kernel.now_us + POSITIONS_EVERY_US, self._update_positions)


def _subscribe(topics: tuple[Tag, ...]) -> Subscribe:
    conjunctions = tuple(Conjunction((topic,)) for topic in topics)
    return Subscribe(request_id=1, conjunctions=conjunctions, frame=ALWAYS, batch=0)


def run_encounters(
    scenario: EncounterScenario,
    trace: ContactTrace | None = None,
    *,
    times: ExchangeTimes | None = None,
    on_progress: Callable[[RunProgress], None] | None = None,
) -> EncounterSummary:
    """Simulates a scenario; one of the kind `contacts` needs a trace."""
    started_s = time.perf_counter()
    with rare_gc():
        run = _Run(scenario, trace, times)
        network = run.network
        for progress in run_with_progress(
            network.kernel, scenario.duration_us, every_us=PROGRESS_EVERY_US
        ):
            if on_progress is not None:
                on_progress(progress)
        network.run(scenario.duration_us)
    dropped: Counter[str] = Counter() if trace is None else Counter(trace.skipped)
    for node in run.nodes:
        dropped.update(node.dropped)
    traffic = network.traffic
    return EncounterSummary(
        protocol=scenario.protocol,
        scenario=scenario.kind,
        nodes=scenario.nodes,
        hours=scenario.duration_us / (3_600 * SECOND_US),
        seed=scenario.seed,
        events=run.deliveries.count(),
        traffic=TrafficCounts(
            traffic.bytes,
            sum(node.dissemination.exchanges for node in run.nodes),
            traffic.messages,
            traffic.broken,
            dict(sorted(traffic.bytes_by_type.items())),
            _exchange_durations(scenario, traffic.exchanges_us),
        ),
        contacts=network.contacts_begun,
        dropped=dict(sorted(dropped.items())),
        timeline=run.deliveries.timeline(scenario.duration_us),
        wall_s=time.perf_counter() - started_s,
    )


def _exchange_durations(
    scenario: EncounterScenario, durations_us: list[int]
) -> ExchangeDurations | None:
    if scenario.protocol is not EncounterProtocol.MOBUSER or not durations_us:
        return None
    mean_us = sum(durations_us) / len(durations_us)
    return ExchangeDurations(
        min(durations_us) / SECOND_US, mean_us / SECOND_US, max(durations_us) / SECOND_US
    )
