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
from thyme.sim.playback.page_data import (
    U32_MAX,
    EventColumns,
    InvalidRecordingError,
    PlaybackData,
    is_routing_control,
    to_centimetres,
)
from thyme.sim.playback.recorder import Recording
from thyme.traces.files import FilePath, InputFileError, write_atomically

PAGE_BYTES_MAX = 15_000_000
"""Maximum size of a page; messages are down-sampled until the page fits."""
CELLS_DRAWN_MAX = 1_000
"""Maximum number of columns, and of rows, of a grid."""


class PlaybackGrid(msgspec.Struct, frozen=True):
    """The grid of square cells that the page draws, starting at the origin."""

    columns: int
    rows: int
    cell_m: float

    def __post_init__(self) -> None:
        cells_max = CELLS_DRAWN_MAX
        if not (
            0 < self.columns <= cells_max and 0 < self.rows <= cells_max and 0 < self.cell_m < 1e7
        ):
            raise InputError(
                f"a grid has 1 to {cells_max} columns and rows of cells larger than 0 m, not "
                f"{self.columns} by {self.rows} of {self.cell_m} m"
            )


class PageContents(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of events in the recording, and of events that the page contains."""

    span_us: int
    messages: int
    messages_kept: int
    control: int
    control_kept: int
    app_events: int
    app_events_kept: int
    page_bytes: int


def write_page(
    recording_path: FilePath,
    html_path: FilePath,
    *,
    title: str,
    area: Area | None = None,
    grid: PlaybackGrid | None = None,
) -> PageContents:
    """Writes the page of a recording (`.gz` or not); the same recording gives the same bytes.

    Without an area, the page shows the bounding box of all node positions. If the recording cannot
    be read, an `InputError` is raised and nothing is written.
    """
    data = _read_recording(os.fspath(recording_path))
    template = (files("thyme.sim.playback") / "playback.html").read_text("utf-8")
    while len(page := _render_page(template, data, title, area, grid)) > PAGE_BYTES_MAX:
        data.downsample()
    write_atomically(html_path, page)
    return PageContents(
        span_us=data.span_us,
        messages=data.application.seen,
        messages_kept=len(data.application),
        control=data.control.seen,
        control_kept=len(data.control),
        app_events=data.app_events.seen,
        app_events_kept=len(data.app_events),
        page_bytes=len(page),
    )


def _read_recording(path: str) -> PlaybackData:
    line = 1
    with _open_recording(path) as file:
        try:
            recording = Recording(file)
            data = PlaybackData(recording.header)
            for line, event in enumerate(recording, start=2):  # noqa: B007
                data.add_event(event)
        except InvalidRecordingError as error:
            raise InputFileError(path, str(error), line) from None
        except InputError as error:
            raise InputFileError(path, str(error)) from None
        except OverflowError:
            raise InputFileError(path, "a number is negative or too large", line) from None
    return data


@contextmanager
def _open_recording(path: str) -> Iterator[Iterable[bytes]]:
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


class _ColumnPacker:
    """Packs columns of integers, each with the narrowest type that fits its largest value."""

    def __init__(self) -> None:
        self.index: list[tuple[str, str, int]] = []
        self.data: list[bytes] = []

    def add_column(self, name: str, values: Sequence[int]) -> None:
        most = max(values, default=0)
        code, width = next((code, width) for code, width, end in _INTEGER_WIDTHS if most <= end)
        column = array(code, values)
        if sys.byteorder == "big":
            column.byteswap()
        self.index.append((name, width, len(column)))
        self.data.append(column.tobytes())


_INTEGER_WIDTHS = (("B", "u1", 2**8 - 1), ("H", "u2", 2**16 - 1), ("I", "u4", U32_MAX))


def _encode_payload(data: PlaybackData, area: Area | None, grid: PlaybackGrid | None) -> bytes:
    """Encodes the data: four bytes of length (little-endian), a JSON object, the columns."""
    tick_us = _tick_us(data)
    tables = data.tables()
    packer = _ColumnPacker()
    for table, rows in tables.items():
        _add_columns(packer, table, rows, tick_us, data.bounding_box())
    for number, counts in enumerate(data.rates.rows):
        packer.add_column(f"rates.{number}", counts)
    for name, totals in data.totals.items():
        packer.add_column(f"totals.{name}", totals)
    header = data.header
    about = {
        "span_us": data.span_us,
        "tick_us": tick_us,
        "bin_us": data.rates.bin_us,
        "range_m": header.range_m,
        "names": header.nodes,
        "places": header.places,
        "corner": data.bounding_box()[:2],
        "box": data.bounding_box() if area is None else [0.0, 0.0, area.width_m, area.height_m],
        "grid": None if grid is None else [grid.columns, grid.rows, grid.cell_m],
        "kinds": [[kind, is_routing_control(kind)] for kind in data.kinds.numbers],
        "causes": list(data.causes.numbers),
        "objects": list(data.objects),
        "whats": data.list_app_events(),
        "faults": data.faults,
        "strides": {name: rows.stride for name, rows in tables.items()},
        "columns": packer.index,
    }
    text = msgspec.json.encode(about)
    return b"".join((len(text).to_bytes(4, "little"), text, *packer.data))


def _tick_us(data: PlaybackData) -> int:
    """Returns the unit of time in µs: 1, or a power of ten if instants would exceed 32 bits."""
    longest_us = max((data.span_us, *data.legs.columns["length"]))
    tick_us = 1
    while longest_us // tick_us > U32_MAX:
        tick_us *= 10
    return tick_us


def _add_columns(
    packer: _ColumnPacker, table: str, rows: EventColumns, tick_us: int, box: Sequence[float]
) -> None:
    for name, column in rows.columns.items():
        values: Sequence[int] = column
        match name:
            case "message":
                continue  # only used to find the row of a message
            case "at":
                values = _differences([value // tick_us for value in column])
            case "took" | "length":
                values = [value // tick_us for value in column]
            case "x0" | "x1" | "y0" | "y1":
                least = to_centimetres(box[0 if name[0] == "x" else 1])
                values = [value - least for value in column]
        packer.add_column(f"{table}.{name}", values)


def _differences(instants: Sequence[int]) -> list[int]:
    """Returns the difference of each instant to the previous one; small numbers compress well."""
    return [now - before for before, now in zip([0, *instants], instants, strict=False)]


def _render_page(
    template: str, data: PlaybackData, title: str, area: Area | None, grid: PlaybackGrid | None
) -> bytes:
    packed = base64.b64encode(zlib.compress(_encode_payload(data, area, grid), 6)).decode()
    parts = {
        "title": html.escape(title),
        "facts": html.escape(_describe_run(data)),
        "notes": "".join(f"<li>{html.escape(note)}</li>" for note in _list_omissions(data)),
        "data": packed,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template).encode()


def _describe_run(data: PlaybackData) -> str:
    messages = data.application.seen + data.control.seen
    return (
        f"{data.nodes:,} nodes, {data.span_us / 1e6:,.1f} s; {messages:,} messages "
        f"({data.bytes / 1e6:,.1f} MB), {data.control.seen:,} of them routing control; "
        f"{data.app_events.seen:,} requests and events of applications; {len(data.faults):,} faults"
    )


def _list_omissions(data: PlaybackData) -> list[str]:
    """Lists the data that the page leaves out."""
    notes = ["The receivers of a broadcast are left out; their number is shown."]
    columns = (
        ("messages of routing control", data.control),
        ("other messages", data.application),
        ("requests and events of applications", data.app_events),
    )
    notes += [
        f"Of {kept.seen:,} {kind}, 1 in {kept.stride} is shown: {len(kept):,}."
        for kind, kept in columns
        if kept.stride > 1
    ]
    complete = [kind for kind, kept in columns if kept.stride == 1 and kept.seen]
    if complete:
        notes.append(f"Complete: {', '.join(complete)}.")
    if data.objects:
        notes.append("Replicas are sampled every few seconds, and shown from the first sample on.")
    if data.replicas_omitted:
        notes.append(f"Replicas of the first {len(data.objects):,} objects only are shown.")
    notes.append("Counts, and the rates under the slider, include everything that is left out.")
    return notes
