"""Tables: writes the results of a run to a folder.

Entry point: `result_folder`. The folder has tables of operations, notifications, traffic by node
and message type, energy and storage by node, and the cells of Thyme-DCS; the summary; and, if the
run was recorded, the recording and the playback page (`thyme.sim.playback.page`). The folder is
created atomically: completely or not at all.
Clauses: S14, S17.
"""

from __future__ import annotations

import csv
import gzip
import io
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

import msgspec

from thyme.model.errors import InputError
from thyme.sim.playback.page import CELLS_DRAWN_MAX, PlaybackGrid, write_page
from thyme.sim.results.summary import RunSummary
from thyme.sim.run import Run
from thyme.sim.scenario import Scenario, Substrate, grid_over

SUMMARY, RECORDING, PAGE = "summary.json", "recording.jsonl.gz", "playback.html"
TABLE_COLUMNS = {
    "operations.csv": ("kind", "user", "name", "issued_us", "ended_us", "code"),
    "notifications.csv": ("user", "sid", "oid", "published_us", "told_us"),
    "expected.csv": ("at_us", "user", "sid", "oid", "owner", "past"),
    "traffic.csv": (
        "node", "type", "sent", "sent_bytes", "heard", "heard_bytes", "forwarded",
        "forwarded_bytes",
    ),
    "energy.csv": (
        "node", "frames", "frame_bytes", "retransmissions", "on_us", "sending_us", "receiving_us",
        "radio_j", "operations_j", "joules", "battery_share",
    ),
    "storage.csv": ("node", "objects", "bytes", "metadata", "subscriptions"),
    "cells.csv": (
        "cell", "populated", "load", "nodes", "records", "records_differing", "pairs",
        "pairs_differing",
    ),
}  # fmt: skip
"""The columns of each table, by file name."""
RESULT_FILES = {*TABLE_COLUMNS, SUMMARY, RECORDING, PAGE}
"""The names of all files in a folder of results."""


class ResultFolder:
    """A folder of results that is being written under a temporary name."""

    def __init__(self, temporary: Path) -> None:
        self._temporary = temporary

    @contextmanager
    def open_recording(self) -> Iterator[gzip.GzipFile]:
        """Opens the compressed file for the recording; the same run gives the same bytes."""
        with (
            (self._temporary / RECORDING).open("wb") as file,
            gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as compressed,
        ):
            yield compressed

    def write_results(self, run: Run, summary: RunSummary) -> None:
        """Writes the tables, the summary and, if the run was recorded, the playback page."""
        for name, columns in TABLE_COLUMNS.items():
            (self._temporary / name).write_bytes(_to_csv(columns, _table_rows(name, run, summary)))
        summary_json = msgspec.json.format(msgspec.json.encode(summary), indent=2)
        (self._temporary / SUMMARY).write_bytes(summary_json + b"\n")
        if (self._temporary / RECORDING).exists():
            title = f"{run.scenario.substrate} · {run.scenario.kind} · {run.scenario.nodes} nodes"
            area = run.scenario.area
            write_page(
                self._temporary / RECORDING,
                self._temporary / PAGE,
                title=title,
                area=area,
                grid=_playback_grid(run.scenario),
            )


@contextmanager
def result_folder(path: Path) -> Iterator[ResultFolder]:
    """Yields a folder for results, which gets its final name when the block ends without error.

    A folder with earlier results is replaced; a folder with other files is an error.
    """
    target = path.resolve()
    if target.exists() and not target.is_dir():
        raise InputError(f"{path} is a file; name a folder for the results")
    if target.exists() and any(entry.name not in RESULT_FILES for entry in target.iterdir()):
        raise InputError(f"{path} has other files in it; name a new folder for the results")
    if not target.parent.is_dir():
        raise InputError(f"{path}: there is no folder {target.parent}")
    temporary = target.with_name(f".{target.name}.{token_hex(8)}")
    previous = target.with_name(f"{temporary.name}.earlier")
    try:
        temporary.mkdir()
        yield ResultFolder(temporary)
        if target.exists():
            target.replace(previous)
        temporary.replace(target)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        if previous.exists() and not target.exists():
            previous.replace(target)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(previous, ignore_errors=True)


def _playback_grid(scenario: Scenario) -> PlaybackGrid | None:
    """Returns the grid to draw; None if the substrate has no cells or the grid is too large."""
    if scenario.substrate is not Substrate.DCS:
        return None
    grid = grid_over(scenario.area)
    if max(grid.columns, grid.rows) > CELLS_DRAWN_MAX:
        return None
    return PlaybackGrid(grid.columns, grid.rows, grid.cell_m)


def _to_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()


def _table_rows(name: str, run: Run, summary: RunSummary) -> Iterator[Sequence[object]]:
    match name:
        case "operations.csv":
            yield from map(msgspec.structs.astuple, run.attempts)
        case "notifications.csv":
            yield from map(msgspec.structs.astuple, run.notifications)
        case "expected.csv":
            yield from map(msgspec.structs.astuple, run.expected)
        case "traffic.csv":
            for node in run.measurements.nodes:
                for kind, load in node.loads.items():
                    yield node.node, kind, *msgspec.structs.astuple(load)
        case "energy.csv":
            for node in run.measurements.nodes:
                energy = msgspec.structs.astuple(node.energy)
                yield node.node, node.frames, node.frame_bytes, node.retransmissions, *energy
        case "storage.csv":
            for node, stored in zip(run.measurements.nodes, run.samples.stored, strict=True):
                yield node.node, *msgspec.structs.astuple(stored)
        case "cells.csv" if summary.cells is not None:
            yield from map(msgspec.structs.astuple, summary.cells.by_cell)
