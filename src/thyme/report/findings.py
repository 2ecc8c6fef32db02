"""Findings: what a sweep's tables say to a claim, in numbers, in words, and as a verdict.

Clauses: P7, S16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from thyme.report.tables import SUBSTRATES, Point, Tables

LARGEST = 196
"""The documents' largest network, for which they give most numbers."""
MANY = 100
"""Where the documents say “many nodes”, or that something grows with the network."""
CHURN_NODES = 100
"""The documents' networks with churn and mobility."""
FLAT = 0.03
"""How far a ratio may move and still count as flat."""
NAMES = {"es": "ES", "ls": "LS", "dcs": "DCS"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found: numbers in words, and whether they agree; None if these cannot say it."""

    ours: str
    agrees: bool | None
    measured: bool = True


NOTHING = Finding("nothing of it is in this sweep", None, measured=False)


class View:
    """The tables of one profile."""

    def __init__(self, tables: Tables, profile: str) -> None:
        self.tables = tables
        self.profile = profile

    def points(self, series: str, substrate: str, measure: str) -> list[Point]:
        return self.tables.points(series, self.profile, substrate, measure)

    def means(self, series: str, measure: str) -> dict[str, list[float]]:
        """The line of each substrate that has one."""
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
        """Whether these substrates have at least two points."""
        lines = self.means(series, measure)
        return all(len(lines.get(name, [])) > 1 for name in needed)

    def scale(self, series: str) -> str:
        """Says if a series was run in another network than the documents'."""
        nodes = self.tables.nodes_of(series)
        return "" if nodes in (None, CHURN_NODES) else f" (with {nodes} nodes instead of 100)"


# Words


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
    """From the first point to the last."""
    return f"{form(line[0])} → {form(line[-1])}" if len(line) > 1 else form(line[0])


def courses(lines: dict[str, list[float]], form: Callable[[float], str]) -> str:
    return ", ".join(f"{NAMES[name]} {course(line, form)}" for name, line in lines.items())


def ratio(upper: float, lower: float) -> float:
    return upper / lower if lower else float("inf")


def at_largest(view: View) -> str:
    return f"at {view.largest} nodes: "


def only_at(view: View, nodes: int, agrees: bool) -> bool | None:
    """A verdict that only this size can give."""
    return agrees if view.largest == nodes else None


def of_many(view: View, agrees: bool) -> bool | None:
    """A verdict that only a large network can give."""
    return agrees if (view.largest or 0) >= MANY else None
