"""The histogram of posts over time, drawn with block characters in a terminal.

Entry point: `render_histogram`, a pure function.
Clause: P3.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo

COLUMNS_MAX, ROWS = 72, 5
SECOND_US = 1_000_000
_BLOCKS = " ▁▂▃▄▅▆▇█"


def render_histogram(
    bins: Sequence[tuple[int, int]], bin_s: int, window_us: tuple[int, int], zone: tzinfo
) -> list[str]:
    """Lines of text: a bar per time span, an axis with the window marked, and the times of both
    ends. `bins` are start instants with numbers of posts; spans without posts may be missing."""
    first_us, column_us, counts = _as_columns(bins, bin_s)
    most = max(counts)
    width = len(counts)
    label = f"{most:,}"
    lines = [f"posts per {_format_length(column_us // SECOND_US)}"]
    for row in range(ROWS - 1, -1, -1):
        bar = "".join(_block(count, most, row) for count in counts)
        lines.append(f"{label if row == ROWS - 1 else '':>{len(label)}} {bar}".rstrip())
    left = max(0, min(width - 1, (window_us[0] - first_us) // column_us))
    right = max(left, min(width - 1, (window_us[1] - 1 - first_us) // column_us))
    axis = "─" * left + "━" * (right - left + 1) + "─" * (width - 1 - right)
    lines.append(f"{0:>{len(label)}} {axis}")
    ends = (
        datetime.fromtimestamp(at_us // SECOND_US, zone)
        for at_us in (first_us, first_us + width * column_us)
    )
    start, end = (f"{moment:%Y-%m-%d %H:%M}" for moment in ends)
    lines.append(f"{'':>{len(label)}} {start}{end:>{max(width - len(start), len(end) + 1)}}")
    return lines


def _as_columns(bins: Sequence[tuple[int, int]], bin_s: int) -> tuple[int, int, list[int]]:
    """The first instant, the length of a column, and the posts of each column."""
    first_us, last_us = bins[0][0], bins[-1][0]
    spans = (last_us - first_us) // (bin_s * SECOND_US) + 1
    column_us = -(-spans // COLUMNS_MAX) * bin_s * SECOND_US
    counts = [0] * ((last_us - first_us) // column_us + 1)
    for at_us, posts in bins:
        counts[(at_us - first_us) // column_us] += posts
    return first_us, column_us, counts


def _block(count: int, most: int, row: int) -> str:
    """The part of a bar in one line of text; any post at all shows in the lowest."""
    eighths = -(-count * ROWS * 8 // most) if most else 0
    return _BLOCKS[max(0, min(8, eighths - 8 * row))]


def _format_length(seconds: int) -> str:
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds % unit == 0:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
