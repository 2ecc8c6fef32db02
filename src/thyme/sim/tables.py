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
from thyme.sim.outcome import Outcome
from thyme.sim.playback import CELLS_DRAWN_MAX, Grid, write_page
from thyme.sim.run import Run
from thyme.sim.scenario import Scenario, Substrate, grid_over

SUMMARY, RECORDING, PAGE = "summary.json", "recording.jsonl.gz", "playback.html"
COLUMNS = {
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
RESULT = {*COLUMNS, SUMMARY, RECORDING, PAGE}
"""The names of all files in a folder of results."""


class Folder:
    """A folder of results that is being written under a temporary name."""

    def __init__(self, draft: Path) -> None:
        self._draft = draft

    @contextmanager
    def recording(self) -> Iterator[gzip.GzipFile]:
        """Opens the compressed file for the recording; the same run gives the same bytes."""
        with (
            (self._draft / RECORDING).open("wb") as file,
            gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as compressed,
        ):
            yield compressed

    def write(self, run: Run, outcome: Outcome) -> None:
        """Writes the tables, the summary and, if the run was recorded, the playback page."""
        for name, columns in COLUMNS.items():
            (self._draft / name).write_bytes(_csv(columns, _rows(name, run, outcome)))
        summary = msgspec.json.format(msgspec.json.encode(outcome), indent=2)
        (self._draft / SUMMARY).write_bytes(summary + b"\n")
        if (self._draft / RECORDING).exists():
            title = f"{run.scenario.substrate} · {run.scenario.kind} · {run.scenario.nodes} nodes"
            area = run.scenario.area
            write_page(
                self._draft / RECORDING,
                self._draft / PAGE,
                title=title,
                area=area,
                grid=_grid(run.scenario),
            )


@contextmanager
def whole_folder(path: Path) -> Iterator[Folder]:
    """Yields a folder for results, which gets its final name when the block ends without error.

    A folder with earlier results is replaced; a folder with other files is an error.
    """
    target = path.resolve()
    if target.exists() and not target.is_dir():
        raise InputError(f"{path} is a file; name a folder for the results")
    if target.exists() and any(entry.name not in RESULT for entry in target.iterdir()):
        raise InputError(f"{path} has other files in it; name a new folder for the results")
    if not target.parent.is_dir():
        raise InputError(f"{path}: there is no folder {target.parent}")
    draft = target.with_name(f".{target.name}.{token_hex(8)}")
    earlier = target.with_name(f"{draft.name}.earlier")
    try:
        draft.mkdir()
        yield Folder(draft)
        if target.exists():
            target.replace(earlier)
        draft.replace(target)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        if earlier.exists() and not target.exists():
            earlier.replace(target)
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(earlier, ignore_errors=True)


def _grid(scenario: Scenario) -> Grid | None:
    """Returns the grid to draw; None if the substrate has no cells or the grid is too large."""
    if scenario.substrate is not Substrate.DCS:
        return None
    grid = grid_over(scenario.area)
    if max(grid.columns, grid.rows) > CELLS_DRAWN_MAX:
        return None
    return Grid(grid.columns, grid.rows, grid.cell_m)


def _csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()


def _rows(name: str, run: Run, outcome: Outcome) -> Iterator[Sequence[object]]:
    match name:
        case "operations.csv":
            yield from map(msgspec.structs.astuple, run.attempts)
        case "notifications.csv":
            yield from map(msgspec.structs.astuple, run.heard)
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
            for node, held in zip(run.measurements.nodes, run.census.holdings, strict=True):
                yield node.node, *msgspec.structs.astuple(held)
        case "cells.csv" if outcome.cells is not None:
            yield from map(msgspec.structs.astuple, outcome.cells.by_cell)
