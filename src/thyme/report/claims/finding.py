"""Findings: the result of checking a claim, its text formatting, and access to the tables.

Clauses: P7, S16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from thyme.report.statistics import ratio_interval
from thyme.report.tables import SUBSTRATES, EvaluationTables, MeasurePoint

LARGEST_NODES = 196
"""Largest network of Thyme (journal article), for which it gives most numbers."""
LARGE_NODES_MIN = 100
"""Minimum size for claims about “many nodes” or about growth with the network."""
CHURN_NODES = 100
"""Network size of Thyme (journal article) with churn and mobility."""
FLAT_TOLERANCE = 0.03
"""Maximum change of a ratio that counts as flat."""
SUBSTRATE_NAMES = {"es": "ES", "ls": "LS", "dcs": "DCS"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of checking a claim: our numbers as text, and whether they agree with it.

    `agrees` is None if the measurements cannot decide the claim.
    """

    ours: str
    agrees: bool | None
    measured: bool = True


NOT_MEASURED = Finding("not measured in this sweep", None, measured=False)


class ProfileTables:
    """The tables of one profile."""

    def __init__(self, tables: EvaluationTables, profile: str) -> None:
        self.tables = tables
        self.profile = profile

    def points(self, series: str, substrate: str, measure: str) -> list[MeasurePoint]:
        return self.tables.points(series, self.profile, substrate, measure)

    def means(self, series: str, measure: str) -> dict[str, list[float]]:
        """The means over a series, by substrate; without substrates that have none."""
        lines = {
            name: [point.mean for point in self.points(series, name, measure)]
            for name in SUBSTRATES
        }
        return {name: line for name, line in lines.items() if line}

    def last_means(self, measure: str, series: str = "static") -> dict[str, float]:
        """The value of each substrate at the largest size, share or speed."""
        return {name: line[-1] for name, line in self.means(series, measure).items()}

    @property
    def largest(self) -> int | None:
        """The largest static network."""
        sizes = self.tables.x_values("static", self.profile)
        return round(sizes[-1]) if sizes else None

    def has_points(self, series: str, measure: str, needed: Iterable[str] = SUBSTRATES) -> bool:
        """Whether each of the substrates has at least two points."""
        lines = self.means(series, measure)
        return all(len(lines.get(name, [])) > 1 for name in needed)

    def size_note(self, series: str) -> str:
        """A note if the network size of a series differs from that of the paper."""
        nodes = self.tables.largest_nodes(series)
        return "" if nodes in (None, CHURN_NODES) else f" (with {nodes} nodes instead of 100)"


# Formatting and verdicts


def format_percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def format_by_substrate(values: dict[str, float], formatter: Callable[[float], str]) -> str:
    return ", ".join(
        f"{SUBSTRATE_NAMES[name]} {formatter(value)}" for name, value in values.items()
    )


def format_count(value: float) -> str:
    return f"{value:,.0f}"


def format_ratio(value: float) -> str:
    return f"{value:.2f}×"


def format_ms(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1_000:,.0f} s"
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def format_range(line: Sequence[float], formatter: Callable[[float], str]) -> str:
    """Formats the first and the last value."""
    return f"{formatter(line[0])} → {formatter(line[-1])}" if len(line) > 1 else formatter(line[0])


def format_ranges(lines: dict[str, list[float]], formatter: Callable[[float], str]) -> str:
    return ", ".join(
        f"{SUBSTRATE_NAMES[name]} {format_range(line, formatter)}" for name, line in lines.items()
    )


def format_mean_ratio(view: ProfileTables, upper: str, lower: str, measure: str) -> str:
    """The ratio of two substrates at the largest static size, with its confidence interval."""
    means = view.last_means(measure)
    x = float(view.largest or 0)
    values = (
        view.tables.run_values("static", view.profile, name, measure, x) for name in (upper, lower)
    )
    found = ratio_interval(*values)
    interval = "" if found is None else f" ({found[0]:.2f}–{found[1]:.2f})"
    title = f"{SUBSTRATE_NAMES[upper]}/{SUBSTRATE_NAMES[lower]}"
    return f"{title} {format_ratio(ratio(means[upper], means[lower]))}{interval}"


def ratio(upper: float, lower: float) -> float:
    return upper / lower if lower else float("inf")


def largest_prefix(view: ProfileTables) -> str:
    return f"at {view.largest} nodes: "


def require_size(view: ProfileTables, nodes: int, agrees: bool) -> bool | None:
    """The verdict if the largest network has this size, else None."""
    return agrees if view.largest == nodes else None


def require_large_network(view: ProfileTables, agrees: bool) -> bool | None:
    """The verdict if the largest network is large enough, else None."""
    return agrees if (view.largest or 0) >= LARGE_NODES_MIN else None
