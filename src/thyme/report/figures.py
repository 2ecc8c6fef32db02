"""Figures: draws the figures of Thyme (journal article) from the measurements.

Entry point: `draw_figures`. Each figure is a panel of the article, under its number there; panels
without measurements are omitted. Marks are means over the runs of a point, bars one standard
deviation to either side.
Clauses: P7, C1–C16, S16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from thyme.report.claims.model import work_per_node
from thyme.report.style import LINE_STYLES, Canvas, apply_style
from thyme.report.tables import OPERATIONS, SUBSTRATES, EvaluationTables, MeasurePoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A drawn figure."""

    name: str
    """Name of the file."""
    number: str
    """Number of the figure in Thyme (journal article)."""
    title: str
    svg: str
    source: str
    """The corresponding figure of the journal article, F; empty if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Definition of a figure: lines of a series over its x values."""

    number: str
    title: str
    series: str
    y: str
    lines: tuple[tuple[str, str, str], ...]
    """Substrate, measure, and key of the line style in LINE_STYLES."""
    scale: float = 1.0
    log: bool = False
    share: bool = False
    """Whether values are shares from 0 to 1."""
    include_static: bool = False
    """Whether the value of the static run is drawn at x = 0, too."""


def _per_substrate(measure: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((name, measure, name) for name in SUBSTRATES)


def _per_operation(substrate: str, measure: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((substrate, f"{measure}.{kind}", kind) for kind in (*OPERATIONS, "notification"))


MB_PER_BYTE, S_PER_MS = 1e-6, 1e-3
PANELS = (
    Panel(number="10a", title="Transmitted at the PHY", series="static", y="MB",
          lines=_per_substrate("phy_bytes"), scale=MB_PER_BYTE),
    Panel(number="10b", title="MAC retransmissions", series="static", y="frames",
          lines=_per_substrate("mac_retransmissions")),
    Panel(number="10c", title="Over the retry limit", series="static", y="frames",
          lines=_per_substrate("mac_exceeded")),
    Panel(number="10d", title="Forwarded at the network layer", series="static", y="MB",
          lines=_per_substrate("forwarded_bytes"), scale=MB_PER_BYTE),
    Panel(number="10e", title="Routing control", series="static", y="MB (logarithmic)",
          lines=_per_substrate("control_bytes"), scale=MB_PER_BYTE, log=True),
    Panel(number="11a", title="Success in ES", series="static", y="succeeded",
          lines=_per_operation("es", "success"), share=True),
    Panel(number="11b", title="Success in LS", series="static", y="succeeded",
          lines=_per_operation("ls", "success"), share=True),
    Panel(number="11c", title="Success in DCS", series="static", y="succeeded",
          lines=_per_operation("dcs", "success"), share=True),
    Panel(number="11d", title="Mean latency in ES", series="static", y="ms",
          lines=_per_operation("es", "latency_ms_mean")),
    Panel(number="11e", title="Mean latency in LS", series="static", y="ms",
          lines=_per_operation("ls", "latency_ms_mean")),
    Panel(number="11f", title="Mean latency in DCS", series="static", y="ms",
          lines=_per_operation("dcs", "latency_ms_mean")),
    Panel(number="12", title="Crashes: notifications", series="crash", y="succeeded",
          lines=_per_substrate("success.notification"), share=True),
    Panel(number="13a", title="Transient churn: success in LS", series="transient",
          y="succeeded", share=True,
          lines=(("ls", "success.retrieve", "retrieve"),
                 ("ls", "success.notification", "notification"))),
    Panel(number="13b", title="Transient churn: latency in LS", series="transient", y="s",
          scale=S_PER_MS, lines=(("ls", "latency_ms_mean.retrieve", "retrieve"),
                          ("ls", "latency_ms_mean.notification", "notification"))),
    Panel(number="14a", title="Transient churn: slowest notification", series="transient", y="s",
          lines=_per_substrate("latency_ms_max.notification"), scale=S_PER_MS, include_static=True),
    Panel(number="14b", title="Transient churn: forwarded", series="transient", y="MB",
          lines=_per_substrate("forwarded_bytes"), scale=MB_PER_BYTE, include_static=True),
    Panel(number="15a", title="Mobility: notifications", series="mobile", y="succeeded",
          lines=_per_substrate("success.notification"), share=True),
    Panel(number="15b", title="Mobility: latency of retrieves", series="mobile", y="ms",
          lines=_per_substrate("latency_ms_mean.retrieve")),
)  # fmt: skip
X_LABELS = {
    "static": "nodes",
    "crash": "publishers that crash",
    "transient": "nodes that come and go",
    "mobile": "highest speed (m/s)",
}


def draw_figures(tables: EvaluationTables, profile: str) -> Iterator[Drawing]:
    """Draws every figure with measurements, in the order of the article."""
    with apply_style():
        yield from _draw_cell_work(tables, profile)
        yield from _draw_posts(tables)
        yield from _draw_timeline(tables)
        for panel in PANELS:
            lines = list(_panel_lines(tables, profile, panel))
            if lines:
                yield _make_drawing(panel.number, panel.title, _draw_panel(panel, lines))


def _make_drawing(number: str, title: str, canvas: Canvas) -> Drawing:
    return Drawing(
        name=f"figure-{number}",
        number=number,
        title=title,
        svg=canvas.render_svg(),
        source=f"F Fig. {number}",
    )


FigureLine = tuple[str, list[MeasurePoint]]


def _panel_lines(tables: EvaluationTables, profile: str, panel: Panel) -> Iterator[FigureLine]:
    nodes = float(tables.largest_nodes(panel.series) or 0)
    for substrate, measure, look in panel.lines:
        points = tables.points(panel.series, profile, substrate, measure)
        if not points:
            continue
        still = (
            tables.point_at("static", profile, substrate, measure, nodes)
            if panel.include_static
            else None
        )
        if still is not None:
            points = [_shift_x(still, 0.0), *points]
        yield look, points


def _shift_x(point: MeasurePoint, x: float) -> MeasurePoint:
    return MeasurePoint(
        x=x, mean=point.mean, sd=point.sd, runs=point.runs, least=point.least, most=point.most
    )


def _draw_panel(panel: Panel, lines: Sequence[FigureLine]) -> Canvas:
    canvas = Canvas()
    axes = canvas.axes
    for look, points in lines:
        axes.errorbar(
            [point.x for point in points],
            [point.mean * panel.scale for point in points],
            yerr=[(point.sd or 0.0) * panel.scale for point in points],
            elinewidth=1.0,
            capsize=2.5,
            **LINE_STYLES[look],
        )
    xs = sorted({point.x for _, points in lines for point in points})
    axes.set_xticks(xs)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_x_formatter(panel.series)))
    axes.set_xlabel(X_LABELS[panel.series])
    axes.set_ylabel(panel.y)
    _set_y(canvas, panel, lines)
    axes.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, handlelength=2.6, columnspacing=1.2
    )
    return canvas


