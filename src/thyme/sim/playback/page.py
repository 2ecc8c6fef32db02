"""Playback page: turns a recording into one HTML page that plays the run in a browser, offline too.

Entry point: `write_page`, which reads a recording, down-samples it (`thyme.sim.playback.page_data`)
and writes a page that contains program, style and data. The page lists the data that it leaves out.
The program is that of the live map (`thyme.map`), whose records a recording consists of.
Clause: S17.
"""

from __future__ import annotations

import base64
import gzip
import os
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from thyme.map.page import recorded_page
from thyme.map.recording import Recording
from thyme.model.errors import InputError
from thyme.model.worlds import Area
from thyme.protocol.messages.description import is_routing_control
from thyme.sim.playback.event_columns import EventColumns, InvalidRecordingError
from thyme.sim.playback.page_data import U32_MAX, PlaybackData, to_centimetres
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
    while len(page := _render_page(data, title, area, grid)) > PAGE_BYTES_MAX:
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


def _encode_payload(
    data: PlaybackData, title: str, area: Area | None, grid: PlaybackGrid | None
) -> bytes:
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
    if area is None and header.area is not None:
        area = Area(*header.area)
    if grid is None and header.grid is not None:
        grid = PlaybackGrid(*header.grid)
    about = {
        "title": title or header.title,
        "span_us": data.span_us,
        "tick_us": tick_us,
        "bin_us": data.rates.bin_us,
        "range_m": header.range_m,
        "names": data.names,
        "roles": data.roles,
        "places": data.places,
        "corner": data.bounding_box()[:2],
        "box": data.bounding_box() if area is None else [0.0, 0.0, area.width_m, area.height_m],
        "grid": None if grid is None else [grid.columns, grid.rows, grid.cell_m],
        "kinds": [[kind, is_routing_control(kind)] for kind in data.kinds.numbers],
        "causes": list(data.causes.numbers),
        "objects": list(data.objects),
        "whats": data.list_app_events(),
        "faults": data.faults,
        "life_words": list(data.life_words.numbers),
        "strides": {name: rows.stride for name, rows in tables.items()},
        "seen": {name: rows.seen for name, rows in tables.items()},
        "bytes": data.bytes,
        "omitted": {
            "replicas": data.replicas_omitted,
            "life": data.life_omitted,
            "missing": data.events_missing,
        },
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
    data: PlaybackData, title: str, area: Area | None, grid: PlaybackGrid | None
) -> bytes:
    payload = zlib.compress(_encode_payload(data, title, area, grid), 6)
    return recorded_page(title or data.header.title, base64.b64encode(payload).decode())
