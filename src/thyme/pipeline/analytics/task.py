"""Task: decodes the lines of one partition of a batch and adds them up, in Python.

Entry point: `process_lines`, the function that Spark's tasks run. A task removes events that it
meets twice, or that earlier batches have; it does not know the other tasks of its batch, so its
result says which events it counted. Results are small: sums, and tables as Parquet files.
Clauses: P9, P2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import compute

from thyme.pipeline.analytics.decode import decode_line
from thyme.pipeline.analytics.facts import FactRows, FactSpan
from thyme.pipeline.analytics.files import to_parquet
from thyme.pipeline.analytics.intervals import Interval, IntervalSet, Seen
from thyme.pipeline.analytics.measures import MeasureSums

INVALID_LINES = pa.schema(  # one row per line that is not an event of this version
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("raw", pa.string(), nullable=False),
    ]
)
RESULT_COLUMN = "result"
"""The one column of a task's output, of type binary."""


class FactPart(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one kind in a task, as a Parquet file."""

    span: FactSpan
    parquet: bytes


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a task."""

    repeated: int
    """Events that were counted before."""
    quarantined: dict[str, int]
    """Lines set aside, by reason."""
    seen: dict[str, list[Interval]]
    """Numbers of the events that the task counted, by writer."""
    newest_us: int | None
    """Greatest instant of an event, at most the instant at which its file was written."""
    measures: bytes
    """The measures, as a Parquet file."""
    facts: dict[str, FactPart]
    invalid_lines: bytes | None
    """The lines set aside, as a Parquet file."""


class LineProcessor:
    """Adds up lines of event files."""

    def __init__(self, window_us: int, seen: Seen) -> None:
        self._known = seen
        self._known_sets: dict[str, IntervalSet] = {}
        self._new_sets: dict[str, IntervalSet] = {}
        self._sums = MeasureSums(window_us)
        self._facts = FactRows()
        self._repeated = 0
        self._newest_us: int | None = None
        self._invalid: list[tuple[str, str, str]] = []

    def add_file(self, lines: list[bytes], source: str, written_us: int) -> None:
        """Adds lines of a file that was written at `written_us`."""
        newest_us = self._newest_us
        for line in lines:
            found = decode_line(line)
            if isinstance(found, str):
                if line.strip():
                    raw = line.decode("utf-8", "backslashreplace")
                    self._invalid.append((source, found, raw))
                continue
            if not self._is_new(found.writer, found.seq):
                self._repeated += 1
                continue
            self._sums.add_event(found, written_us)
            self._facts.add_event(found)
            at_us = min(found.at_us, written_us)
            if newest_us is None or at_us > newest_us:
                newest_us = at_us
        self._newest_us = newest_us

    def result(self) -> TaskResult:
        """The result of all lines."""
        quarantined: dict[str, int] = {}
        for _, reason, _ in self._invalid:
            quarantined[reason] = quarantined.get(reason, 0) + 1
        return TaskResult(
            repeated=self._repeated,
            quarantined=dict(sorted(quarantined.items())),
            seen={writer: new.intervals() for writer, new in sorted(self._new_sets.items())},
            newest_us=self._newest_us,
            measures=to_parquet(self._sums.to_table()),
            facts={
                what: FactPart(span=span, parquet=to_parquet(table))
                for what, (span, table) in self._facts.to_tables().items()
            },
            invalid_lines=to_parquet(_invalid_table(self._invalid)) if self._invalid else None,
        )

    def _is_new(self, writer: str, number: int) -> bool:
        new = self._new_sets.get(writer)
        if new is None:
            self._known_sets[writer] = IntervalSet(self._known.get(writer, ()))
            new = IntervalSet()
            if number in self._known_sets[writer]:
                return False
            self._new_sets[writer] = new
        return number not in self._known_sets[writer] and new.add(number)


def process_lines(
    batches: Iterator[pa.RecordBatch], window_us: int, seen: Seen
) -> Iterator[pa.RecordBatch]:
    """Processes the lines of a partition (`value`, `source`, `written_us`); one row comes out."""
    processor = LineProcessor(window_us, seen)
    for batch in batches:
        for lines, source, written_us in _split_by_file(batch):
            processor.add_file(lines, source, written_us)
    data = msgspec.msgpack.encode(processor.result())
    yield pa.record_batch([pa.array([data], pa.binary())], names=[RESULT_COLUMN])


def _split_by_file(batch: pa.RecordBatch) -> Iterator[tuple[list[bytes], str, int]]:
    """The lines of each file in a batch of rows; those of one file are consecutive."""
    values = batch.column("value").cast(pa.binary())
    runs: Any = compute.run_end_encode(batch.column("source"))
    first = 0
    for source, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        written_us = batch.column("written_us")[first].as_py()
        yield values.slice(first, end - first).to_pylist(), source, written_us
        first = end


def _invalid_table(rows: list[tuple[str, str, str]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(column) for column in columns], schema=INVALID_LINES)
