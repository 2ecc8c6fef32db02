"""thyme evaluate: repeats the evaluations of the papers, from traces to a report.

The presets belong to families (`preset_family`), which give their runs and their report.
Clauses: P5–P7, P10, S16.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thyme.cli.option_values import add_retrieve_options
from thyme.cli.pipeline.encounter_presets import EncounterPresets
from thyme.cli.pipeline.infra_presets import INFRA_SERIES, InfraPresets
from thyme.cli.pipeline.options import add_session_options, require_evaluation, session_settings
from thyme.cli.pipeline.preset_family import PresetFamily, SweepOptions
from thyme.cli.pipeline.radio_presets import RadioPresets
from thyme.cli.pipeline.sweeps import format_duration, progress_bar, run_limits
from thyme.cli.pipeline.window_options import WINDOW_HELP, add_rule_options, add_window_options
from thyme.model.errors import OptionError, safe_repr

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers
    from thyme.pipeline.evaluate import Evaluation
    from thyme.pipeline.sweep.plan import EvaluationPlan
    from thyme.pipeline.warehouse import Stage
    from thyme.report.report import Report

FAMILIES: tuple[PresetFamily, ...] = (RadioPresets(), EncounterPresets(), InfraPresets())
PRESETS = tuple(name for family in FAMILIES for name in family.presets)

HELP = f"""\
presets:
  quick   three substrates, two small networks: every series once, in about two minutes
  paper   the matrix of Thyme (journal article): 16 to 196 nodes, and at 100 nodes the series with
          crashes, transient churn and mobility; 15 runs per point. It takes hours: --plan
          estimates how many; --master runs it on a cluster
  mobuser-quick, mobuser
          the evaluation of the MobUser paper: MobUser, MFPS and RAPID by encounters; 100 nodes in
          a few minutes, or 1,000 nodes in hours
  infra-quick, infra
          the evaluation of the thesis on Thyme-Infrastructure: 16 mobile nodes per station in some
          minutes, or 100 in hours; --only names experiments: {", ".join(INFRA_SERIES)}

Finished runs are kept: after an interruption of any kind, the same command runs only the missing
ones. Each run is simulated in a process of its own; one that fails, is killed, or exceeds
--run-memory or --run-timeout is listed with the reason, and tried again next time.

--master is Spark's master URL: local[4], spark://host:7077, and so on; the default is Spark's own
configuration, else all cores of this machine. Clusters: docs/pipeline.md.

With --posts, the devices are those of the most active users. Networks with more nodes than the
posts have users are left out. The window is compressed into the duration of a run: 300 s (quick)
or 600 s (paper). {WINDOW_HELP}
exit status: 0 all runs succeeded, 1 some failed, 2 error

examples:
  thyme evaluate --preset quick --out result
  thyme evaluate --preset paper --plan --out result
  thyme evaluate --preset quick --match swansea-everton --profile robust --out result
  thyme evaluate --preset quick --posts w --out w
  thyme evaluate --preset paper --only static --out result --master spark://head:7077
