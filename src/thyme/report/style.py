"""The style of all figures: colours, markers and line styles.

Colours are those of Okabe and Ito, for colour-blind readers; every line also has its own marker and
dash pattern, so that figures can be read in grey.
Clause: P7.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH_IN, HEIGHT_IN = 4.0, 3.0
INK, SOFT, GRID = "#22303c", "#5b6a78", "#dfe5ea"
LINE_STYLES: dict[str, dict[str, Any]] = {
    "es": {"color": "#D55E00", "marker": "s", "linestyle": (0, (5, 2)), "label": "ES"},
    "ls": {"color": "#0072B2", "marker": "o", "linestyle": (0, (2, 1.5)), "label": "LS"},
    "dcs": {"color": "#009E73", "marker": "^", "linestyle": "-", "label": "DCS"},
    "insert": {"color": "#0072B2", "marker": "o", "linestyle": "-", "label": "insert"},
    "delete": {"color": "#56B4E9", "marker": "v", "linestyle": (0, (2, 1.5)), "label": "delete"},
    "subscribe": {"color": "#E69F00", "marker": "s", "linestyle": "-", "label": "subscribe"},
    "unsubscribe": {
        "color": "#8c6d1f", "marker": "D", "linestyle": (0, (2, 1.5)), "label": "unsubscribe",
    },
    "retrieve": {"color": "#CC79A7", "marker": "P", "linestyle": (0, (5, 2)), "label": "retrieve"},
    "notification": {
        "color": "#111111", "marker": "^", "linestyle": "-", "label": "notification",
    },
}  # fmt: skip
SETTINGS: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "svg.hashsalt": "thyme",  # same figure, same bytes
}


class Canvas:
    """A figure under construction."""

    def __init__(self, width_in: float = WIDTH_IN, height_in: float = HEIGHT_IN) -> None:
        self.figure = Figure(figsize=(width_in, height_in), layout="constrained")
        self.axes: Axes = self.figure.add_subplot()

    def render_svg(self) -> str:
        """Renders the figure as SVG; equal figures give equal text."""
        text = io.StringIO()
        self.figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
        return text.getvalue()


@contextmanager
def apply_style() -> Iterator[None]:
    """Applies the style to figures drawn inside the block."""
    with mpl.rc_context(SETTINGS):
        yield
