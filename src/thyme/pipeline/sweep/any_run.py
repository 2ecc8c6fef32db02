"""The kinds of runs that a sweep simulates."""

from __future__ import annotations

from thyme.pipeline.sweep.infra_run import InfraRun
from thyme.pipeline.sweep.planned_run import PlannedRun

AnyRun = PlannedRun | InfraRun
"""A run of the papers' substrates, or one of Thyme-Infrastructure."""
