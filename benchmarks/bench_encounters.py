"""Encounters: how fast contacts are computed and protocols simulated, in node-hours per second.

Prints, for each protocol on the streets of the MobUser paper, the speed with 100 nodes and with
more, and the cost per contact relative to the smallest run: a ratio of at most 1 means that time
grows at most linearly with the number of contacts. The contacts alone are the baseline of the same
run. Times are CPU times of one process. The Python simulator PONS simulates about 3 node-hours per
second (measured before, on the reference machine); the ONE simulator could not be installed, and we
found no published figure that could be compared.
Clauses: U9, S5.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from thyme.sim.encounters.contacts import MovementContacts
from thyme.sim.encounters.run import run_encounters
from thyme.sim.encounters.scenario import (
    HOUR_US,
    EncounterProtocol,
    EncounterScenario,
    make_contacts,
)

SIDE_M = 450.0
TARGET_NODE_HOURS_PER_S = 300
"""The speed with 100 nodes that issue and documents ask for."""


def contacts_alone_s(scenario: EncounterScenario) -> float:
    """CPU time of computing the contacts of a scenario, without any protocol."""
    started_s = time.process_time()
    contacts = make_contacts(scenario)
    assert isinstance(contacts, MovementContacts)
    end_us = 0
    while end_us < scenario.duration_us:
        _, end_us = contacts.next_changes()
    return time.process_time() - started_s


def measure(
    protocol: EncounterProtocol, nodes: int, hours: float, side_m: float
) -> dict[str, float]:
    """One run and its baseline."""
    scenario = EncounterScenario(
        protocol=protocol, nodes=nodes, duration_us=round(hours * HOUR_US), side_m=side_m
    )
    alone_s = contacts_alone_s(scenario)
    started_s = time.process_time()
    found = run_encounters(scenario)
    cpu_s = time.process_time() - started_s
    return {
        "nodes": nodes,
        "hours": hours,
        "contacts": found.contacts,
        "cpu_s": round(cpu_s, 2),
        "contacts_alone_s": round(alone_s, 2),
        "node_hours_per_s": round(nodes * hours / cpu_s, 1),
        "us_per_contact": round(cpu_s / found.contacts * 1e6, 1),
        "over_contacts_alone": round(cpu_s / alone_s, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--protocol", type=EncounterProtocol, choices=list(EncounterProtocol),
        help="one protocol only (default: all)",
    )  # fmt: skip
    parser.add_argument("--hours", type=float, default=2.0, help="hours of each run (default: 2)")
    parser.add_argument(
        "--full", action="store_true", help="also MobUser with 1,000 nodes for 24 hours"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    protocols = list(EncounterProtocol) if args.protocol is None else [args.protocol]
    measure(protocols[0], 20, 0.1, 450.0)  # imports and first calls are not measured
    found: dict[str, list[dict[str, float]]] = {}
    for protocol in protocols:
        rows = found[protocol] = [
            measure(protocol, nodes, args.hours, SIDE_M) for nodes in (100, 200, 400)
        ]
        if args.full and protocol is EncounterProtocol.MOBUSER:
            rows.append(measure(protocol, 1_000, 24.0, SIDE_M))
        for row in rows:
            ratio = row["us_per_contact"] / rows[0]["us_per_contact"]
            row["cost_per_contact_ratio"] = round(ratio, 2)
            if not args.json:
                values = ", ".join(f"{name} {value:g}" for name, value in row.items())
                print(f"{protocol}: {values}", flush=True)
    reached = {
        protocol: rows[0]["node_hours_per_s"] >= TARGET_NODE_HOURS_PER_S
        for protocol, rows in found.items()
    }
    if args.json:
        print(json.dumps({"benchmark": "encounters", "rows": found, "target_reached": reached}))
    else:
        for protocol, is_reached in reached.items():
            verdict = "reached" if is_reached else "missed"
            print(f"{protocol}: {TARGET_NODE_HOURS_PER_S} node-hours per second {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
