"""Soak: small worlds full of trouble, one per seed; is anything ever wrong?

Each seed makes a world of 6 to 20 nodes in which devices crash, leave, return and lose their
memory, groups part and meet, messages are lost, doubled and overtaken, and clocks differ, while
people insert, delete, subscribe, search and retrieve. What must hold is checked all along and when
all is calm again (`thyme.testing.soak.runner`). The first seed is drawn from the clock.
A failure prints the seed, the command that makes it happen again, and the command of a shorter run
that fails likewise (`thyme.testing.soak.shrinking`).
Clauses: B12, D15, D27, M16, M23, M24.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter
from typing import TextIO

import msgspec

from thyme.sim.scenario import Profile, Substrate
from thyme.testing.soak.networks import SoakMedium
from thyme.testing.soak.runner import SoakResult, run_soak, shrink_soak
from thyme.testing.soak.shrinking import Omitted

SEEDS_FROM_CLOCK = 10_000_000


def replay(verdict: SoakResult, omitted: Omitted | None = None) -> str:
    """The command that makes a world happen again."""
    without = "" if omitted is None else f" --omit '{msgspec.json.encode(omitted).decode()}'"
    return (
        f"./run bench soak --seeds 1 --first {verdict.seed} "
        f"--substrate {verdict.substrate} --profile {verdict.profile} "
        f"--medium {verdict.medium}{' --hostile' * bool(verdict.hostile_messages)}{without}"
    )


def show_failure(verdict: SoakResult, out: TextIO, *, shrunk: bool) -> None:
    """Prints the violations of a seed, and the commands that show them again."""
    print(f"\nseed {verdict.seed}: {len(verdict.violations)} violations", file=out)
    for line in verdict.violations:
        print(f"  {line}", file=out)
    print(f"  again: {replay(verdict)}", file=out, flush=True)
    if shrunk:
        omitted, shorter = shrink_soak(verdict)
        parts = f"{shorter.nodes} nodes, {shorter.faults} faults, {shorter.steps} steps of walks"
        print(f"  shorter ({parts}): {replay(verdict, omitted)}", file=out, flush=True)


def summary(verdicts: list[SoakResult], seconds: float) -> dict[str, object]:
    """All worlds in one record."""
    ended: Counter[str] = Counter()
    for verdict in verdicts:
        ended.update(verdict.ended)
    return {
        "first": verdicts[0].seed if verdicts else None,
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
    parser.add_argument(
        "--first", metavar="SEED", type=int, help="the first seed; default: drawn from the clock"
    )
    parser.add_argument(
        "--substrate", type=Substrate, choices=list(Substrate), default=Substrate.DCS
    )
    parser.add_argument("--profile", type=Profile, choices=list(Profile), default=Profile.ROBUST)
    parser.add_argument(
        "--medium",
        type=SoakMedium,
        choices=list(SoakMedium),
        default=SoakMedium.IDEAL,
        help="the ideal network, or the simulated radio (DCS only)",
    )
    parser.add_argument(
        "--omit", metavar="JSON", default="{}", help="parts to leave out, as a failure prints them"
    )
    parser.add_argument(
        "--hostile", action="store_true", help="one node forges and replays messages"
    )
    parser.add_argument("--no-shrink", action="store_true", help="do not shorten runs that fail")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if args.medium is SoakMedium.RADIO and args.substrate is not Substrate.DCS:
        parser.error("--medium radio: only --substrate dcs has a routing for it")
    first = time.time_ns() // 1_000 % SEEDS_FROM_CLOCK if args.first is None else args.first
    try:
        omitted = msgspec.json.decode(args.omit, type=Omitted)
    except msgspec.MsgspecError as error:
        parser.error(f"--omit: {error}")
    out = sys.stderr if args.json else sys.stdout
    machine = f"Python {platform.python_version()}, {platform.machine()}"
    seeds = f"seeds {first} to {first + args.seeds - 1}"
    setting = f"{args.substrate}, profile {args.profile}, {args.medium} network, {seeds}"
    print(f"{setting}; {machine}", file=out, flush=True)
    verdicts: list[SoakResult] = []
    began = time.process_time()
    for seed in range(first, first + args.seeds):
        verdict = run_soak(
            seed, args.substrate, args.profile, omitted, args.medium, hostile=args.hostile
        )
        verdicts.append(verdict)
        if verdict.violations:
            shrunk = not (args.no_shrink or args.hostile) and omitted == Omitted()
            show_failure(verdict, out, shrunk=shrunk)
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
