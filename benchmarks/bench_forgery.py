"""Forgeries of a member by the million: deletes, unsubscribes, publishes, places, answers, routes,
and what was deleted or ended (B5).

usage: python benchmarks/bench_forgery.py [--attempts 1000000] [--seed 1]

Nodes of each substrate with real signatures receive messages in the name of another member, with
proofs that are not hers; what she published, deleted and subscribed to must stay as she left it.
The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.live.forgeries import WORLDS, Forger

AT_ONCE = 5_000
"""How many attempts one node gets before a new one takes its place."""


def main() -> None:
    """Makes the attempts and prints their number by kind."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--attempts", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    tried, seed, started = Counter[str](), args.seed, perf_counter()
    while tried.total() < args.attempts:
        substrate = [*WORLDS][seed % len(WORLDS)]
        forger = Forger(substrate, seed)
        try:
            for _ in range(min(AT_ONCE, args.attempts - tried.total())):
                forger.attempt()
            forger.check()
        except Exception:
            print(f"seed {seed}, {substrate}, after {forger.tried.total()}")
            raise
        tried += forger.tried
        seed += 1
        print(f"{tried.total():,} tried", file=sys.stderr)
    print(f"attempts: {dict(tried.most_common())}")
    print(
        json.dumps(
            {
                "attempts": tried.total(),
                "believed": 0,
                "seconds": round(perf_counter() - started, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
