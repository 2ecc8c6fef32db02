"""Input files: reads text files as tokens that know their position, and writes files atomically.

The readers of traces share this module with the simulator's readers of tables and mobility traces.
Every problem with a file, also that it is missing, is an `InputFileError`.
Clause: M25.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import zlib
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, Self

from thyme.model.errors import InputError, safe_repr
from thyme.model.time_frames import SECOND_US

FilePath = str | os.PathLike[str]

COORDINATE_M_MAX = 1e7
"""Limit of coordinates: more than any distance on Earth."""
TIME_S_MAX = 1e9
"""Limit of times: about thirty years."""

# Stricter than `float`, which also accepts underscores and digits of other scripts.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.I | re.A)
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.A)


class InputFileError(InputError):
    """A file that cannot be used, with the position of the problem.

    `line` and `column` count from 1, the column in characters; None if the problem has no single
    position.
    """

    code = "bad_file"

    def __init__(
        self, path: str, problem: str, line: int | None = None, column: int | None = None
    ) -> None:
        self.path = path
        self.problem = problem
        self.line = line
        self.column = column
        where = "".join(f":{number}" for number in (line, column) if number is not None)
        super().__init__(f"{path}{where}: {problem}")

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, int | None, int | None]]:
        return type(self), (self.path, self.problem, self.line, self.column)


class Token(NamedTuple):
    """A piece of a line and its position."""

    path: str
    line: int
    column: int
    text: str

    def make_error(self, problem: str) -> InputFileError:
        """An error at the position of this token."""
        return InputFileError(self.path, problem, self.line, self.column)

    def parse_number(self, field: str) -> float:
        """Parses the token as a finite number."""
        if not _NUMBER.fullmatch(self.text):
            raise self.make_error(f"{field} is a number, not {safe_repr(self.text)}")
        value = float(self.text)
        if not math.isfinite(value):
            raise self.make_error(f"{field} is a finite number, not {safe_repr(self.text)}")
        return value

    def parse_integer(self, field: str) -> int:
        """Parses the token as an integer."""
        if not _INTEGER.fullmatch(self.text):
            raise self.make_error(f"{field} is a whole number, not {safe_repr(self.text)}")
        return int(self.text)

    def parse_coordinate_m(self, field: str) -> float:
        """Parses the token as a coordinate in metres."""
        value = self.parse_number(field)
        if abs(value) > COORDINATE_M_MAX:
            raise self.make_error(f"{field} is at most {COORDINATE_M_MAX:.0f} m, not {self.text}")
        return value

    def parse_instant_us(self, field: str) -> int:
        """Parses the token, in seconds, as an instant."""
        value = self.parse_number(field)
        if value < 0:
            raise self.make_error(f"{field} is 0 s or later, not {self.text}")
        if value > TIME_S_MAX:
            raise self.make_error(f"{field} is at most {TIME_S_MAX:.0f} s, not {self.text}")
        return round(value * SECOND_US)

    def parse_node(self, field: str, nodes: int) -> int:
        """Parses the token as a node number below `nodes`."""
        value = self.parse_integer(field)
        if not 0 <= value < nodes:
            raise self.make_error(
                f"{field} is unknown: {value}; nodes are numbered 0 to {nodes - 1}"
            )
        return value


def read_lines(source: FilePath) -> list[str]:
    """Reads the lines of a text file, compressed if its name ends in `.gz`."""
    return read_text(source).replace("\r\n", "\n").split("\n")


def read_text(source: FilePath) -> str:
    """Reads a text file unchanged, compressed if its name ends in `.gz`."""
    path = os.fspath(source)
    try:
        data = Path(path).read_bytes()
        if path.endswith(".gz"):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InputFileError(path, f"cannot be read: {reason or error}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise InputFileError(path, "this is not UTF-8 text", line, column) from error
    if not text.strip():
        raise InputFileError(path, "the file is empty")
    return text


def write_atomically(target: FilePath, data: bytes) -> None:
    """Writes a file atomically: readers see the old or the new contents, never a part."""
    path = Path(os.fspath(target))
    # Concurrent writers of one file, in threads or processes, use different drafts.
    draft = path.with_name(f".{path.name[:200]}.{token_hex(8)}")
    try:
        try:
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise InputFileError(str(path), f"cannot be written: {error.strerror or error}") from error
