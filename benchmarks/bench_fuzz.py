"""Damaged datagrams by the million, through the link and into a node, and changed messages of a
member that are validly signed (M25, B5).

usage: python benchmarks/bench_fuzz.py [--frames 1000000] [--signed 100000] [--seed 1]

Each node hears long sequences of them, while its timers go on. Of the signed messages, none may
change what another member said. Whatever escapes as an exception ends the run with it; the seed and
the count say where. Each kind of node, in open and in closed worlds, with keys and without, hears
its share. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.live.fuzzing import WORLDS, Victim
from tests.live.signed_fuzzing import SignedFuzzer

AT_ONCE = 20_000
"""How many one node hears before a new one takes its place."""


def main() -> None:
    """Runs it and prints what became of the datagrams."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--signed", type=int, default=100_000, help="messages")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    signed = _send_signed(args.signed, args.seed)
    dropped, delivered = Counter[str](), Counter[str]()
    heard, seed, started = 0, args.seed, perf_counter()
    kinds = [*product(WORLDS, (False, True), (False, True))]
    while heard < args.frames:
        substrate, closed, keys = kinds[seed % len(kinds)]
        victim = Victim(substrate, seed, closed=closed, keys=keys)
        count = min(AT_ONCE, args.frames - heard)
        try:
            victim.hear(count)
        except Exception:
            print(f"seed {seed}, {substrate}, closed: {closed}, keys: {keys}, {victim.heard}")
            raise
        dropped += victim.link.dropped
        delivered += victim.delivered
        heard += count
        seed += 1
        print(f"{heard:,} heard, {dropped.total():,} dropped", file=sys.stderr)
    print(f"dropped: {dict(dropped.most_common())}")
    print(f"delivered to nodes: {dict(delivered.most_common())}")
    print(
        json.dumps(
            {
                "frames": heard,
                "exceptions": 0,
                "dropped": dropped.total(),
                "delivered": delivered.total(),
                "signed": signed.total(),
                "seconds": round(perf_counter() - started, 1),
            }
        )
    )


def _send_signed(count: int, seed: int) -> Counter[str]:
    """Sends changed messages that are signed; returns their number by type."""
    tried = Counter[str]()
    while tried.total() < count:
        substrate = [*WORLDS][seed % len(WORLDS)]
        fuzzer = SignedFuzzer(substrate, seed)
        try:
            while fuzzer.tried.total() < min(AT_ONCE, count - tried.total()):
                fuzzer.attempt()
            fuzzer.check()
        except Exception:
            print(f"seed {seed}, {substrate}, signed, {fuzzer.tried.total()}")
            raise
        tried += fuzzer.tried
        seed += 1
        print(f"{tried.total():,} signed", file=sys.stderr)
    print(f"signed: {dict(tried.most_common())}")
    return tried


if __name__ == "__main__":
    main()
