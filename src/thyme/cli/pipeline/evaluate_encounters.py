"""thyme evaluate --preset mobuser: repeats the evaluation of the MobUser paper.

Clauses: P5–P7, U8, U9, S16.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from thyme.cli.pipeline.options import require_report, session_settings
from thyme.model.errors import OptionError

PRESETS = ("mobuser", "mobuser-quick")


def evaluate_command(args: Namespace) -> int:
    """thyme evaluate --preset mobuser --out W"""
    from thyme.pipeline.session import require_spark, spark_session

    _check_options(args)
    require_spark()
    require_report()
    from thyme.pipeline.encounters.evaluate import evaluate_encounters
    from thyme.pipeline.encounters.presets import PRESETS as KNOWN
    from thyme.report.encounters.report import make_encounter_report

    folder = Path(args.out)
    _print_step("starting Spark", args)
    spark = spark_session(args.master, session_settings(args))
    try:
        found = evaluate_encounters(
            spark, KNOWN[args.preset], folder, on_stage=lambda text: _print_step(text, args)
        )
    finally:
        spark.stop()
    report = make_encounter_report(folder)
    if args.json:
        runs = {"planned": found.planned, "found": found.found, "failed": len(found.failures)}
        print(json.dumps({"runs": runs, "wall_s": found.wall_s, **report.as_json()}))
    else:
        for verdict in report.verdicts:
            print(f"{verdict.claim}  {verdict.verdict:<15} {verdict.ours}")
        for run_id, error in found.failures.items():
            print(f"failed: {run_id}: {error}", file=sys.stderr)
        print(f"\nwritten: {report.page}")
    return 1 if found.failures else 0


def plan_command(args: Namespace) -> int:
    """thyme evaluate --preset mobuser --plan --out W"""
    _check_options(args)
    from collections import Counter

    from thyme.pipeline.encounters.presets import PRESETS as KNOWN
    from thyme.pipeline.encounters.presets import plan_encounters

    counts = Counter(run.series for run in plan_encounters(KNOWN[args.preset]))
    if args.json:
        print(json.dumps({"runs": counts.total(), "series": dict(counts)}))
        return 0
    for series, count in counts.items():
        print(f"{series:<10}{count:>5} runs")
    print(f"{'all':<10}{counts.total():>5} runs")
    return 0


def _check_options(args: Namespace) -> None:
    if args.only is not None or args.posts is not None or args.profile != "paper":
        raise OptionError(f"--only, --posts and --profile are not for the preset {args.preset}")
    if args.report is not None or args.run_timeout is not None or args.run_memory != "4g":
        raise OptionError(
            f"--report, --run-memory and --run-timeout are not for the preset {args.preset}"
        )
    if "://" in str(args.out) or (args.master or "").startswith("sc://"):
        raise OptionError(
            f"the preset {args.preset} needs a folder that all workers share, and a Spark master "
            "other than Spark Connect"
        )


def _print_step(text: str, args: Namespace) -> None:
    if not args.json and sys.stderr is not None:
        print(f"thyme: {text} …", file=sys.stderr, flush=True)