def _x_formatter(series: str) -> Callable[[float, int], str]:
    if series in ("crash", "transient"):
        return lambda x, _: f"{100 * x:g} %"
    return lambda x, _: f"{x:g}"


def _set_y(canvas: Canvas, panel: Panel, lines: Sequence[FigureLine]) -> None:
    axes = canvas.axes
    if panel.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.10g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    elif panel.share:
        lowest = min(point.mean - (point.sd or 0.0) for _, points in lines for point in points)
        bottom = 0.95 if lowest >= 0.955 else max(0.0, lowest - 0.15 * (1 - lowest))
        axes.set_ylim(bottom, 1 + 0.04 * (1 - bottom))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.4g} %"))
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.10g}"))


# Other figures


def _draw_cell_work(tables: EvaluationTables, profile: str) -> Iterator[Drawing]:
    """Thyme (journal article), Fig. 8: by formula, and in the static runs of DCS."""
    found = work_per_node(tables, profile)
    most = max([10, *(size for size, _ in found)])
    canvas = Canvas()
    axes = canvas.axes
    sizes = range(1, most + 1)
    axes.plot(
        sizes,
        [100 / size for size in sizes],
        color="#5b6a78",
        linestyle=(0, (5, 2)),
        label="by formula: 100 / nodes",
    )
    if found:
        look = LINE_STYLES["dcs"] | {"label": "simulated", "linestyle": "none"}
        axes.plot([size for size, _ in found], [work for _, work in found], **look)
    axes.set_xticks(range(1, most + 1))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("nodes in the cell")
    axes.set_ylabel("messages per node")
    axes.legend(loc="upper right")
    yield _make_drawing("8", "Notification work of a node, for 100 notifications", canvas)


def _draw_posts(tables: EvaluationTables) -> Iterator[Drawing]:
    """Imported posts over time, with the window of the trace marked (P3)."""
    window = tables.notes.get("window")
    if window is None or "histogram" not in tables.tables:
        return
    width = timedelta(seconds=window["bin_s"])
    starts_us, length_s = window["timetable"]["starts_us"], window["timetable"]["length_s"]
    canvas = Canvas(width_in=9.0)
    axes = canvas.axes
    rows = tables.table_rows("histogram")
    for column, colour, label in (
        ("posts", "#c3ccd4", "all posts"),
        ("tagged", LINE_STYLES["insert"]["color"], "with tags"),
    ):
        xs = [_instant(row["at_us"]) for row in rows]
        heights = [row[column] for row in rows]
        axes.bar(xs, heights, width=width, align="edge", color=colour, label=label)  # type: ignore[arg-type]
    begin = _instant(starts_us)
    axes.axvspan(
        begin,  # type: ignore[arg-type]
        begin + timedelta(seconds=length_s),  # type: ignore[arg-type]
        facecolor="#E69F00",
        edgecolor="#8c6d1f",
        alpha=0.25,
        label="window",
    )
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
    axes.set_xlabel("UTC")
    axes.set_ylabel(f"posts in {window['bin_s'] // 60:,} min")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    yield Drawing(
        name="posts",
        number="9",
        title="Imported posts over time, and the window of the trace",
        svg=canvas.render_svg(),
        source="",
    )


def _instant(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us / 1e6, UTC)


def _draw_timeline(tables: EvaluationTables) -> Iterator[Drawing]:
    """Thyme (journal article), Fig. 9: operations over time in the trace of seed 1."""
    rows = [row for row in tables.table_rows("timeline") if row["seed"] == 1]
    if not rows:
        return
    canvas = Canvas(width_in=9.0)
    axes = canvas.axes
    for kind in ("insert", "subscribe", "delete", "unsubscribe"):
        some = sorted((row["at_s"], row["operations"]) for row in rows if row["kind"] == kind)
        look = LINE_STYLES[kind] | {"linestyle": "-" if kind == "insert" else "none"}
        middles, counts = [at_s + 5 for at_s, _ in some], [count for _, count in some]
        axes.plot(middles, counts, markersize=4, **look)
    axes.set_yscale("symlog", linthresh=10)
    axes.set_ylim(0, 1.3 * max(row["operations"] for row in rows))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0, 600)
    axes.set_xlabel("s since the operations began")
    axes.set_ylabel("operations in 10 s")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
    users = max(row["users"] for row in tables.table_rows("trace_counts"))
    yield _make_drawing("9", f"Operations over time, {users} users", canvas)
