"""Encounter run: a run of the encounter simulator as part of a sweep.

Entry points: `EncounterRun`, and `simulate`, which gives its row of RUN_PART. The logs of
operations and notifications are left out: a run of 1,000 nodes has 100,000 deliveries; `measures`
has what figures and claims need.
Clauses: P5, U8, U9, S16.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from thyme.pipeline.sweep.run_schemas import RUN_LOGS
from thyme.pipeline.sweep.runs.cost_model import RunCost
from thyme.pipeline.sweep.runs.planned_run import ENDED, RESULT_FORMAT, ResultRow
from thyme.sim.encounters.run import EncounterSummary, run_encounters
from thyme.sim.encounters.scenario import HOUR_US, EncounterProtocol, EncounterScenario
from thyme.sim.scenario import Profile
from thyme.substrates.encounters.memory_config import WhenFull

REPLACING = "-replace"
"""Suffix of a rival whose memory replaces its oldest event."""
NODE_HOURS_PER_S, NEIGHBOURS_PER_DISK = 350.0, 0.16
"""The cost of a run: node-hours per second where devices meet nobody, and the share by which each
neighbour within range slows it down; fitted to single runs of MobUser (docs/mobuser.md)."""
PROTOCOL_FACTORS = {EncounterProtocol.MFPS: 1.3, EncounterProtocol.RAPID: 1.5}
EVENT_MESSAGES = ("EncounterEvents", "ProfileReply")
"""Messages that carry events; the others are control traffic."""


class EncounterRun(msgspec.Struct, frozen=True, kw_only=True, tag="encounters"):
    """A run of the encounter simulator; a `SweepRun`."""

    series: str
    parameter: float
    """The value that varies in the series."""
    scenario: EncounterScenario
    version: str
    """Version of Thyme: another version may give other results."""
    trace_file: str | None = None

    @property
    def shipped_trace(self) -> None:
        """Encounter runs need no file."""
        return

    @property
    def substrate(self) -> str:
        """The protocol, with a suffix for a rival that replaces events."""
        replaces = self.scenario.when_full is WhenFull.REPLACE
        return self.scenario.protocol + (REPLACING if replaces else "")

    @property
    def run_id(self) -> str:
        """The id of the run: equal for equal inputs."""
        inputs = msgspec.json.encode((RESULT_FORMAT, self.version, self))
        digest = blake2b(inputs, digest_size=5).hexdigest()
        seed = self.scenario.seed
        return f"{self.series}-{self.substrate}-{self.parameter:g}-r{seed}-{digest}"

    @property
    def cost(self) -> RunCost:
        """The estimated cost: nodes, time, and the number of neighbours that a node has."""
        it = self.scenario
        neighbours = it.nodes * 3.14 * it.range_m**2 / it.side_m**2
        node_hours = it.nodes * it.duration_us / HOUR_US
        factor = PROTOCOL_FACTORS.get(it.protocol, 1.0) * (1 + NEIGHBOURS_PER_DISK * neighbours)
        return RunCost(self.substrate, node_hours * factor / NODE_HOURS_PER_S)


def simulate(run: EncounterRun) -> ResultRow:
    """Simulates a run and returns its result, a row of RUN_PART."""
    started_s = time.process_time()
    summary = run_encounters(run.scenario)
    cpu_s = time.process_time() - started_s
    traffic = summary.traffic
    with_events = sum(traffic.bytes_by_type.get(name, 0) for name in EVENT_MESSAGES)
    logs: ResultRow = {name: [] for name in RUN_LOGS}
    return {
        "state": ENDED,
        "run_id": run.run_id,
        **logs,
        "series": run.series,
        "substrate": run.substrate,
        "profile": Profile.PAPER.value,
        "nodes": run.scenario.nodes,
        "parameter": run.parameter,
        "topology": run.scenario.seed,
        "repetition": run.scenario.seed,
        "origin_us": 0,
        "end_us": run.scenario.duration_us,
        "events": traffic.messages,
        "estimated_s": run.cost.seconds,
        "wall_s": summary.wall_s,
        "cpu_s": cpu_s,
        "phy_frames": traffic.messages,
        "phy_bytes": traffic.bytes,
        "mac_retransmissions": 0,
        "forwarded_bytes": 0,
        "control_bytes": traffic.bytes - with_events,
        "drops": [{"cause": cause, "messages": count} for cause, count in summary.dropped.items()],
        "measures": [{"measure": name, "value": value} for name, value in measures_of(summary)],
    }


def measures_of(summary: EncounterSummary) -> Iterator[tuple[str, float]]:
    """The measures of a run, by name."""
    events, traffic = summary.events, summary.traffic
    yield "reliability", events.reliability or 0.0
    yield "bytes", float(traffic.bytes)
    yield "exchanges", float(traffic.exchanges)
    yield "contacts", float(summary.contacts)
    if events.delay_s.mean is not None and events.delay_s.p95 is not None:
        yield "delay_s_mean", events.delay_s.mean
        yield "delay_s_p95", events.delay_s.p95
    if traffic.exchange_s is not None:
        yield "exchange_s_min", traffic.exchange_s.min
        yield "exchange_s_mean", traffic.exchange_s.mean
        yield "exchange_s_max", traffic.exchange_s.max
    for at_s, share in summary.timeline:
        yield f"reliability_at.{at_s:g}", share