"""


def add_to(commands: Subparsers) -> None:
    """Adds the command to the parser."""
    parser: ArgumentParser = commands.add_parser(
        "evaluate",
        help="repeat the papers' evaluation and write a report",
        description="Simulate the evaluation of a paper and write a report.",
        epilog=HELP,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--preset", metavar="NAME", required=True, help=" or ".join(PRESETS))
    parser.add_argument(
        "--only",
        metavar="SERIES",
        help="comma-separated series: static,crash,transient,mobile; of encounters: "
        "lists,time,density,rare,areas; or experiments of infra",
    )
    parser.add_argument("--profile", metavar="NAME", default="paper", help="paper, robust or both")
    parser.add_argument(
        "--posts", metavar="W", help="warehouse with imported posts (default: synthetic)"
    )
    parser.add_argument(
        "--one-in", metavar="N", type=int,
        help="simulate one in N imported posts (default: paper, all; quick, so many that the "
        "posts of the largest network have at most 2,500 tags)",
    )  # fmt: skip
    parser.add_argument(
        "--match", metavar="NAME",
        help="the synthetic match: final-2016 (default), or chelsea-arsenal or swansea-everton, "
        "which are fitted to real posts",
    )  # fmt: skip
    add_retrieve_options(parser)
    add_window_options(parser)
    add_rule_options(parser)
    parser.add_argument(
        "--out", metavar="W", required=True, help="warehouse for the results: a folder or a URI"
    )
    parser.add_argument(
        "--report", metavar="DIR", type=Path,
        help="folder for the report, for a warehouse that is not a folder of this machine "
        "(default: thyme-report)",
    )  # fmt: skip
    parser.add_argument(
        "--run-memory", metavar="SIZE", default="4g",
        help="stop a simulation that uses more memory, e.g. 800m or 2g (default: 4g)",
    )  # fmt: skip
    parser.add_argument(
        "--run-timeout", metavar="TIME",
        help="stop a simulation that takes longer, e.g. 90s, 30m or 2h (default: ten minutes and "
        "twenty times its estimate of CPU time)",
    )  # fmt: skip
    add_session_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--plan", dest="run", action="store_const", const=plan_command,
        help="only print the number of runs and the estimated time",
    )  # fmt: skip
    parser.set_defaults(run=evaluate_command)


def evaluate_command(args: Namespace) -> int:
    """thyme evaluate --preset NAME --out W"""
    family = _find_family(args)
    found, report = run_evaluation(args, family)
    if args.json:
        import json

        print(json.dumps(evaluation_as_json(found, report)))
    else:
        print_evaluation(found, report)
    return 1 if found.sweep_result.failures else 0


def _find_family(args: Namespace) -> PresetFamily:
    """The family of the preset; refuses bad options before Spark starts."""
    for family in FAMILIES:
        if args.preset in family.presets:
            require_evaluation()
            family.check_options(args)
            run_limits(args.run_memory, args.run_timeout)
            return family
    raise OptionError(
        f"--preset {safe_repr(args.preset)} is unknown; there is {', '.join(PRESETS)}"
    )


def run_evaluation(args: Namespace, family: PresetFamily) -> tuple[Evaluation, Report]:
    """Runs the evaluation and draws its report, with progress on standard error."""
    from thyme.pipeline.session import spark_session
    from thyme.pipeline.warehouse import Warehouse
    from thyme.pipeline.warehouse_copy import local_copy

    warehouse, quiet = Warehouse(args.out), args.json
    _print_step("starting Spark", quiet)
    spark = spark_session(args.master, session_settings(args))
    try:
        with progress_bar(quiet) as on_progress:
            options = SweepOptions(
                run_limits(args.run_memory, args.run_timeout),
                on_progress,
                lambda text: _print_step(text, quiet),
            )
            found = family.evaluate(spark, args, warehouse, options)
        folder = local_copy(warehouse, family.report_tables(), args.report)
    finally:
        spark.stop()
    _print_step("drawing the report", quiet)
    return found, family.make_report(folder)


def _print_step(text: str, quiet: bool) -> None:
    if not quiet and sys.stderr is not None:
        print(f"thyme: {text} …", file=sys.stderr, flush=True)


# Plan


def plan_command(args: Namespace) -> int:
    """thyme evaluate --preset NAME --plan --out W"""
    family = _find_family(args)
    from thyme.pipeline.warehouse import Warehouse

    warehouse = Warehouse(args.out)
    plan = family.plan(args, warehouse, local_cores(args.master))
    if args.json:
        import json

        print(json.dumps(plan_as_json(plan)))
        return 0
    for name, series in plan.series.items():
        done = f", {series.done} of them done" if series.done else ""
        took = format_duration(series.core_s)
        print(f"{name:<10}{series.runs:>5} runs{done}: {took} of simulation")
    cores = "1 core" if plan.cores == 1 else f"{plan.cores} cores"
    print(f"{'all':<10}{plan.runs:>5} runs: about {format_duration(plan.all_s)} on {cores}", end="")
    print(f", {format_duration(plan.left_s)} remaining" if plan.done else "")
    if plan.calibrated_by:
        print(f"(estimated from the {plan.calibrated_by} runs in {warehouse.path})")
    else:
        print("(estimated from the machine of docs/pipeline.md; the first runs will correct it)")
    return 0


def plan_as_json(plan: EvaluationPlan) -> dict[str, Any]:
    """Converts a plan to JSON values."""
    series = {
        name: {"runs": each.runs, "done": each.done, "core_s": round(each.core_s)}
        for name, each in plan.series.items()
    }
    return {
        "runs": plan.runs,
        "done": plan.done,
        "series": series,
        "cores": plan.cores,
        "all_s": round(plan.all_s),
        "left_s": round(plan.left_s),
        "calibrated_by": plan.calibrated_by,
    }


def local_cores(master: str | None) -> int:
    """The cores of a local Spark master; 1 for a cluster, whose size only Spark knows."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)[^]]*\])?", master or "local[*]")
    if found and found[1] == "*":
        return os.cpu_count() or 1
    return int(found[1]) if found and found[1] else 1


