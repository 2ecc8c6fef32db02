"""Encounter run: simulates one encounter scenario and measures what was delivered.

Entry point: `run_encounters`. The nodes are those that run live; only the medium is simulated. The
same scenario gives the same results on every machine, except for the wall time.
Clauses: U8, U9.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import assert_never

import msgspec

from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.rng import derive_rng
from thyme.model.tags import Tag
from thyme.model.time_frames import INSTANT_MAX_US, SECOND_US
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    Delete,
    Failed,
    Finished,
    Insert,
    NotificationEvent,
    Subscribe,
    SubscriptionStarted,
    Unsubscribe,
)
from thyme.sim.encounters.contact_files import ContactTrace
from thyme.sim.encounters.exchange_times import ExchangeTimes
from thyme.sim.encounters.network import EncounterNetwork, EncounterTraffic
from thyme.sim.encounters.scenario import (
    EncounterProtocol,
    EncounterScenario,
    EncounterScenarioError,
    make_contacts,
    make_trace,
    protocol_config,
    topics_of_trace,
)
from thyme.sim.progress import RunProgress, run_with_progress
from thyme.sim.run import rare_gc
from thyme.storage.store import MemoryStore
from thyme.substrates.encounters.battery import BYTE_J, DISCOVERY_J, HOUR_US
from thyme.substrates.encounters.config import EncounterConfig
from thyme.substrates.encounters.location_topics import topics_of
from thyme.substrates.encounters.node import EncounterNode
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    Operation,
    SubscribeOperation,
    UnsubscribeOperation,
)
from thyme.traces.trace import Trace

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
    joules_per_node_hour: float
    """Estimated energy for discoveries and bytes, sent and received (`battery`)."""
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
    within: list[tuple[float, float]]
    """Reliability by deadline: seconds since the publication, and the share delivered by then."""
    wall_s: float

    def share_within(self, deadline_s: float) -> float:
        """The share delivered within one of the deadlines of `DEADLINES_S`."""
        return dict(self.within)[deadline_s]


TIMELINE_POINTS = 48
DEADLINES_S = (10.0, 60.0, 600.0, 3_600.0)


class Deliveries:
    """The deliveries of a run: each pair of an event and a subscriber once."""

    def __init__(self, trace: Trace) -> None:
        self._published_us: dict[str, int] = {}
        self._due: set[tuple[str, int]] = set()
        self._delivered_us: dict[tuple[str, int], int] = {}
        by_topic: dict[Tag, list[SubscribeOperation]] = {}
        ended_us: dict[str, int] = {}
        for operation in trace.operations:
            if isinstance(operation, SubscribeOperation):
                for tag in {tag for each in operation.conjunctions for tag in each.positive}:
                    by_topic.setdefault(tag, []).append(operation)
            elif isinstance(operation, UnsubscribeOperation):
                ended_us[operation.sid] = operation.at_us
        for operation in trace.operations:
            if isinstance(operation, InsertOperation):
                self._add_event(operation, by_topic, ended_us)

    def _add_event(
        self,
        insert: InsertOperation,
        by_topic: dict[Tag, list[SubscribeOperation]],
        ended_us: dict[str, int],
    ) -> None:
        """An event is due to every other user with a matching subscription in force."""
        self._published_us[insert.oid] = insert.at_us
        topics = topics_of(tuple(sorted(insert.tags)))
        for topic in topics:
            for subscribe in by_topic.get(topic, ()):
                if (
                    subscribe.user != insert.user
                    and subscribe.frame.contains(insert.at_us)
                    and insert.at_us < ended_us.get(subscribe.sid, INSTANT_MAX_US)
                    and any(each.matches(topics) for each in subscribe.conjunctions)
                ):
                    self._due.add((insert.oid, subscribe.user))

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

    def within(self) -> list[tuple[float, float]]:
        """The share delivered within each deadline after its publication."""
        delays_us = [
            at_us - self._published_us[name] for (name, _), at_us in self._delivered_us.items()
        ]
        due = max(1, len(self._due))
        return [
            (limit_s, sum(delay <= limit_s * SECOND_US for delay in delays_us) / due)
            for limit_s in DEADLINES_S
        ]

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


def node_id_of(number: int) -> NodeId:
    """The identifier of the node with a number."""
    return NodeId(number.to_bytes(4, "big"))


class _Run:
    """The nodes, the network and the users of one run."""

    def __init__(
        self,
        scenario: EncounterScenario,
        recorded: ContactTrace | None,
        trace: Trace | None,
        times: ExchangeTimes | None,
    ) -> None:
        self.scenario = scenario
        self.trace = make_trace(scenario) if trace is None else trace
        if self.trace.users > scenario.nodes:
            raise EncounterScenarioError(
                f"nodes: the trace has {self.trace.users} users, but there are {scenario.nodes} "
                "nodes"
            )
        self.network = EncounterNetwork(make_contacts(scenario, recorded), times)
        self.deliveries = Deliveries(self.trace)
        config = EncounterConfig(
            protocol=protocol_config(scenario, topics_of_trace(self.trace)),
            joules_per_hour=scenario.joules_per_hour,
        )
        self.nodes = [self._make_node(number, config) for number in range(scenario.nodes)]
        self.refused: Counter[str] = Counter()
        self._started: dict[str, SubscriptionId] = {}
        """The subscriptions of the trace, by their names in it."""
        self._schedule_users()

    def _make_node(self, number: int, config: EncounterConfig) -> EncounterNode:
        scenario = self.scenario
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
            elif isinstance(event, Finished) and isinstance(event.value, SubscriptionStarted):
                operation = self.trace.operations[event.request_id - 1]
                if isinstance(operation, SubscribeOperation):
                    self._started[operation.sid] = event.value.sid
            elif isinstance(event, Failed):
                self.refused[f"requests refused: {event.code}"] += 1

        return on_event

    def _schedule_users(self) -> None:
        for number, operation in enumerate(self.trace.operations):
            if operation.at_us == 0 and not isinstance(operation, InsertOperation):
                self._issue((number, operation))
            elif operation.at_us < self.scenario.duration_us:
                self.network.kernel.schedule(operation.at_us, self._issue, (number, operation))
        if self.scenario.protocol is EncounterProtocol.MFPS:
            self._update_positions(None)

    def _issue(self, argument: tuple[int, Operation]) -> None:
        """Submits an operation of a user to the user's node."""
        number, operation = argument
        if isinstance(operation, InsertOperation):
            self.network.update_positions([operation.user])
        self.network.send_request(operation.user, self._as_request(1 + number, operation))

    def _as_request(self, request_id: int, operation: Operation) -> AppRequest:
        match operation:
            case InsertOperation():
                return Insert(
                    request_id=request_id,
                    data=self._content(operation),
                    tags=operation.tags,
                    oid=ObjectId(operation.oid),
                    ttl_us=operation.life_us,
                )
            case SubscribeOperation():
                return Subscribe(
                    request_id=request_id,
                    conjunctions=operation.conjunctions,
                    frame=operation.frame,
                    batch=0,
                )
            case UnsubscribeOperation():
                sid = self._started.get(operation.sid, SubscriptionId(operation.sid))
                return Unsubscribe(request_id=request_id, sid=sid)
            case DeleteOperation():
                key = Key(ObjectId(operation.oid), node_id_of(operation.user))
                return Delete(request_id=request_id, key=key)
            case _:
                assert_never(operation)

    def _content(self, insert: InsertOperation) -> bytes:
        if insert.text:
            return insert.text.encode()
        return derive_rng(self.scenario.seed, "content", insert.oid).randbytes(insert.size)

    def _update_positions(self, _: None) -> None:
        self.network.update_positions()
        kernel = self.network.kernel
        kernel.schedule(kernel.now_us + POSITIONS_EVERY_US, self._update_positions)


