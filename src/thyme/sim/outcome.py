"""Summary: computes the metrics of a run from its logs and measurements.

Entry point: `summarise_run`. A summary has success and latency of operations, recall and errors of
notifications compared with the oracle, traffic, load, storage, energy, the cells of Thyme-DCS, and
a comparison with the analytical model. `thyme sim run --json` prints this record;
`thyme.sim.results.tables` writes it to a file.
Clauses: S14, S15, S18, M16, M23.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from thyme.protocol.labels import UPKEEP
from thyme.sim.analytical import Approach, Messages, Scene, messages, scene_of, workload_of
from thyme.sim.census import CellFigures, Storage, cells_of, storage_of
from thyme.sim.measure import CONTROL, PARTS, Load, innermost
from thyme.sim.phy import OVERHEAD_BYTES
from thyme.sim.run import Run
from thyme.sim.scenario import Scenario, Substrate, grid_over
from thyme.sim.users import Attempt, Heard
from thyme.traces.operations import Delete, Insert, Subscribe, Unsubscribe
from thyme.traces.trace import Trace

OPERATIONS = ("insert", "delete", "subscribe", "unsubscribe", "retrieve")
NETWORK_BYTES = 28
"""Bytes that the UDP and IPv4 headers add to a message."""
MS = 1_000
"""Microseconds in a millisecond."""


class Latency(msgspec.Struct, frozen=True):
    """Distribution of durations in milliseconds; None without durations."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    max: float | None = None


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """Success and latency of the operations of one kind."""

    issued: int
    ok: int
    success: float | None
    """Share of the issued operations that succeeded."""
    latency_ms: Latency
    """Latency of the operations that succeeded."""
    failures: dict[str, int]
    """Operations that failed, by error code."""


