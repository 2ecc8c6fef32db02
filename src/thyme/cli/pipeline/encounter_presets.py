"""The presets `mobuser` and `mobuser-quick`: the evaluation of the MobUser paper.

Entry point: `EncounterPresets`, a `PresetFamily`.
Clauses: P5–P7, U8, U9, S16.
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


class EncounterPresets:
    """MobUser, MFPS and RAPID by encounters; a `PresetFamily`."""

    presets: tuple[str, ...] = ("mobuser", "mobuser-quick")

    def check_options(self, args: Namespace) -> None:
        """Refuses options of the radio's presets, and unknown series."""
        from thyme.pipeline.encounters.presets import parse_encounter_series

        refuse_radio_options(args)
        parse_encounter_series(args.only)

    def plan(self, args: Namespace, warehouse: Warehouse, cores: int) -> EvaluationPlan:
        """Plans the runs."""
        from thyme.pipeline.encounters.evaluate import plan_encounter_evaluation
        from thyme.pipeline.encounters.presets import PRESETS, parse_encounter_series

        only = parse_encounter_series(args.only)
        return plan_encounter_evaluation(PRESETS[args.preset], warehouse, cores, only=only)

    def evaluate(
        self, spark: SparkSession, args: Namespace, warehouse: Warehouse, options: SweepOptions
    ) -> Evaluation:
        """Carries out the missing runs and computes the metrics."""
        from thyme.pipeline.encounters.evaluate import evaluate_encounters
        from thyme.pipeline.encounters.presets import PRESETS, parse_encounter_series

        only = parse_encounter_series(args.only)
        preset = PRESETS[args.preset]
        return evaluate_encounters(spark, preset, warehouse, only=only, **options._asdict())

    def report_tables(self) -> dict[str, tuple[str, ...]]:
        """The tables that the report reads."""
        from thyme.report.encounters.points import STAGES

        return STAGES

    def make_report(self, folder: Path) -> Report:
        """Writes the report."""
        from thyme.report.encounters.report import make_encounter_report

        return make_encounter_report(folder)
