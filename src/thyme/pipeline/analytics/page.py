"""Page: the tables of the analytics as one self-contained HTML page that refreshes itself.

Entry points: `render_page`, `PageServer`. The page needs neither a network nor a script from
elsewhere; the server is Python's own, on loopback unless another address is given.
Clause: P9.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from string import Template
from typing import Any

import msgspec

from thyme.model.errors import InputError
from thyme.pipeline.analytics.measures import UNKNOWN
from thyme.pipeline.analytics.tables import AnalyticsTables

REFRESH_S = 2
WINDOWS_SHOWN = 6
TAGS_SHOWN = 20
ROWS_SHOWN = 60
DAY_US = 86_400_000_000
WORLD_DIGITS = 12
NO_CELL = "none"
"""The cell of stations, and of nodes of substrates without cells."""
_WINDOW_COLUMNS = ("window", "published")
_TEXT_COLUMNS = ("window", "published", "of", "cell", "node", "writer")

_PAGE = Template("""\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Thyme live analytics</title>
<meta http-equiv="refresh" content="$refresh">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 84rem; padding: 0 1rem;
       color: #1d2733; background: #fbfbf9; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.05rem; margin: 0 0 .5rem; }
p.facts { color: #5b6875; margin: 0 0 1.2rem; } p.bad { color: #a3341f; }
main { columns: 2 32rem; column-gap: 1.2rem; }
section { background: #fff; border: 1px solid #e2e5e8; border-radius: 6px; padding: .9rem 1rem;
          overflow-x: auto; break-inside: avoid; margin: 0 0 1.2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 600; color: #5b6875; border-bottom: 1px solid #e2e5e8; }
td { text-align: right; padding: .1rem .4rem; white-space: nowrap; } th { padding: .1rem .4rem; }
th.text, td.text { text-align: left; }
th { white-space: nowrap; } tr.begins td { border-top: 1px solid #eef0f2; }
td.bar { width: 35%; padding: .25rem .4rem; }
td.bar i { display: block; height: .7rem; background: #4d7c5f; border-radius: 2px; }
@media (prefers-color-scheme: dark) {
  body { background: #15191d; color: #dde3e8; }
  section { background: #1c2227; border-color: #333c44; }
  th, p.facts { color: #93a1ad; } th, tr.begins td { border-color: #333c44; }
  td.bar i { background: #6fa585; }
}
</style></head><body>
<h1>Thyme live analytics</h1>
$head
<main>$sections</main>
</body></html>
""")


def render_page(tables: AnalyticsTables) -> str:
    """The page of the tables."""
    worlds = {row.world for rows in (tables.tags, tables.ratios, tables.load) for row in rows}
    several = len(worlds) > 1

    def name(row: Any, text: str) -> str:
        """The name of a row, with its world if there are several."""
        return f"{text} ({row.world[:WORLD_DIGITS]})" if several else text

    sections = [
        _tags(tables, name),
        _latency(tables, name),
        _section(
            "Notifications: lost and late",
            ("published", "expected", "in time", "late", "lost", "unsure"),
            (
                (_clock(row.window_us), row.expected, row.in_time, row.late, row.lost, row.unsure)
                for row in recent(tables.recall)
            ),
        ),
        _section(
            "Hits and successes",
            ("window", "of", "hits", "total", "ratio"),
            (
                (
                    _clock(row.window_us),
                    name(row, row.name),
                    row.hits,
                    row.total,
                    f"{row.ratio:.1%}",
                )
                for row in recent(tables.ratios)
            ),
        ),
        _load(tables, name),
        _section(
            "Clocks",
            ("node", "peers", "ahead of peers, ms", "events ahead", "at most, ms"),
            (
                (row.node[:12], row.peers, row.offset_ms, row.ahead_events, row.ahead_ms_max)
                for row in tables.clocks[:ROWS_SHOWN]
            ),
        ),
        _section(
            "Writers",
            ("writer", "events", "missing"),
            ((row.writer, row.events, row.missing) for row in tables.writers[:ROWS_SHOWN]),
        ),
    ]
    return _PAGE.substitute(refresh=REFRESH_S, head=_head(tables), sections="".join(sections))


def recent(rows: Sequence[Any]) -> list[Any]:
    """The rows of the last windows, newest first."""
    windows = sorted({row.window_us for row in rows}, reverse=True)[:WINDOWS_SHOWN]
    found = [row for row in rows if row.window_us in windows]
    return sorted(found, key=lambda row: -row.window_us)[:ROWS_SHOWN]


class PageServer:
    """Serves the page at `/` and the tables as JSON at `/tables.json`."""

    def __init__(self, host: str, port: int) -> None:
        self._page = b"<!doctype html><meta http-equiv=refresh content=1>waiting for events"
        self._json = b"{}"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = {"/": ("text/html; charset=utf-8", outer._page)}
                found["/tables.json"] = ("application/json", outer._json)
                if self.path not in found:
                    self.send_error(404)
                    return
                kind, body = found[self.path]
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Requests are not logged."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise InputError(
                f"cannot serve on {host}:{port}: {error.strerror}; use --serve with another port"
            ) from error
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/"

    def show(self, tables: AnalyticsTables) -> None:
        """Replaces the page."""
        self._page = render_page(tables).encode()
        self._json = msgspec.json.encode(tables)

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()


def _head(tables: AnalyticsTables) -> str:
    totals = tables.totals
    newest = "-" if totals.newest_us is None else _clock(totals.newest_us)
    missing = sum(writer.missing for writer in tables.writers)
    facts = (
        f"{totals.events:,} events, newest at {newest}; {totals.duplicates:,} repeated events "
        f"ignored; {missing:,} missing"
    )
    html = f'<p class="facts">{escape(facts)}</p>'
    if totals.quarantined:
        bad = ", ".join(f"{count:,} {reason}" for reason, count in totals.quarantined.items())
        html += f'<p class="bad">Lines set aside: {escape(bad)}</p>'
    return html


def _tags(tables: AnalyticsTables, name: Callable[[Any, str], str]) -> str:
    tags = tables.popular_tags.tags[:TAGS_SHOWN]
    greatest = max((tag.score for tag in tags), default=1.0) or 1.0
    rows = "".join(
        f"<tr><td class=text>{escape(name(tag, tag.tag))}</td><td>{tag.score:,.1f}</td>"
        f'<td class="bar"><i style="width:{100 * tag.score / greatest:.0f}%"></i></td></tr>'
        for tag in tags
    )
    half_life = tables.popular_tags.half_life_us / 60e6
    title = f"<h2>Popular tags (half-life {half_life:g} min)</h2>"
    head = "<tr><th class=text>tag</th><th>score</th><th></th></tr>"
    return f"<section>{title}<table>{head}{rows}</table></section>"


def _latency(tables: AnalyticsTables, name: Callable[[Any, str], str]) -> str:
    return _section(
        "Latency",
        ("window", "of", "count", "p50 ms", "p95 ms", "p99 ms", "max ms", "below 0"),
        (
            (
                _clock(row.window_us),
                name(row, row.name),
                row.count,
                row.p50_ms,
                row.p95_ms,
                row.p99_ms,
                row.max_ms,
                row.negative,
            )
            for row in recent(tables.latency)
        ),
    )


def _load(tables: AnalyticsTables, name: Callable[[Any, str], str]) -> str:
    return _section(
        "Load per cell",
        ("window", "cell", "messages", "bytes", "neighbours"),
        (
            (
                _clock(row.window_us),
                name(row, NO_CELL if row.cell == UNKNOWN else row.cell),
                row.messages,
                row.bytes,
                row.neighbours_mean,
            )
            for row in recent(tables.load)
        ),
    )


def _section(title: str, names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = [place for place, name in enumerate(names) if name in _TEXT_COLUMNS]
    head = _row("th", names, text)
    body, before = "", ""
    for row in rows:
        first, *rest = map(_text, row)
        # A window is named once, in its first row.
        shown = "" if first == before and names[0] in _WINDOW_COLUMNS else first
        body += _row("td", [shown, *rest], text, begins=bool(before) and shown != "")
        before = first
    return f"<section><h2>{escape(title)}</h2><table>{head}{body}</table></section>"


def _row(element: str, values: Sequence[str], text: Sequence[int], *, begins: bool = False) -> str:
    """A row of a table; the columns in `text` are aligned to the left, and a line is above the
    first row of a window."""
    cells = (
        f"<{element}{' class=text' if place in text else ''}>{escape(value)}</{element}>"
        for place, value in enumerate(values)
    )
    style = " class=begins" if begins and element == "td" else ""
    return f"<tr{style}>{''.join(cells)}</tr>"


def _text(value: object) -> str:
    match value:
        case None:
            return "-"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
    return str(value)


def _clock(at_us: int) -> str:
    """The time of day, or the time since the start of a simulation."""
    if 0 <= at_us < DAY_US:
        return f"{at_us // 1_000_000} s"
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%H:%M:%S")