class Notifications(msgspec.Struct, frozen=True, kw_only=True):
    """The notifications that users received, compared with a perfect execution."""

    expected: int
    delivered: int
    """Expected notifications that users received."""
    recall: float | None
    spurious: int
    """Invalid notifications: the object does not match, is outside the time frame, or was deleted
    or expired before the subscription; or the subscription was revoked before."""
    duplicates: int
    unexpected: int
    """Valid notifications that a perfect execution, with instant operations, does not give."""
    latency_ms: Latency
    """Latency since the instant at which a perfect execution notifies; if the subscriber's device
    is down at that instant, since its next start."""


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of the radio traffic of a run."""

    phy_bytes: int
    phy_frames: int
    mac_retransmissions: int
    mac_exceeded: int
    forwarded_bytes: int
    """Bytes of forwarded messages, with network headers."""
    control_bytes: int
    """Bytes of routing control messages, with all headers."""
    dropped: dict[str, int]
    by_type: dict[str, Load]


class Share(msgspec.Struct, frozen=True):
    """Messages sent and received per node: the maximum and the Gini coefficient."""

    max: float
    gini: float


class Joules(msgspec.Struct, frozen=True):
    """Energy that user devices spent, in joules."""

    mean: float
    max: float


class Analytical(msgspec.Struct, frozen=True, kw_only=True):
    """Messages by the analytical model and in the simulation, each hop counted."""

    formula: Messages
    simulated: dict[str, int]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """All metrics of one run."""

    scenario: dict[str, object]
    ops: dict[str, Operations]
    notifications: Notifications
    traffic: Traffic
    load: Share
    storage: Storage
    cells: CellFigures | None
    """Thyme-DCS only; None for other substrates."""
    energy_j: Joules
    analytical: Analytical
    wall_s: float
    events: int


def outcome_of(run: Run) -> Outcome:
    """Computes the metrics of a run."""
    measures = run.measurements
    return Outcome(
        scenario=msgspec.to_builtins(run.scenario) | {"operations": run.trace.counts()},
        ops=operations_of(run.attempts, run.trace),
        notifications=notifications_of(run),
        traffic=Traffic(
            phy_bytes=measures.frame_bytes,
            phy_frames=measures.frames,
            mac_retransmissions=measures.retransmissions,
            mac_exceeded=measures.dropped.get("exceeded", 0),
            forwarded_bytes=measures.total.forwarded_bytes
            + NETWORK_BYTES * measures.total.forwarded,
            control_bytes=measures.control.sent_bytes + OVERHEAD_BYTES * measures.control.sent,
            dropped=measures.dropped,
            by_type=measures.loads,
        ),
        load=Share(measures.hot_spot.max, measures.hot_spot.gini),
        storage=storage_of(run.census),
        cells=_cells(run),
        energy_j=_joules(run),
        analytical=_analytical(run),
        wall_s=run.wall_s,
        events=run.events,
    )


def _cells(run: Run) -> CellFigures | None:
    if run.scenario.substrate is not Substrate.DCS:
        return None
    loads = [
        float(
            sum(load.sent + load.heard for kind, load in node.loads.items() if kind not in CONTROL)
        )
        for node in run.measurements.nodes
    ]
    return cells_of(run.census, loads, grid_over(run.scenario.area), run.trace)


def _joules(run: Run) -> Joules:
    """Summarises the energy of user devices only; the ES server is mains-powered."""
    spent = [node.energy.joules for node in run.measurements.nodes[: run.scenario.nodes]]
    return Joules(sum(spent) / len(spent), max(spent))


# Operations


def operations_of(attempts: Sequence[Attempt], trace: Trace) -> dict[str, Operations]:
    """Computes success and latency by kind of operation.

    A retrieve that finds no object has succeeded if the object was deleted or expired before.
    """
    gone_us = _gone_us(attempts, trace)
    kinds: dict[str, list[Attempt]] = {kind: [] for kind in OPERATIONS}
    for attempt in attempts:
        kinds[attempt.kind].append(attempt)
    return {kind: _operations(tried, gone_us) for kind, tried in kinds.items()}


def _gone_us(attempts: Sequence[Attempt], trace: Trace) -> dict[str, int]:
    """Returns the instant from which on each deleted or expiring object may be gone."""
    lives_us = {op.oid: op.life_us for op in trace.operations if isinstance(op, Insert)}
    gone_us: dict[str, int] = {}
    for attempt in attempts:
        life_us = lives_us.get(attempt.name)
        if attempt.kind == "insert" and life_us is not None:
            gone_us[attempt.name] = attempt.issued_us + life_us
        elif attempt.kind == "delete":  # traces do not delete expired objects
            gone_us[attempt.name] = attempt.issued_us
    return gone_us


def _operations(tried: list[Attempt], gone_us: Mapping[str, int]) -> Operations:
    good = [attempt for attempt in tried if _succeeded(attempt, gone_us)]
    failures = Counter(each.code for each in tried if not _succeeded(each, gone_us))
    return Operations(
        issued=len(tried),
        ok=len(good),
        success=len(good) / len(tried) if tried else None,
        latency_ms=latency_of(
            each.ended_us - each.issued_us for each in good if each.ended_us is not None
        ),
        failures=dict(sorted(failures.items())),
    )


def _succeeded(attempt: Attempt, gone_us: Mapping[str, int]) -> bool:
    if attempt.kind == "retrieve" and attempt.code == "not_found":
        since_us, ended_us = gone_us.get(attempt.name), attempt.ended_us
        return since_us is not None and ended_us is not None and since_us <= ended_us
    return attempt.code == "ok"


def latency_of(durations_us: Iterable[int]) -> Latency:
    """Computes the distribution of durations."""
    ordered = sorted(durations_us)
    if not ordered:
        return Latency()
    return Latency(
        mean=sum(ordered) / len(ordered) / MS,
        p50=_quantile(ordered, 0.5) / MS,
        p95=_quantile(ordered, 0.95) / MS,
        max=ordered[-1] / MS,
    )


def _quantile(ordered: Sequence[int], share: float) -> int:
    """Returns the smallest value that at least a share of the values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


# Notifications


