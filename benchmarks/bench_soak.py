"""Soak: small worlds full of trouble, one per seed; is anything ever wrong?

Each seed makes a world of 6 to 20 nodes in which devices crash, leave, return and lose their
memory, groups part and meet, messages are lost, doubled and overtaken, and clocks differ, while
people insert, delete, subscribe, search and retrieve. What must hold is checked all along and when
all is calm again (`thyme.testing.soak.runner`). A failure prints the seed, and the command that
makes it happen again.
Clauses: B12, D15, M16, M23, M24.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter

from thyme.sim.scenario import Profile, Substrate
from thyme.testing.soak.runner import SoakResult, run_soak


def replay(verdict: SoakResult) -> str:
    """The command that makes a world happen again."""
    return (
        f"./run bench soak --seeds 1 --first {verdict.seed} "
        f"--substrate {verdict.substrate} --profile {verdict.profile}"
    )


def summary(verdicts: list[SoakResult], seconds: float) -> dict[str, object]:
    """All worlds in one record."""
    ended: Counter[str] = Counter()
    for verdict in verdicts:
        ended.update(verdict.ended)
    return {
        "seeds": len(verdicts),
        "clean": sum(not verdict.violations for verdict in verdicts),
        "failed": {verdict.seed: verdict.violations for verdict in verdicts if verdict.violations},
        "nodes": sum(verdict.nodes for verdict in verdicts),
        "faults": sum(verdict.faults for verdict in verdicts),
        "steps": sum(verdict.steps for verdict in verdicts),
        "told": sum(verdict.notifications for verdict in verdicts),
        "ended": dict(sorted(ended.items())),
        "seconds": round(seconds, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", metavar="N", type=int, default=200, help="how many worlds")
    parser.add_argument("--first", metavar="SEED", type=int, default=0)
    parser.add_argument(
        "--substrate", type=Substrate, choices=list(Substrate), default=Substrate.DCS
    )
    parser.add_argument("--profile", type=Profile, choices=list(Profile), default=Profile.ROBUST)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    out = sys.stderr if args.json else sys.stdout
    machine = f"Python {platform.python_version()}, {platform.machine()}"
    print(f"{args.substrate}, profile {args.profile}; {machine}", file=out)
    verdicts: list[SoakResult] = []
    began = time.process_time()
    for seed in range(args.first, args.first + args.seeds):
        verdict = run_soak(seed, args.substrate, args.profile)
        verdicts.append(verdict)
        if verdict.violations:
            print(f"\nseed {seed}: {len(verdict.violations)} violations", file=out)
            for line in verdict.violations:
                print(f"  {line}", file=out)
            print(f"  again: {replay(verdict)}", file=out, flush=True)
    found = summary(verdicts, time.process_time() - began)
    if args.json:
        about = {"substrate": args.substrate, "profile": args.profile}
        print(json.dumps({"benchmark": "soak", **about, **found}))
    else:
        print(f"\n{found['clean']} of {found['seeds']} seeds clean, {found['seconds']} s")
        print(
            f"{found['nodes']} nodes, {found['faults']} faults, {found['steps']} steps of walks, "
            f"{found['told']} notifications"
        )
        for what, count in dict(found["ended"]).items():  # type: ignore[call-overload]
            print(f"  {what}: {count}")
    return 0 if found["clean"] == found["seeds"] else 1


if __name__ == "__main__":
    sys.exit(main())
