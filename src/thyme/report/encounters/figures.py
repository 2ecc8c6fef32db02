"""Figures 1 to 6 of the MobUser paper, drawn from the points of an evaluation.

Entry point: `draw_figures`.
Clause: P7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from thyme.report.encounters.points import PROTOCOLS, EncounterPoints
from thyme.report.mean_point import MeanPoint
from thyme.report.style import Canvas, apply_style

STYLES: dict[str, dict[str, Any]] = {
    "mobuser": {"color": "#009E73", "marker": "^", "linestyle": "-", "label": "MobUser"},
    "mfps": {"color": "#D55E00", "marker": "s", "linestyle": (0, (5, 2)), "label": "MFPS"},
    "rapid": {"color": "#0072B2", "marker": "o", "linestyle": (0, (2, 1.5)), "label": "RAPID"},
}


@dataclass(frozen=True, slots=True)
class EncounterFigure:
    """A drawn figure."""

    name: str
    caption: str
    svg: str


def draw_figures(points: EncounterPoints) -> list[EncounterFigure]:
    """The figures whose series were run."""
    with apply_style():
        return list(_draw(points))


def _draw(points: EncounterPoints) -> Iterator[EncounterFigure]:
    if line := points.line("lists", "mobuser", "reliability"):
        canvas = Canvas()
        _plot(canvas, "mobuser", line)
        yield _finish(
            canvas, "fig1", "share of the recent list", "reliability",
            "Figure 1: reliability by the size of the recent list",
        )  # fmt: skip
    if points.has("time"):
        hours = points.parameters("time")[-1]
        lines = {name: points.timeline("time", name, hours) for name in PROTOCOLS}
        yield _times("fig2", lines, "Figure 2: reliability over time, one topic")
    if points.has("density"):
        for measure, part, label in (
            ("bytes", "a", "bytes sent"),
            ("reliability", "b", "reliability"),
        ):
            canvas = Canvas()
            for name in PROTOCOLS:
                _plot(canvas, name, points.line("density", name, measure))
            canvas.axes.set_yscale("log")
            yield _finish(
                canvas, f"fig3{part}", "side of the area, m", label,
                f"Figure 3({part}): {label} by density",
            )  # fmt: skip
        for side_m in _ends(points.parameters("density")):
            lines = {name: points.timeline("density", name, side_m) for name in PROTOCOLS}
            caption = f"Figure 4: reliability over time, {side_m:g} m"
            yield _times(f"fig4-{side_m:g}", lines, caption)
    if points.has("rare"):
        for measure, part, label in (
            ("bytes", "a", "bytes sent"),
            ("reliability", "b", "reliability"),
        ):
            canvas = Canvas()
            for name in PROTOCOLS:
                _plot(canvas, name, points.line("rare", name, measure))
            yield _finish(
                canvas, f"fig5{part}", "subscription probability of the rarest topic", label,
                f"Figure 5({part}): {label} by subscription probability",
            )  # fmt: skip
        for probability in _ends(points.parameters("rare")):
            lines = {name: points.timeline("rare", name, probability) for name in PROTOCOLS}
            caption = f"Figure 6: reliability over time, probability {probability:.0%}"
            yield _times(f"fig6-{probability:g}", lines, caption)


def _ends(values: list[float]) -> list[float]:
    return sorted({values[0], values[-1]})


def _times(name: str, lines: dict[str, list[MeanPoint]], caption: str) -> EncounterFigure:
    canvas = Canvas()
    for protocol, line in lines.items():
        style = {**STYLES[protocol], "marker": ""}
        xs = [0.0, *(point.x / 60 for point in line)]
        canvas.axes.plot(xs, [0.0, *(point.mean for point in line)], **style)
    return _finish(canvas, name, "minutes", "reliability", caption)


def _plot(canvas: Canvas, protocol: str, line: list[MeanPoint]) -> None:
    canvas.axes.errorbar(
        [point.x for point in line],
        [point.mean for point in line],
        yerr=[point.ci95 for point in line],
        capsize=2.5,
        **STYLES[protocol],
    )


def _finish(canvas: Canvas, name: str, x: str, y: str, caption: str) -> EncounterFigure:
    canvas.axes.set_xlabel(x)
    canvas.axes.set_ylabel(y)
    canvas.axes.legend()
    return EncounterFigure(name, caption, canvas.render_svg())