def notifications_of(run: Run) -> Notifications:
    """Compares the received notifications with the expected ones."""
    due_us = _due_us(run)
    judge = Judge(run)
    told: set[tuple[int, str, str]] = set()
    told_us: dict[tuple[int, str, str], int] = {}
    spurious = duplicates = 0
    for heard in run.heard:
        key = heard.user, heard.sid, heard.oid
        if key in told:
            duplicates += 1
        elif judge.right(heard):
            told_us[key] = heard.told_us
        else:
            spurious += 1
        told.add(key)
    delivered = [key for key in due_us if key in told_us]
    return Notifications(
        expected=len(due_us),
        delivered=len(delivered),
        recall=len(delivered) / len(due_us) if due_us else None,
        spurious=spurious,
        duplicates=duplicates,
        unexpected=len(told_us) - len(delivered),
        latency_ms=latency_of(max(0, told_us[key] - due_us[key]) for key in delivered),
    )


def _due_us(run: Run) -> dict[tuple[int, str, str], int]:
    """Returns when each expected notification is due.

    A notification is due when a perfect execution gives it; if the subscriber's device is down at
    that instant, at its next start; if the device never starts again, not at all.
    """
    origin_us = run.scenario.timeline.origin_us
    due_us: dict[tuple[int, str, str], int] = {}
    for note in run.expected:
        at_us: int | None = origin_us + note.at_us
        for since_us, until_us in run.downtimes.get(note.user, []):
            if at_us is not None and since_us <= at_us and (until_us is None or at_us < until_us):
                at_us = until_us
        if at_us is not None and at_us < run.scenario.timeline.end_us:
            due_us[note.user, note.sid, note.oid] = at_us
    return due_us


class Judge:
    """Checks whether received notifications are valid (M23)."""

    def __init__(self, run: Run) -> None:
        self._origin_us = run.scenario.timeline.origin_us
        operations = run.trace.operations
        self._inserts = {op.oid: op for op in operations if isinstance(op, Insert)}
        self._subscribes = {op.sid: op for op in operations if isinstance(op, Subscribe)}
        done_us = {
            (each.kind, each.name): each.ended_us
            for each in run.attempts
            if each.code == "ok" and each.ended_us is not None
        }
        self._deleted_us = {
            op.oid: done_us.get(("delete", op.oid)) for op in operations if isinstance(op, Delete)
        }
        self._revoked_us = {
            op.sid: done_us.get(("unsubscribe", op.sid))
            for op in operations
            if isinstance(op, Unsubscribe)
        }

    def right(self, heard: Heard) -> bool:
        """Whether a notification is valid.

        The object matches, lies in the time frame, and was neither deleted nor expired before the
        subscription; and the subscription was not revoked before the notification.
        """
        insert, subscribe = self._inserts.get(heard.oid), self._subscribes.get(heard.sid)
        if insert is None or subscribe is None or subscribe.user != heard.user:
            return False
        if not any(conjunction.matches(insert.tags) for conjunction in subscribe.conjunctions):
            return False
        if not subscribe.frame_from(self._origin_us).contains(heard.published_us):
            return False
        asked_us = self._origin_us + subscribe.at_us
        if insert.life_us is not None and heard.published_us + insert.life_us <= asked_us:
            return False
        deleted_us = self._deleted_us.get(heard.oid)
        if deleted_us is not None and deleted_us < asked_us:
            return False
        revoked_us = self._revoked_us.get(heard.sid)
        return revoked_us is None or heard.told_us <= revoked_us


# The analytical model


def _scene(scenario: Scenario) -> Scene:
    """Returns the network size that the formulas need; only DCS needs cells."""
    if scenario.substrate is not Substrate.DCS:
        return Scene(nodes=scenario.nodes)
    grid = grid_over(scenario.area)
    return scene_of(scenario.nodes, grid.columns * grid.rows)


def _analytical(run: Run) -> Analytical:
    work = workload_of(run.trace, run.expected, run.scenario.reaction.probability)
    scene = _scene(run.scenario)
    simulated: Counter[str] = Counter()
    for kind, load in run.measurements.loads.items():
        simulated[PARTS.get(innermost(kind), UPKEEP)] += load.sent
    return Analytical(
        formula=messages(Approach(run.scenario.substrate.value), work, scene),
        simulated=dict(sorted(simulated.items())),
    )
