"""Timetable files: the hours of an event and its halves, as TOML.

Entry point: `read_timetable`. All keys are optional: `start`, `end` and `hours` (two of them at
most), `kick_off` or both `first_half` and `second_half` (each a list of two times), and `zone`, for
times without one. docs/pipeline.md has an example.
Clause: P3.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from thyme.model.errors import InputError
from thyme.model.time_frames import as_instant_us
from thyme.pipeline.posts.formats import parse_zone
from thyme.traces.files import InputFileError
from thyme.traces.timetable import TimetableChoice

FILE_BYTES_MAX = 1_000_000


class TimetableFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a timetable file."""

    zone: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    hours: float | None = None
    kick_off: datetime | None = None
    first_half: tuple[datetime, datetime] | None = None
    second_half: tuple[datetime, datetime] | None = None


def read_timetable(path: Path) -> TimetableChoice:
    """Reads a timetable file; an invalid one is an `InputFileError`."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise InputFileError(str(path), f"cannot be read: {error.strerror or error}") from error
    try:
        return parse_timetable(data)
    except InputError as error:
        raise InputFileError(str(path), f"is not a timetable: {error}") from error


def parse_timetable(data: bytes) -> TimetableChoice:
    """Parses the contents of a timetable file."""
    try:
        fields = msgspec.toml.decode(data, type=TimetableFields)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        advice = "; write times without quotes, e.g. 2015-09-19T11:30:00Z"
        raise InputError(f"{error}{advice if 'datetime' in str(error) else ''}") from error
    zone = parse_zone(fields.zone)

    def instant_us(moment: datetime | None) -> int | None:
        if moment is None:
            return None
        return as_instant_us(moment if moment.tzinfo else moment.replace(tzinfo=zone), 0)

    def half_us(moments: tuple[datetime, datetime] | None) -> tuple[int, int] | None:
        if moments is None:
            return None
        first, last = (
            as_instant_us(each.replace(tzinfo=each.tzinfo or zone), 0) for each in moments
        )
        return first, last

    return TimetableChoice(
        start_us=instant_us(fields.start),
        end_us=instant_us(fields.end),
        hours=fields.hours,
        kick_off_us=instant_us(fields.kick_off),
        first_half_us=half_us(fields.first_half),
        second_half_us=half_us(fields.second_half),
    )
