"""The presets `quick` and `paper`: the evaluation of Thyme (journal article) on the radio.

Entry point: `RadioPresets`, a `PresetFamily`.
Clauses: P5–P7, S16.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thyme.cli.pipeline.options import check_stage
from thyme.cli.pipeline.window_options import (
    parse_display_zone,
    parse_rules,
    parse_window,
    print_window,
)
from thyme.model.errors import OptionError, safe_repr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from thyme.cli.pipeline.preset_family import SweepOptions
    from thyme.pipeline.evaluate import Evaluation
    from thyme.pipeline.evaluation_traces import PostsInput, TraceSource
    from thyme.pipeline.sweep.plan import EvaluationPlan
    from thyme.pipeline.sweep.presets import Preset
    from thyme.pipeline.warehouse import Warehouse
    from thyme.report.report import Report
    from thyme.traces.retrieve_behaviour import RetrieveBehaviour

PROFILES = ("paper", "robust", "both")


class RadioPresets:
    """ES, LS and DCS on the radio; a `PresetFamily`."""

    presets: tuple[str, ...] = ("quick", "paper")

    def check_options(self, args: Namespace) -> None:
        """Refuses unknown profiles and series."""
        from thyme.pipeline.sweep.presets import parse_series

        if args.profile not in PROFILES:
            given = safe_repr(args.profile)
            raise OptionError(f"--profile {given} is unknown; there is {', '.join(PROFILES)}")
        parse_series(args.only)
        if args.one_in is not None and args.one_in < 1:
            raise OptionError(f"--one-in {args.one_in} must be at least 1")
        _trace_source(args)
        _reaction(args)

    def plan(self, args: Namespace, warehouse: Warehouse, cores: int) -> EvaluationPlan:
        """Plans the runs."""
        from thyme.pipeline.sweep.plan import plan_evaluation

        return plan_evaluation(_preset(args), warehouse, cores, **_selection(args))

    def evaluate(
        self, spark: SparkSession, args: Namespace, warehouse: Warehouse, options: SweepOptions
    ) -> Evaluation:
        """Makes the traces, carries out the missing runs and computes the metrics."""
        from thyme.pipeline.evaluate import evaluate

        preset = _preset(args)
        return evaluate(
            spark,
            preset,
            warehouse,
            **_selection(args),
            **options._asdict(),
            on_posts=lambda posts: _print_posts(posts, preset, args),
        )

    def report_tables(self) -> dict[str, tuple[str, ...]]:
        """The tables that the report reads."""
        from thyme.report.tables import STAGES

        return STAGES

    def make_report(self, folder: Path) -> Report:
        """Writes the report."""
        from thyme.report.report import make_report

        return make_report(folder)


def _preset(args: Namespace) -> Preset:
    from thyme.pipeline.sweep.presets import PRESETS

    return PRESETS[args.preset]


def _selection(args: Namespace) -> dict[str, Any]:
    """The selected part of the preset."""
    from thyme.pipeline.sweep.presets import parse_series
    from thyme.sim.scenario import Profile

    return {
        "only": parse_series(args.only),
        "profiles": tuple(Profile) if args.profile == "both" else (Profile(args.profile),),
        "source": _trace_source(args),
        "reaction": _reaction(args),
    }


def _reaction(args: Namespace) -> RetrieveBehaviour:
    """How users retrieve, by the options."""
    import msgspec

    from thyme.traces.retrieve_behaviour import LECTURE_RETRIEVES

    given: dict[str, Any] = {}
    if args.retrieve is not None:
        given["probability"] = args.retrieve
    if args.within is not None:
        if not 0 <= args.within <= 3_600:
            raise OptionError(f"--within {args.within:g}: 0 to 3,600 seconds")
        given["within_us"] = round(args.within * 1e6)
    return msgspec.structs.replace(LECTURE_RETRIEVES, **given)


def _trace_source(args: Namespace) -> TraceSource:
    from thyme.pipeline.evaluation_traces import TraceSource
    from thyme.pipeline.warehouse import Warehouse
    from thyme.traces.timetable import TimetableChoice

    choice, rules = parse_window(args), parse_rules(args)
    if args.posts is None:
        if choice != TimetableChoice() or args.one_in is not None:
            raise OptionError(
                "a window and --one-in are for imported posts: give their warehouse with --posts"
            )
        return TraceSource(rules=rules, match=_parse_match(args.match))
    if args.match is not None:
        raise OptionError("--match is a synthetic match: not with --posts")
    check_stage(args.posts, "posts")
    posts = Warehouse(args.posts)
    return TraceSource(posts=posts, choice=choice, rules=rules, one_in=args.one_in)


def _parse_match(name: str | None) -> str:
    from thyme.traces.synthetic.football_match import DEFAULT_MATCH, FITTED_MATCHES

    if name is not None and name not in FITTED_MATCHES:
        known = ", ".join(FITTED_MATCHES)
        raise OptionError(f"--match {safe_repr(name)} is unknown; there is {known}")
    return name or DEFAULT_MATCH


def _print_posts(posts: PostsInput, preset: Preset, args: Namespace) -> None:
    if posts.window is not None and not args.json:
        zone = parse_display_zone(args)
        print_window(posts.window, zone, preset.timeline.operations_us, sys.stderr)
        if posts.rules.one_in > 1:
            why = "" if args.one_in else f" ({preset.name} is for few; --one-in 1 simulates all)"
            print(f"  simulating one in {posts.rules.one_in} of them{why}", file=sys.stderr)
