"""Figures 5.3 to 5.24 of the thesis, drawn from the points of an evaluation.

Entry point: `draw_figures`. Figures without measurements are left out. Marks are means over seeds,
bars their 95 % confidence intervals.
Clauses: P7, C23–C37.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from thyme.report.infra.points import InfraPoints
from thyme.report.mean_point import MeanPoint
from thyme.report.style import Canvas, apply_style

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#5b6a78"
STYLES: tuple[dict[str, Any], ...] = (
    {"color": BLUE, "marker": "o", "linestyle": "-"},
    {"color": RED, "marker": "s", "linestyle": (0, (5, 2))},
    {"color": GREEN, "marker": "^", "linestyle": (0, (2, 1.5))},
    {"color": ORANGE, "marker": "D", "linestyle": "-."},
    {"color": GREY, "marker": "v", "linestyle": ":"},
)
WAYS = {
    "replica": "nearest replica",
    "station": "nearest station",
    "far-station": "far station",
    "far-replica": "far replica",
    "cloud": "cloud",
}
OPERATIONS = ("insert", "delete", "subscribe", "unsubscribe", "retrieve")
Line = tuple[str, Sequence[MeanPoint]]


@dataclass(frozen=True, slots=True)
class InfraFigure:
    """A drawn figure."""

    name: str
    title: str
    source: str
    svg: str


def draw_figures(points: InfraPoints) -> list[InfraFigure]:
    """The figures whose experiments were run."""
    with apply_style():
        drawn = [
            *_station_figures(points),
            *_comparison_figures(points),
            *_cloud_figures(points),
        ]
    return [figure for figure in drawn if figure is not None]


def _station_figures(points: InfraPoints) -> Iterator[InfraFigure | None]:
    yield _lines(
        "fig5-3", "Messages routed by other nodes", "V Fig. 5.3",
        "size of the address store, share of the nodes", "InfraRouting messages",
        ("routed", points.line("addresses", "infra", "station.routed")),
    )  # fmt: skip
    yield _lines(
        "fig5-4", "Memory of the address store", "V Fig. 5.4",
        "size of the address store, share of the nodes", "bytes",
        ("full store", points.line("addresses", "infra", "address_store_bytes")),
    )  # fmt: skip
    yield _lines(
        "fig5-5", "Items requested from mobile nodes", "V Fig. 5.5", "decision cycle", "requests",
        ("with ranking", points.timeline("ranking", "ranking", "requested_at.")),
        ("without", points.timeline("ranking", "no-ranking", "requested_at.")),
    )  # fmt: skip
    hits = [
        (name, points.line("ranking", variant, "hit_ratio.local_popularity"))
        for name, variant in (("with ranking", "ranking"), ("without", "no-ranking"))
    ]
    yield _bars(
        "fig5-6", "Hit ratio of the local popularity cache", "V Fig. 5.6", "hit ratio", hits
    )
    yield _world_bars(points)
    yield _lines(
        "fig5-8", "Items sent to another station", "V Fig. 5.8", "answer", "items",
        ("with notices", points.timeline("consumption", "notices", "answer_items_at.")),
        ("without", points.timeline("consumption", "no-notices", "answer_items_at.")),
    )  # fmt: skip
    yield _lines(
        "fig5-10", "Downloads served by the station", "V Fig. 5.10",
        "batch inserts per cycle", "downloads",
        ("served", points.line("batches", "infra", "station.items_served")),
    )  # fmt: skip
    yield _lines(
        "fig5-11", "CPU time of batch inserts", "V Fig. 5.11", "batch inserts per cycle", "ms",
        ("CPU time", points.line("batches", "infra", "division_cpu_ms")),
    )  # fmt: skip


def _comparison_figures(points: InfraPoints) -> Iterator[InfraFigure | None]:
    for name, measure, title, y, scale in (
        (
            "fig5-12",
            "mobile.messages_to_mobiles",
            "Messages between mobile nodes",
            "thousand messages",
            1e-3,
        ),
        ("fig5-13", "mobile.bytes", "Bytes of mobile nodes", "MB", 1e-6),
    ):
        lines = [
            (label, _scaled(points.line("traffic", variant, measure), scale))
            for label, variant in (("geographic", "dcs"), ("with a station", "infra"))
        ]
        yield _bars(name, title, f"V Fig. {name[3:].replace('-', '.')}", y, lines)
    yield _lines(
        "fig5-14", "Messages caused by one move", "V Fig. 5.14", "nodes per cell", "messages",
        ("geographic, received", points.line("move", "dcs", "move.received")),
        ("geographic, sent", points.line("move", "dcs", "move.sent")),
        ("logical", points.line("move", "infra", "move.received")),
    )  # fmt: skip
    yield _operation_bars(points)
    yield _lines(
        "fig5-16", "Retrieves by size", "V Fig. 5.16", "MB", "seconds",
        ("two hops", _seconds(points.line("downloads", "dcs-2", "latency_ms_mean.retrieve"))),
        ("direct", _seconds(points.line("downloads", "dcs-1", "latency_ms_mean.retrieve"))),
        ("from the station", _seconds(points.line("downloads", "station", "download_ms"))),
    )  # fmt: skip
    yield _lines(
        "fig5-20", "Past objects per subscription", "V Fig. 5.20", "seconds after the goal",
        "objects",
        ("from mobile nodes", points.timeline("goal", "infra", "past_from_cells_at.")),
        ("from the station", points.timeline("goal", "infra", "past_from_stations_at.")),
    )  # fmt: skip
    hot = [
        (title, points.line("goal", variant, "hot.energy_j"))
        for title, variant in (("geographic", "dcs"), ("with a station", "infra"))
    ]
    yield _bars("fig5-21", "Energy of the radio of a hot node, above idle", "V Fig. 5.21", "J", hot)


def _cloud_figures(points: InfraPoints) -> Iterator[InfraFigure | None]:
    ways = [
        (title, _seconds(points.line("downloads", way, "download_ms")))
        for way, title in WAYS.items()
    ]
    yield _lines("fig5-23", "Downloads by way and size", "V Fig. 5.23", "MB", "seconds", *ways)
    cloud = {point.x: point for point in points.line("downloads", "cloud", "download_ms")}
    saved: list[Line] = [
        (
            title,
            [
                MeanPoint(
                    point.x / 1e6,
                    (cloud[point.x].mean - point.mean) / 1e3,
                    (cloud[point.x].ci95 + point.ci95) / 1e3,
                    point.runs,
                )
                for point in points.line("downloads", way, "download_ms")
                if point.x in cloud
            ],
        )
        for way, title in WAYS.items()
        if way != "cloud"
    ]
    yield _lines(
        "fig5-24", "How much faster than the cloud", "V Fig. 5.24", "MB", "seconds", *saved
    )


def _scaled(line: Sequence[MeanPoint], scale: float) -> list[MeanPoint]:
    return [MeanPoint(p.x, scale * p.mean, scale * p.ci95, p.runs) for p in line]


def _seconds(line: Sequence[MeanPoint]) -> list[MeanPoint]:
    """Milliseconds by bytes as seconds by megabytes."""
    return [MeanPoint(p.x / 1e6, p.mean / 1e3, p.ci95 / 1e3, p.runs) for p in line]


# Forms


def _lines(name: str, title: str, source: str, x: str, y: str, *lines: Line) -> InfraFigure | None:
    drawn = [line for line in lines if line[1]]
    if not drawn:
        return None
    canvas = Canvas()
    for (label, line), style in zip(drawn, STYLES, strict=False):
        canvas.axes.errorbar(
            [point.x for point in line],
            [point.mean for point in line],
            yerr=[point.ci95 for point in line],
            capsize=2.5,
            label=label,
            **style,
        )
    canvas.axes.set_xlabel(x)
    canvas.axes.set_ylabel(y)
    canvas.axes.set_ylim(bottom=0)
    if len(drawn) > 1:
        canvas.axes.legend()
    return InfraFigure(name, title, source, canvas.render_svg())


def _bars(name: str, title: str, source: str, y: str, lines: Sequence[Line]) -> InfraFigure | None:
    drawn = [(label, line[0]) for label, line in lines if line]
    if len(drawn) < 2:
        return None
    canvas = Canvas()
    canvas.axes.bar(
        [label for label, _ in drawn],
        [point.mean for _, point in drawn],
        yerr=[point.ci95 for _, point in drawn],
        color=[style["color"] for style in STYLES[: len(drawn)]],
        capsize=4,
        width=0.5,
    )
    canvas.axes.set_ylabel(y)
    return InfraFigure(name, title, source, canvas.render_svg())


def _grouped(
    name: str,
    title: str,
    source: str,
    y: str,
    groups: Sequence[str],
    bars: Sequence[tuple[str, Sequence[MeanPoint]]],
) -> InfraFigure:
    """Bars in groups; each of `bars` has one point per group."""
    canvas = Canvas()
    width = 0.8 / len(bars)
    for number, (label, line) in enumerate(bars):
        canvas.axes.bar(
            [place + (number - (len(bars) - 1) / 2) * width for place in range(len(groups))],
            [point.mean for point in line],
            yerr=[point.ci95 for point in line],
            width=width,
            capsize=2,
            label=label,
            color=STYLES[number]["color"],
        )
    canvas.axes.set_xticks(range(len(groups)), groups)
    canvas.axes.set_ylabel(y)
    top = max(point.mean + point.ci95 for _, line in bars for point in line)
    canvas.axes.set_ylim(0, 1.25 * top or 1.0)  # space for the legend
    canvas.axes.legend(ncols=len(bars), loc="upper left")
    return InfraFigure(name, title, source, canvas.render_svg())


def _world_bars(points: InfraPoints) -> InfraFigure | None:
    bars = [
        (f"world {world}", points.line("worlds", "publishes", f"part.{world}"))
        for world in (1, 2, 3)
    ]
    if len({len(line) for _, line in bars}) != 1 or not bars[0][1]:
        return None
    groups = [f"{point.x:g}/1/1" for point in bars[0][1]]
    title = "Parts of the local popularity cache"
    return _grouped("fig5-7", title, "V Fig. 5.7", "share of the cache", groups, bars)


def _operation_bars(points: InfraPoints) -> InfraFigure | None:
    lines = [points.line("operations", "dcs", f"latency_ms_mean.{kind}") for kind in OPERATIONS]
    if not all(len(line) == 2 for line in lines):
        return None
    bars = [
        (words, [line[hops] for line in lines]) for hops, words in ((0, "one hop"), (1, "two hops"))
    ]
    groups = [kind[:7] + ("." if len(kind) > 7 else "") for kind in OPERATIONS]
    return _grouped("fig5-15", "Latency of operations", "V Fig. 5.15", "ms", groups, bars)
