"""The presets `infra` and `infra-quick`: the evaluation of the thesis on Thyme-Infrastructure.

Entry point: `InfraPresets`, a `PresetFamily`.
Clauses: P5–P7, S16, C23–C37.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.cli.pipeline.preset_family import refuse_radio_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from thyme.cli.pipeline.preset_family import SweepOptions
    from thyme.pipeline.evaluate import Evaluation
    from thyme.pipeline.sweep.plan import EvaluationPlan
    from thyme.pipeline.warehouse import Warehouse
    from thyme.report.report import Report

INFRA_SERIES = (
    *("addresses", "ranking", "worlds", "consumption", "batches", "failover"),
    *("traffic", "move", "operations", "downloads", "goal"),
)


class InfraPresets:
    """Thyme-Infrastructure, with the geographic Thyme-DCS and a cloud; a `PresetFamily`."""

    presets: tuple[str, ...] = ("infra-quick", "infra")

    def check_options(self, args: Namespace) -> None:
        """Refuses options of the radio's presets, and unknown series."""
        from thyme.pipeline.infra.evaluate import parse_infra_series

        refuse_radio_options(args)
        parse_infra_series(args.only)

    def plan(self, args: Namespace, warehouse: Warehouse, cores: int) -> EvaluationPlan:
        """Plans the runs."""
        from thyme.pipeline.infra.evaluate import parse_infra_series, plan_infra_evaluation
        from thyme.pipeline.infra.presets import PRESETS

        only = parse_infra_series(args.only)
        return plan_infra_evaluation(PRESETS[args.preset], warehouse, cores, only=only)

    def evaluate(
        self, spark: SparkSession, args: Namespace, warehouse: Warehouse, options: SweepOptions
    ) -> Evaluation:
        """Carries out the missing runs and computes the metrics."""
        from thyme.pipeline.infra.evaluate import evaluate_infra, parse_infra_series
        from thyme.pipeline.infra.presets import PRESETS

        only, preset = parse_infra_series(args.only), PRESETS[args.preset]
        return evaluate_infra(spark, preset, warehouse, only=only, **options._asdict())

    def report_tables(self) -> dict[str, tuple[str, ...]]:
        """The tables that the report reads."""
        from thyme.report.infra.points import METRICS_STAGE, TABLES

        return {METRICS_STAGE: TABLES}

    def make_report(self, folder: Path) -> Report:
        """Writes the report."""
        from thyme.report.infra.report import make_infra_report

        return make_infra_report(folder)
