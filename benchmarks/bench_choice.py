"""Choice: when encounters (MobUser) beat the infrastructure-less DCS, by density, speed, deadline.

Both run the same users and the same paths. DCS runs on the simulated 802.11 radio, MobUser on the
contacts of the same devices at the range of that radio, with a discovery every ten seconds and the
reconciled exchange. Printed is the share of the notifications that arrive within a deadline after
the publication, with the half width of its 95 % confidence interval over the seeds; the substrate
with the higher share wins, unless the intervals overlap.
Clauses: U9, U10.
"""

from __future__ import annotations

import argparse
import json
import math
import sys

from scipy import stats

from thyme.model.time_frames import SECOND_US
from thyme.sim.deployment import Deployment
from thyme.sim.encounters.contact_files import ContactTrace
from thyme.sim.encounters.contacts import Contact, MovementContacts
from thyme.sim.encounters.mobuser_trace import MobUserPopulation, mobuser_trace
from thyme.sim.encounters.run import run_encounters
from thyme.sim.encounters.scenario import EncounterKind, EncounterProtocol, EncounterScenario
from thyme.sim.encounters.segments import PathSegments
from thyme.sim.mobility.paths import Leg
from thyme.sim.radio.phy import Phy
from thyme.sim.run import run
from thyme.sim.scenario import Profile, Scenario, Series, Substrate, Timeline
from thyme.substrates.encounters.config import ExchangeMode
from thyme.traces.trace import Trace

NODES = 25
SIDES_M = ((200.0, 100.0), (800.0, 400.0), (1_600.0, 800.0), (3_200.0, 1_600.0))
SPEEDS_M_S = (0.0, 1.4, 10.0)
DEADLINES_S = (10, 60, 600)
PUBLISH_US, WAIT_US = 120 * SECOND_US, 600 * SECOND_US
TIMELINE = Timeline(operations_us=PUBLISH_US, quiet_us=WAIT_US)


def scenario_of(side_m: tuple[float, float], speed_m_s: float, seed: int) -> Scenario:
    """The scenario of DCS; also the source of the paths for MobUser."""
    return Scenario(
        substrate=Substrate.DCS,
        nodes=NODES,
        kind=Series.MOBILE if speed_m_s else Series.STATIC,
        profile=Profile.ROBUST,
        area_m=side_m,
        speed_m_s=speed_m_s or 1.0,
        seed=seed,
        timeline=TIMELINE,
    )


def dcs_shares(scenario: Scenario, trace: Trace) -> list[float]:
    """The shares of DCS by deadline; users are not counted for their own events."""
    found = run(scenario, trace)
    owners = {op.oid: op.user for op in trace.operations if hasattr(op, "oid")}
    due = sum(each.user != owners[each.oid] for each in found.expected)
    delays = {
        (each.user, each.oid): each.told_us - each.published_us
        for each in found.notifications
        if each.user != owners[each.oid]
    }
    return [
        sum(delay <= deadline * SECOND_US for delay in delays.values()) / due
        for deadline in DEADLINES_S
    ]


def mobuser_shares(scenario: Scenario, trace: Trace) -> list[float]:
    """The shares of MobUser by deadline, over the same paths."""
    deployment = Deployment(scenario, trace)
    end_us = scenario.timeline.end_us
    moving = deployment.make_paths()
    paths = [
        moving.get(node_id) or [Leg(0, end_us, *position, *position)]
        for node_id, position in zip(deployment.node_ids, deployment.positions, strict=True)
    ]
    origin_us = scenario.timeline.origin_us
    contacts = contacts_between(paths, origin_us, end_us)
    encounters = EncounterScenario(
        protocol=EncounterProtocol.MOBUSER,
        kind=EncounterKind.CONTACTS,
        nodes=scenario.nodes,
        duration_us=end_us - origin_us,
        discovery_us=10 * SECOND_US,
        exchange=ExchangeMode.RECONCILE,
        seed=scenario.seed,
    )
    recorded = ContactTrace([str(number) for number in range(scenario.nodes)], contacts)
    found = run_encounters(encounters, recorded, trace=trace)
    return [found.share_within(deadline) for deadline in DEADLINES_S]


def contacts_between(paths: list[list[Leg]], since_us: int, until_us: int) -> list[Contact]:
    """The contacts of devices that walk along paths, at the range of the default radio."""
    source = MovementContacts(PathSegments(paths), Phy().range_m())
    began: dict[tuple[int, int], int] = {}
    found: list[Contact] = []
    end_us = 0

    def close(pair: tuple[int, int], at_us: int) -> None:
        start_us = max(began.pop(pair), since_us)
        if start_us < min(at_us, until_us):
            found.append(Contact(start_us - since_us, min(at_us, until_us) - since_us, *pair))

    while end_us < until_us:
        changes, end_us = source.next_changes()
        rows = zip(changes.at_us, changes.first, changes.second, changes.begins, strict=True)
        for at_us, first, second, begins in rows:
            if begins:
                began[first, second] = at_us
            else:
                close((first, second), at_us)
    for pair in list(began):
        close(pair, until_us)
    return sorted(found)


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half width of the 95 % confidence interval."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    factor = float(stats.t.ppf(0.975, len(values) - 1))
    return mean, factor * deviation / math.sqrt(len(values))


def compare(side_m: tuple[float, float], speed_m_s: float, seeds: int) -> list[dict[str, object]]:
    """One row per deadline."""
    shares: dict[str, list[list[float]]] = {"dcs": [], "mobuser": []}
    for seed in range(1, seeds + 1):
        scenario = scenario_of(side_m, speed_m_s, seed)
        population = MobUserPopulation(users=NODES, publishers_share=0.2, publish_us=PUBLISH_US)
        trace = mobuser_trace(seed, population)
        shares["dcs"].append(dcs_shares(scenario, trace))
        shares["mobuser"].append(mobuser_shares(scenario, trace))
    rows = []
    neighbours = NODES * math.pi * Phy().range_m() ** 2 / (side_m[0] * side_m[1])
    for place, deadline in enumerate(DEADLINES_S):
        dcs, mobuser = (interval([each[place] for each in shares[name]]) for name in shares)
        clear = abs(dcs[0] - mobuser[0]) > dcs[1] + mobuser[1]
        better = "dcs" if dcs[0] > mobuser[0] else "mobuser"
        rows.append(
            {
                "neighbours": round(neighbours, 2),
                "speed_m_s": speed_m_s,
                "deadline_s": deadline,
                "dcs": [round(value, 3) for value in dcs],
                "mobuser": [round(value, 3) for value in mobuser],
                "better": better if clear else "same",
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="runs per point (default: 5)")
    parser.add_argument("--density", type=int, choices=range(len(SIDES_M)), help="one area only")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    sides = SIDES_M if args.density is None else SIDES_M[args.density : args.density + 1]
    rows = []
    for side_m in sides:
        for speed_m_s in SPEEDS_M_S:
            found = compare(side_m, speed_m_s, args.seeds)
            rows += found
            if not args.json:
                for row in found:
                    print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    if args.json:
        print(json.dumps({"benchmark": "choice", "nodes": NODES, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
