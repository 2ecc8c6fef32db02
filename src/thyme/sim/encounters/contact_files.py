"""Contact files: reads recorded contacts between people or devices.

Entry point: `read_contacts`. Two published formats, each also compressed with gzip:

- SocioPatterns: rows `t i j` (in some data sets followed by the groups of i and j); the two were in
  contact during the 20 s that begin at t. Rows are in order of time.
- ONE: rows `t CONN i j up` and `t CONN i j down`.

Rows that cannot be read, negative times and rows out of order are errors with the line's number.
Contacts of a person with itself, repeated rows, overlapping contacts of a pair and ends without a
beginning are left out and counted.
Clause: U9.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from thyme.model.errors import InputError, safe_repr
from thyme.model.time_frames import SECOND_US
from thyme.sim.encounters.contacts import Contact

STEP_US = 20 * SECOND_US
"""The resolution of SocioPatterns' sensors."""
SECONDS_MAX = 2**40


class ContactFileError(InputError):
    """A file of contacts cannot be read; the message names the line (U9)."""

    code = "bad_contacts"


@dataclass(slots=True)
class ContactTrace:
    """Recorded contacts; nodes are numbered by sorted names, instants count from the first row."""

    names: list[str]
    contacts: list[Contact]
    skipped: Counter[str] = field(default_factory=Counter)
    """Counts of rows that were left out, by reason."""

    @property
    def nodes(self) -> int:
        """The number of people or devices."""
        return len(self.names)

    @property
    def duration_us(self) -> int:
        """The end of the last contact."""
        return max((contact.end_us for contact in self.contacts), default=0)


Row = tuple[int, str, str, bool | None]
"""Instant, two names, and whether the contact begins; None for a contact of one step."""


def read_contacts(path: Path) -> ContactTrace:
    """Reads a file of contacts; the first row tells the format."""
    skipped: Counter[str] = Counter()
    rows = list(_read_rows(path, skipped))
    if not rows:
        raise ContactFileError(f"{path} has no contacts")
    origin_us = rows[0][0]
    names = sorted({name for row in rows for name in row[1:3]}, key=_name_order)
    numbers = {name: number for number, name in enumerate(names)}
    join = _join_steps if rows[0][3] is None else _match_ends
    contacts = sorted(
        Contact(start_us - origin_us, end_us - origin_us, *sorted((numbers[a], numbers[b])))
        for start_us, end_us, a, b in join(rows, skipped)
    )
    return ContactTrace(names, contacts, skipped)


def _read_rows(path: Path, skipped: Counter[str]) -> Iterator[Row]:
    last_us = None
    kind: bool | None = None
    for number, line in _read_lines(path):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        at_us, first, second, begins = _parse_row(path, number, fields)
        if kind is None:
            kind = begins is None
        if kind != (begins is None):
            raise _line_error(path, number, "has the other format than the rows before")
        if last_us is not None and at_us < last_us:
            raise _line_error(path, number, "is earlier than the row before; sort the file by time")
        last_us = at_us
        if first == second:
            skipped["contacts of a node with itself"] += 1
            continue
        if _name_order(first) > _name_order(second):
            first, second = second, first
        yield at_us, first, second, begins


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        open_text = gzip.open if path.suffix == ".gz" else open
        with open_text(path, "rt", encoding="utf-8") as file:
            yield from enumerate(file, start=1)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ContactFileError(f"{path} cannot be read: {error}") from error


def _parse_row(path: Path, number: int, fields: list[str]) -> Row:
    if len(fields) == 5 and fields[1].upper() == "CONN":
        if fields[4].lower() not in ("up", "down"):
            raise _line_error(path, number, f"ends with {safe_repr(fields[4])}, not up or down")
        at_us = _parse_time(path, number, fields[0])
        return at_us, fields[2], fields[3], fields[4].lower() == "up"
    if len(fields) not in (3, 5):
        raise _line_error(
            path,
            number,
            f"has {len(fields)} columns; known are `t i j`, `t i j group group` (SocioPatterns) "
            "and `t CONN i j up|down` (ONE)",
        )
    return _parse_time(path, number, fields[0]), fields[1], fields[2], None


def _parse_time(path: Path, number: int, text: str) -> int:
    try:
        seconds = float(text)
    except ValueError:
        raise _line_error(path, number, f"has no time in column 1: {safe_repr(text)}") from None
    if not 0 <= seconds <= SECONDS_MAX:
        raise _line_error(path, number, f"has an impossible time: {safe_repr(text)} s")
    return round(seconds * SECOND_US)


def _line_error(path: Path, number: int, problem: str) -> ContactFileError:
    return ContactFileError(f"{path}, line {number}: {problem}")


def _name_order(name: str) -> tuple[int, str]:
    """Orders numbers by value, and names as text."""
    return (len(name), name) if name.isdigit() else (2**31, name)


Interval = tuple[int, int, str, str]


def _join_steps(rows: list[Row], skipped: Counter[str]) -> list[Interval]:
    """Joins the steps of a pair that follow each other into one contact."""
    current: dict[tuple[str, str], list[int]] = {}
    intervals: list[Interval] = []
    for at_us, first, second, _ in rows:
        span = current.get((first, second))
        if span is None:
            current[first, second] = [at_us, at_us + STEP_US]
        elif at_us <= span[1]:
            if at_us < span[1]:
                skipped["rows that repeat or overlap a contact"] += 1
            span[1] = max(span[1], at_us + STEP_US)
        else:
            intervals.append((span[0], span[1], first, second))
            current[first, second] = [at_us, at_us + STEP_US]
    intervals += [(start, end, *pair) for pair, (start, end) in current.items()]
    return intervals


def _match_ends(rows: list[Row], skipped: Counter[str]) -> list[Interval]:
    """Matches the beginnings of contacts with their ends."""
    began: dict[tuple[str, str], int] = {}
    intervals: list[Interval] = []
    for at_us, first, second, begins in rows:
        pair = first, second
        if begins:
            if pair in began:
                skipped["rows that repeat or overlap a contact"] += 1
            else:
                began[pair] = at_us
        elif pair not in began:
            skipped["ends of contacts that did not begin"] += 1
        elif (start_us := began.pop(pair)) < at_us:
            intervals.append((start_us, at_us, first, second))
        else:
            skipped["contacts that last no time"] += 1
    last_us = rows[-1][0]
    for (first, second), start_us in began.items():
        if start_us < last_us:
            intervals.append((start_us, last_us, first, second))
        else:
            skipped["contacts that last no time"] += 1
    return intervals