# Result


def evaluation_as_json(found: Evaluation, report: Report) -> dict[str, Any]:
    """Converts the results of an evaluation to JSON values."""
    sweep_result = found.sweep_result
    return {
        "runs": {
            "planned": sweep_result.planned,
            "found": sweep_result.found,
            "ran": sweep_result.ran,
            "failed": [
                {"run_id": each.run_id, "error": each.error} for each in sweep_result.failures
            ],
            "wall_s": round(sweep_result.wall_s, 1),
            "simulating_s": round(sweep_result.simulating_s, 1),
            "simulating_cpu_s": round(sweep_result.cpu_s, 1),
            "cores": sweep_result.cores,
            "compiled": sweep_result.compiled,
            "overhead": None if sweep_result.overhead is None else round(sweep_result.overhead, 3),
        },
        "tables": {name: rows for stage in _stages(found) for name, rows in _table_rows(stage)},
        "report": report.as_json(),
    }


def print_evaluation(found: Evaluation, report: Report) -> None:
    """Prints the results of an evaluation as text."""
    from thyme.cli.pipeline.report import print_report

    sweep_result = found.sweep_result
    print(
        f"runs: {sweep_result.planned} planned, {sweep_result.found} found, "
        f"{sweep_result.ran} run now in "
        f"{sweep_result.wall_s:.0f} s, {len(sweep_result.failures)} failed"
    )
    if sweep_result.overhead is not None:
        print(
            f"  {sweep_result.simulating_s:.0f} s of simulation on {sweep_result.cores} cores: "
            f"{sweep_result.overhead:.0%} overhead"
        )
        plain = sweep_result.ran - len(sweep_result.failures) - sweep_result.compiled
        if plain > 0:
            print(
                f"  {plain} runs were simulated without compiled modules, at about half the speed: "
                "see `thyme compile`, or docs/pipeline.md for clusters"
            )
    for failure in sweep_result.failures[:10]:
        print(f"  failed: {failure.run_id}: {failure.error}")
    if len(sweep_result.failures) > 10:
        print(f"  … and {len(sweep_result.failures) - 10} more")
    for stage in _stages(found):
        print(f"{stage.folder}/")
        for name, rows in _table_rows(stage):
            print(f"  {name:<14}{rows:>10,} rows")
    print_report(report)


def _stages(found: Evaluation) -> tuple[Stage, ...]:
    return tuple(stage for stage in (found.traces, found.runs, found.metrics) if stage is not None)


def _table_rows(stage: Stage) -> list[tuple[str, int]]:
    return [(name, facts.rows) for name, facts in stage.manifest.tables.items()]
