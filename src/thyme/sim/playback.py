"""Playback page: turns a recording into one HTML page that plays the run in a browser, offline too.

Entry point: `write_page`, which reads a recording, down-samples it (`thyme.sim.playback.page_data`)
and writes a page that contains program, style and data. The page lists the data that it leaves out.
`thyme.sim.playback.recorder` writes recordings; `playback.html` is the template.
Clause: S17.
"""

from __future__ import annotations

import base64
import gzip
import html
import os
import re
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files

import msgspec

from thyme.model.errors import InputError
from thyme.model.worlds import Area
from thyme.sim.page.digest import (
    U32_MAX,
    Digest,
    ImpossibleError,
    Rows,
    centimetres,
    is_control,
)
from thyme.sim.recorder import Recording
from thyme.traces.files import InputFileError, Source, write_whole

PAGE_BYTES_MAX = 15_000_000
"""Maximum size of a page; messages are down-sampled until the page fits."""
CELLS_DRAWN_MAX = 1_000
"""Maximum number of columns, and of rows, of a grid."""


class Grid(msgspec.Struct, frozen=True):
    """The grid of square cells that the page draws, starting at the origin."""

    columns: int
    rows: int
    cell_m: float

    def __post_init__(self) -> None:
        most = CELLS_DRAWN_MAX
        if not (0 < self.columns <= most and 0 < self.rows <= most and 0 < self.cell_m < 1e7):
            raise InputError(
                f"a grid has 1 to {most} columns and rows of cells larger than 0 m, not "
                f"{self.columns} by {self.rows} of {self.cell_m} m"
            )


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of events in the recording, and of events that the page contains."""

    span_us: int
    messages: int
    messages_kept: int
    control: int
    control_kept: int
    marks: int
    marks_kept: int
    page_bytes: int


def write_page(
    recording_path: Source,
    html_path: Source,
    *,
    title: str,
    area: Area | None = None,
    grid: Grid | None = None,
) -> Contents:
    """Writes the page of a recording (`.gz` or not); the same recording gives the same bytes.

    Without an area, the page shows the bounding box of all node positions. If the recording cannot
    be read, an `InputError` is raised and nothing is written.
    """
    digest = _read(os.fspath(recording_path))
    template = (files("thyme.sim") / "page" / "playback.html").read_text("utf-8")
    while len(page := _page(template, digest, title, area, grid)) > PAGE_BYTES_MAX:
        digest.thin()
    write_whole(html_path, page)
    return Contents(
        span_us=digest.span_us,
        messages=digest.application.seen,
        messages_kept=len(digest.application),
        control=digest.control.seen,
        control_kept=len(digest.control),
        marks=digest.marks.seen,
        marks_kept=len(digest.marks),
        page_bytes=len(page),
    )


def _read(path: str) -> Digest:
    line = 1
    with _opened(path) as file:
        try:
            recording = Recording(file)
            digest = Digest(recording.header)
            for line, event in enumerate(recording, start=2):  # noqa: B007
                digest.take(event)
        except ImpossibleError as error:
            raise InputFileError(path, str(error), line) from None
        except InputError as error:
            raise InputFileError(path, str(error)) from None
        except OverflowError:
            raise InputFileError(path, "a number is negative or too large", line) from None
    return digest


@contextmanager
def _opened(path: str) -> Iterator[Iterable[bytes]]:
    try:
        if path.endswith(".gz"):
            with gzip.GzipFile(path) as packed:
                yield packed
        else:
            with open(path, "rb") as file:
                yield file
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InputFileError(path, f"cannot be read: {reason or error}") from error


class _Pack:
    """Packs columns of integers, each with the narrowest type that fits its largest value."""

    def __init__(self) -> None:
        self.index: list[tuple[str, str, int]] = []
        self.data: list[bytes] = []

    def add(self, name: str, values: Sequence[int]) -> None:
        most = max(values, default=0)
        code, width = next((code, width) for code, width, end in _WIDTHS if most <= end)
        column = array(code, values)
        if sys.byteorder == "big":
            column.byteswap()
        self.index.append((name, width, len(column)))
        self.data.append(column.tobytes())


_WIDTHS = (("B", "u1", 2**8 - 1), ("H", "u2", 2**16 - 1), ("I", "u4", U32_MAX))


def _payload(digest: Digest, area: Area | None, grid: Grid | None) -> bytes:
    """Encodes the data: four bytes of length (little-endian), a JSON object, the columns."""
    tick_us = _tick_us(digest)
    tables = digest.tables()
    pack = _Pack()
    for table, rows in tables.items():
        _add_table(pack, table, rows, tick_us, digest.box())
    for number, counts in enumerate(digest.rates.rows):
        pack.add(f"rates.{number}", counts)
    for name, totals in digest.totals.items():
        pack.add(f"totals.{name}", totals)
    header = digest.header
    about = {
        "span_us": digest.span_us,
        "tick_us": tick_us,
        "bin_us": digest.rates.bin_us,
        "range_m": header.range_m,
        "names": header.nodes,
        "places": header.places,
        "corner": digest.box()[:2],
        "box": digest.box() if area is None else [0.0, 0.0, area.width_m, area.height_m],
        "grid": None if grid is None else [grid.columns, grid.rows, grid.cell_m],
        "kinds": [[kind, is_control(kind)] for kind in digest.kinds.numbers],
        "causes": list(digest.causes.numbers),
        "objects": list(digest.objects),
        "whats": digest.asked_and_told(),
        "faults": digest.faults,
        "strides": {name: rows.stride for name, rows in tables.items()},
        "columns": pack.index,
    }
    text = msgspec.json.encode(about)
    return b"".join((len(text).to_bytes(4, "little"), text, *pack.data))


def _tick_us(digest: Digest) -> int:
    """Returns the unit of time in µs: 1, or a power of ten if instants would exceed 32 bits."""
    longest_us = max((digest.span_us, *digest.legs.columns["length"]))
    tick_us = 1
    while longest_us // tick_us > U32_MAX:
        tick_us *= 10
    return tick_us


def _add_table(pack: _Pack, table: str, rows: Rows, tick_us: int, box: Sequence[float]) -> None:
    for name, column in rows.columns.items():
        values: Sequence[int] = column
        match name:
            case "message":
                continue  # only used to find the row of a message
            case "at":
                values = _steps([value // tick_us for value in column])
            case "took" | "length":
                values = [value // tick_us for value in column]
            case "x0" | "x1" | "y0" | "y1":
                least = centimetres(box[0 if name[0] == "x" else 1])
                values = [value - least for value in column]
        pack.add(f"{table}.{name}", values)


def _steps(instants: Sequence[int]) -> list[int]:
    """Returns the difference of each instant to the previous one; small numbers compress well."""
    return [now - before for before, now in zip([0, *instants], instants, strict=False)]


def _page(template: str, digest: Digest, title: str, area: Area | None, grid: Grid | None) -> bytes:
    packed = base64.b64encode(zlib.compress(_payload(digest, area, grid), 6)).decode()
    parts = {
        "title": html.escape(title),
        "facts": html.escape(_facts(digest)),
        "notes": "".join(f"<li>{html.escape(note)}</li>" for note in _notes(digest)),
        "data": packed,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template).encode()


def _facts(digest: Digest) -> str:
    messages = digest.application.seen + digest.control.seen
    return (
        f"{digest.nodes:,} nodes, {digest.span_us / 1e6:,.1f} s; {messages:,} messages "
        f"({digest.bytes / 1e6:,.1f} MB), {digest.control.seen:,} of them routing control; "
        f"{digest.marks.seen:,} requests and events of applications; {len(digest.faults):,} faults"
    )


def _notes(digest: Digest) -> list[str]:
    """Lists the data that the page leaves out."""
    notes = ["The receivers of a broadcast are left out; their number is shown."]
    rows = (
        ("messages of routing control", digest.control),
        ("other messages", digest.application),
        ("requests and events of applications", digest.marks),
    )
    notes += [
        f"Of {kept.seen:,} {what}, 1 in {kept.stride} is shown: {len(kept):,}."
        for what, kept in rows
        if kept.stride > 1
    ]
    whole = [what for what, kept in rows if kept.stride == 1 and kept.seen]
    if whole:
        notes.append(f"Complete: {', '.join(whole)}.")
    if digest.objects:
        notes.append("Replicas are sampled every few seconds, and shown from the first sample on.")
    if digest.kept_unseen:
        notes.append(f"Replicas of the first {len(digest.objects):,} objects only are shown.")
    notes.append("Counts, and the rates under the slider, include everything that is left out.")
    return notes