def run_encounters(
    scenario: EncounterScenario,
    recorded: ContactTrace | None = None,
    *,
    trace: Trace | None = None,
    times: ExchangeTimes | None = None,
    on_progress: Callable[[RunProgress], None] | None = None,
) -> EncounterSummary:
    """Simulates a scenario; one of the kind `contacts` needs recorded contacts. The operations of
    the users are those of the scenario, or those of a trace."""
    started_s = time.perf_counter()
    with rare_gc():
        run = _Run(scenario, recorded, trace, times)
        network = run.network
        for progress in run_with_progress(
            network.kernel, scenario.duration_us, every_us=PROGRESS_EVERY_US
        ):
            if on_progress is not None:
                on_progress(progress)
        network.run(scenario.duration_us)
    dropped: Counter[str] = Counter() if recorded is None else Counter(recorded.skipped)
    dropped.update(run.refused)
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
            _joules_per_node_hour(scenario, traffic),
            _exchange_durations(scenario, traffic.exchanges_us),
        ),
        contacts=network.contacts_begun,
        dropped=dict(sorted(dropped.items())),
        timeline=run.deliveries.timeline(scenario.duration_us),
        within=run.deliveries.within(),
        wall_s=time.perf_counter() - started_s,
    )


def _joules_per_node_hour(scenario: EncounterScenario, traffic: EncounterTraffic) -> float:
    spent = traffic.discoveries * DISCOVERY_J + (traffic.bytes + traffic.received_bytes) * BYTE_J
    return spent / scenario.nodes / (scenario.duration_us / HOUR_US)


def _exchange_durations(
    scenario: EncounterScenario, durations_us: list[int]
) -> ExchangeDurations | None:
    if scenario.protocol is not EncounterProtocol.MOBUSER or not durations_us:
        return None
    mean_us = sum(durations_us) / len(durations_us)
    return ExchangeDurations(
        min(durations_us) / SECOND_US, mean_us / SECOND_US, max(durations_us) / SECOND_US
    )
