"""CSV files: reads the positions of nodes and raw sends from CSV files with a header line.

Entry points: `read_positions` and `read_sends`. Positions have the columns `node,x,y` in metres;
sends have `id,t,src,dst,size`, with the time in seconds, −1 as the destination of a broadcast, and
the size of the UDP payload in bytes. Columns may be in any order; other columns are ignored.
`raw_replay` runs the sends, `traces.files` reads the text.
Clause: S3.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from thyme.model.errors import shown
from thyme.sim.paths import Point
from thyme.sim.replay import RawSend
from thyme.traces.files import InputFileError, Source, Word, read_lines

POSITION_COLUMNS = ("node", "x", "y")
SEND_COLUMNS = ("id", "t", "src", "dst", "size")
PAYLOAD_BYTES_MAX = 2296 - 28
"""The UDP payload of one frame: the MTU of 2,296 bytes minus the headers of IPv4 and UDP."""

Row = dict[str, Word]


def read_positions(source: Source) -> list[Point]:
    """The positions of nodes 0, 1, 2 and so on; the file may list them in any order."""
    placed: dict[int, tuple[Point, Word]] = {}
    node_at: dict[Point, int] = {}
    for row in _rows(source, POSITION_COLUMNS):
        node = row["node"].whole("node")
        if node < 0:
            raise row["node"].error(f"nodes are numbered from 0, not {node}")
        if node in placed:
            line = placed[node][1].line
            raise row["node"].error(f"node {node} was already placed in line {line}")
        at = row["x"].coordinate_m("x"), row["y"].coordinate_m("y")
        if at in node_at:
            raise row["x"].error(f"nodes {node_at[at]} and {node} have the same position, {at}")
        placed[node], node_at[at] = (at, row["node"]), node
    for node, (_, word) in placed.items():
        if node >= len(placed):
            missing = next(number for number in range(node) if number not in placed)
            raise word.error(f"there is a node {node} but no node {missing}")
    return [placed[node][0] for node in range(len(placed))]


def read_sends(source: Source, nodes: int) -> list[RawSend]:
    """The sends of a file, in its order; `nodes` is the number of nodes."""
    sends: list[RawSend] = []
    seen: dict[int, int] = {}
    for row in _rows(source, SEND_COLUMNS):
        number = row["id"].whole("id")
        if number in seen:
            raise row["id"].error(f"id {number} was already used in line {seen[number]}")
        seen[number] = row["id"].line
        at_us = row["t"].instant_us("t")
        sender = row["src"].node("src", nodes)
        to = row["dst"].whole("dst")
        if to != -1:
            to = row["dst"].node("dst", nodes)
        if to == sender:
            raise row["dst"].error(f"node {sender} sends to itself")
        size = row["size"].whole("size")
        if not 1 <= size <= PAYLOAD_BYTES_MAX:
            raise row["size"].error(f"size must be 1 to {PAYLOAD_BYTES_MAX} bytes, not {size}")
        sends.append(RawSend(number, at_us, sender, to, size))
    return sends


def _rows(source: Source, columns: tuple[str, ...]) -> Iterator[Row]:
    """The rows of a table, by column name; blank lines are skipped."""
    path = os.fspath(source)
    lines = ((n, line) for n, line in enumerate(read_lines(source), 1) if line.strip())
    header = _words(path, *next(lines))
    names = _names(header, columns)
    rows = 0
    for number, line in lines:
        words = _words(path, number, line)
        if len(words) != len(header):
            raise words[-1].error(
                f"the line has {len(words)} columns, but the header has {len(header)}"
            )
        yield {name: words[index] for name, index in names.items()}
        rows += 1
    if not rows:
        raise InputFileError(path, "the table has a header but no rows", header[0].line + 1)


def _names(header: list[Word], columns: tuple[str, ...]) -> dict[str, int]:
    """The index of each required column in the header."""
    found: dict[str, int] = {}
    for index, word in enumerate(header):
        if word.text in found:
            raise word.error(f"the header names {word.text} twice")
        found[word.text] = index
    missing = [name for name in columns if name not in found]
    if missing:
        names = ",".join(word.text for word in header)
        raise header[0].error(
            f"the header lacks {', '.join(missing)}: expected {','.join(columns)}, "
            f"found {shown(names)}"
        )
    return {name: found[name] for name in columns}


def _words(path: str, number: int, line: str) -> list[Word]:
    words = []
    column = 1
    for field in line.split(","):
        text = field.strip()
        if len(text) >= 2 and text[0] == text[-1] == '"':
            text = text[1:-1]
        words.append(Word(path, number, column + len(field) - len(field.lstrip()), text))
        column += len(field) + 1
    return words
