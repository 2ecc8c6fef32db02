"""Mean point: a mean over runs, with its confidence interval, as figures and claims read it.

Clause: P7.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeanPoint:
    """A mean over seeds, with the half width of its 95 % confidence interval."""

    x: float
    mean: float
    ci95: float
    runs: int

    @property
    def low(self) -> float:
        """Lower end of the confidence interval."""
        return self.mean - self.ci95

    @property
    def high(self) -> float:
        """Upper end of the confidence interval."""
        return self.mean + self.ci95
