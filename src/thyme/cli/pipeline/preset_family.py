"""Preset family: the interface by which presets of `thyme evaluate` give their runs and report.

Entry point: `PresetFamily`. `radio_presets` and `encounter_presets` implement it; `evaluate` lists
them, and does the rest for all alike: Spark, limits, progress, plan, output.
Clauses: P5, P7.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from thyme.cli.pipeline.window_options import parse_rules, parse_window
from thyme.model.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from thyme.pipeline.evaluate import Evaluation
    from thyme.pipeline.sweep.plan import EvaluationPlan
    from thyme.pipeline.sweep.progress import SweepProgress
    from thyme.pipeline.sweep.runner import SweepLimits
    from thyme.pipeline.warehouse import Warehouse
    from thyme.report.report import Report


class SweepOptions(NamedTuple):
    """How every family carries out its runs."""

    limits: SweepLimits
    on_progress: Callable[[SweepProgress], None] | None
    on_stage: Callable[[str], None]


def refuse_radio_options(args: Namespace) -> None:
    """Raises `OptionError` for options that only the presets of the radio have."""
    from thyme.traces.posts_to_trace import JOURNAL_RULES
    from thyme.traces.timetable import TimetableChoice

    if args.profile != "paper":
        raise OptionError(f"--profile is not for the preset {args.preset}")
    is_given = args.posts is not None or args.one_in is not None
    if is_given or parse_window(args) != TimetableChoice():
        raise OptionError(f"--posts, its window and --one-in are not for the preset {args.preset}")
    if any(getattr(args, name) is not None for name in ("match", "retrieve", "within")):
        raise OptionError(f"--match, --retrieve and --within are not for the preset {args.preset}")
    if parse_rules(args) != JOURNAL_RULES:
        raise OptionError(f"the rules of traces are not for the preset {args.preset}")


class PresetFamily(Protocol):
    """Presets with the same kind of runs and report. Its modules import Spark only when called."""

    presets: tuple[str, ...]
    """The names of its presets."""

    def check_options(self, args: Namespace) -> None:
        """Raises `OptionError` for options that do not fit, before Spark starts."""
        ...

    def plan(self, args: Namespace, warehouse: Warehouse, cores: int) -> EvaluationPlan:
        """Plans the runs, without Spark."""
        ...

    def evaluate(
        self, spark: SparkSession, args: Namespace, warehouse: Warehouse, options: SweepOptions
    ) -> Evaluation:
        """Carries out the missing runs and computes the metrics."""
        ...

    def report_tables(self) -> dict[str, tuple[str, ...]]:
        """The tables that the report reads, by stage."""
        ...

    def make_report(self, folder: Path) -> Report:
        """Writes the report of a warehouse folder."""
        ...
