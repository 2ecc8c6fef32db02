"""thyme evaluate --preset infra: repeats the evaluation of the thesis on Thyme-Infrastructure.

Clauses: P5–P7, S16, C23–C37.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections import Counter
from typing import TYPE_CHECKING, Any

from thyme.cli.pipeline.options import require_evaluation, session_settings
from thyme.cli.pipeline.sweeps import format_duration, progress_bar, run_limits
from thyme.model.errors import OptionError

if TYPE_CHECKING:
    from thyme.pipeline.infra.evaluate import InfraEvaluation
    from thyme.report.infra.report import InfraReport

PRESETS = ("infra-quick", "infra")
SERIES = (
    *("addresses", "ranking", "worlds", "consumption", "batches", "failover"),
    *("traffic", "move", "operations", "downloads", "goal"),
)


def evaluate_command(args: Namespace) -> int:
    """thyme evaluate --preset infra --out W"""
    _check_options(args)
    require_evaluation()
    limits = run_limits(args.run_memory, args.run_timeout)
    from thyme.pipeline.infra.evaluate import METRICS_STAGE, evaluate_infra, parse_infra_series
    from thyme.pipeline.infra.presets import PRESETS as KNOWN
    from thyme.pipeline.session import spark_session
    from thyme.pipeline.warehouse import Warehouse
    from thyme.pipeline.warehouse_copy import local_copy
    from thyme.report.infra.points import TABLES
    from thyme.report.infra.report import make_infra_report

    only, warehouse = parse_infra_series(args.only), Warehouse(args.out)
    _print_step("starting Spark", args)
    spark = spark_session(args.master, session_settings(args))
    try:
        with progress_bar(args.json) as on_progress:
            found = evaluate_infra(
                spark,
                KNOWN[args.preset],
                warehouse,
                only=only,
                limits=limits,
                on_progress=on_progress,
                on_stage=lambda text: _print_step(text, args),
            )
        folder = local_copy(warehouse, {METRICS_STAGE: TABLES}, args.report)
    finally:
        spark.stop()
    _print_step("drawing the report", args)
    report = make_infra_report(folder)
    if args.json:
        print(json.dumps({"runs": _runs_as_json(found), "report": report.as_json()}))
    else:
        _print_result(found, report)
    return 1 if found.sweep_result.failures else 0


def _runs_as_json(found: InfraEvaluation) -> dict[str, Any]:
    swept = found.sweep_result
    return {
        "planned": swept.planned,
        "found": swept.found,
        "ran": swept.ran,
        "failed": [{"run_id": each.run_id, "error": each.error} for each in swept.failures],
        "wall_s": round(swept.wall_s, 1),
        "simulating_s": round(swept.simulating_s, 1),
        "cores": swept.cores,
    }


def _print_result(found: InfraEvaluation, report: InfraReport) -> None:
    swept = found.sweep_result
    print(
        f"runs: {swept.planned} planned, {swept.found} found, {swept.ran} run now in "
        f"{swept.wall_s:.0f} s, {len(swept.failures)} failed"
    )
    for failure in swept.failures[:10]:
        print(f"  failed: {failure.run_id}: {failure.error}")
    for line in report.verdicts:
        print(f"{line.claim}  {line.verdict.value:<13} {line.ours}")
    print(f"\nThe report: {report.page} (open it in a browser)")


def plan_command(args: Namespace) -> int:
    """thyme evaluate --preset infra --plan --out W"""
    _check_options(args)
    require_evaluation()
    from thyme.pipeline.infra.evaluate import parse_infra_series
    from thyme.pipeline.infra.presets import PRESETS as KNOWN
    from thyme.pipeline.infra.presets import plan_infra

    planned = plan_infra(KNOWN[args.preset], parse_infra_series(args.only))
    runs = Counter(each.run.series for each in planned)
    seconds: Counter[str] = Counter()
    for each in planned:
        seconds[each.run.series] += round(each.run.size.seconds)
    if args.json:
        series = {name: {"runs": runs[name], "core_s": seconds[name]} for name in runs}
        print(json.dumps({"runs": runs.total(), "series": series}))
        return 0
    for name, count in runs.items():
        print(f"{name:<12}{count:>5} runs: {format_duration(seconds[name])} of simulation")
    print(f"{'all':<12}{runs.total():>5} runs: {format_duration(seconds.total())} of simulation")
    return 0


def _check_options(args: Namespace) -> None:
    if args.posts is not None or args.profile != "paper":
        raise OptionError(f"--posts and --profile are not for the preset {args.preset}")


def _print_step(text: str, args: Namespace) -> None:
    if not args.json and sys.stderr is not None:
        print(f"thyme: {text} …", file=sys.stderr, flush=True)
