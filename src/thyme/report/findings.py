"""Findings: the result of checking a claim, its text formatting, and access to the tables.

Clauses: P7, S16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from thyme.report.tables import SUBSTRATES, Point, Tables

LARGEST = 196
"""Largest network of Thyme (journal article), for which it gives most numbers."""
MANY = 100
"""Minimum size for claims about “many nodes” or about growth with the network."""
CHURN_NODES = 100
"""Network size of Thyme (journal article) with churn and mobility."""
FLAT = 0.03
"""Maximum change of a ratio that counts as flat."""
NAMES = {"es": "ES", "ls": "LS", "dcs": "DCS"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of checking a claim: our numbers as text, and whether they agree with it.

    `agrees` is None if the measurements cannot decide the claim.
    """

    ours: str
    agrees: bool | None
    measured: bool = True


NOTHING = Finding("not measured in this sweep", None, measured=False)


class View:
    """The tables of one profile."""

    def __init__(self, tables: Tables, profile: str) -> None:
        self.tables = tables
        self.profile = profile

    def points(self, series: str, substrate: str, measure: str) -> list[Point]:
        return self.tables.points(series, self.profile, substrate, measure)

    def means(self, series: str, measure: str) -> dict[str, list[float]]:
        """The means over a series, by substrate; without substrates that have none."""
        lines = {
            name: [point.mean for point in self.points(series, name, measure)]
            for name in SUBSTRATES
        }
        return {name: line for name, line in lines.items() if line}

    def last(self, measure: str, series: str = "static") -> dict[str, float]:
        """The value of each substrate at the largest size, share or speed."""
        return {name: line[-1] for name, line in self.means(series, measure).items()}

    @property
    def largest(self) -> int | None:
        """The largest static network."""
        sizes = self.tables.xs("static", self.profile)
        return round(sizes[-1]) if sizes else None

    def whole(self, series: str, measure: str, needed: Iterable[str] = SUBSTRATES) -> bool:
        """Whether each of the substrates has at least two points."""
        lines = self.means(series, measure)
        return all(len(lines.get(name, [])) > 1 for name in needed)

    def scale(self, series: str) -> str:
        """A note if the network size of a series differs from that of the paper."""
        nodes = self.tables.nodes_of(series)
        return "" if nodes in (None, CHURN_NODES) else f" (with {nodes} nodes instead of 100)"


# Formatting and verdicts


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def named(values: dict[str, float], form: Callable[[float], str]) -> str:
    return ", ".join(f"{NAMES[name]} {form(value)}" for name, value in values.items())


def count(value: float) -> str:
    return f"{value:,.0f}"


def times(value: float) -> str:
    return f"{value:.2f}×"


def ms(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1_000:,.0f} s"
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def course(line: Sequence[float], form: Callable[[float], str]) -> str:
    """Formats the first and the last value."""
    return f"{form(line[0])} → {form(line[-1])}" if len(line) > 1 else form(line[0])


def courses(lines: dict[str, list[float]], form: Callable[[float], str]) -> str:
    return ", ".join(f"{NAMES[name]} {course(line, form)}" for name, line in lines.items())


def ratio(upper: float, lower: float) -> float:
    return upper / lower if lower else float("inf")


def at_largest(view: View) -> str:
    return f"at {view.largest} nodes: "


def only_at(view: View, nodes: int, agrees: bool) -> bool | None:
    """The verdict if the largest network has this size, else None."""
    return agrees if view.largest == nodes else None


def of_many(view: View, agrees: bool) -> bool | None:
    """The verdict if the largest network is large enough, else None."""
    return agrees if (view.largest or 0) >= MANY else None
