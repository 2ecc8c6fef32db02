"""Statistics of the report: confidence intervals of quantities that have no formula for one.

Entry point: `ratio_interval`. Intervals of means are in the tables already (`ci95`).
Clauses: P7, S16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

RESAMPLES = 2_000
CONFIDENCE = 0.95


def ratio_interval(upper: Sequence[float], lower: Sequence[float]) -> tuple[float, float] | None:
    """The confidence interval of the ratio of two means, by bootstrap over the runs; None if a side
    has a single run, or no mean above 0. The same values give the same interval."""
    if min(len(upper), len(lower)) < 2 or min(lower) <= 0:
        return None

    def ratio(first: Any, second: Any, axis: int) -> Any:
        return first.mean(axis=axis) / second.mean(axis=axis)

    found = stats.bootstrap(
        (np.sort(upper), np.sort(lower)),
        ratio,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    return float(found.low), float(found.high)
