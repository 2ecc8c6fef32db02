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

from thyme.model.errors import safe_repr
from thyme.model.positions import Position
from thyme.sim.radio.phy import PAYLOAD_BYTES_MAX
from thyme.sim.validation.raw_replay import RawSend
from thyme.traces.files import FilePath, InputFileError, Token, read_lines

POSITION_COLUMNS = ("node", "x", "y")
SEND_COLUMNS = ("id", "t", "src", "dst", "size")

CsvRow = dict[str, Token]


def read_positions(source: FilePath) -> list[Position]:
    """The positions of nodes 0, 1, 2 and so on; the file may list them in any order."""
    placed: dict[int, tuple[Position, Token]] = {}
    node_at: dict[Position, int] = {}
    for row in _read_rows(source, POSITION_COLUMNS):
        node = row["node"].parse_integer("node")
        if node < 0:
            raise row["node"].make_error(f"nodes are numbered from 0, not {node}")
        if node in placed:
            line = placed[node][1].line
            raise row["node"].make_error(f"node {node} was already placed in line {line}")
        at = row["x"].parse_coordinate_m("x"), row["y"].parse_coordinate_m("y")
        if at in node_at:
            raise row["x"].make_error(
                f"nodes {node_at[at]} and {node} have the same position, {at}"
            )
        placed[node], node_at[at] = (at, row["node"]), node
    for node, (_, token) in placed.items():
        if node >= len(placed):
            missing = next(number for number in range(node) if number not in placed)
            raise token.make_error(f"there is a node {node} but no node {missing}")
    return [placed[node][0] for node in range(len(placed))]


def read_sends(source: FilePath, nodes: int) -> list[RawSend]:
    """The sends of a file, in its order; `nodes` is the number of nodes."""
    sends: list[RawSend] = []
    seen: dict[int, int] = {}
    for row in _read_rows(source, SEND_COLUMNS):
        number = row["id"].parse_integer("id")
        if number in seen:
            raise row["id"].make_error(f"id {number} was already used in line {seen[number]}")
        seen[number] = row["id"].line
        at_us = row["t"].parse_instant_us("t")
        sender = row["src"].parse_node("src", nodes)
        to = row["dst"].parse_integer("dst")
        if to != -1:
            to = row["dst"].parse_node("dst", nodes)
        if to == sender:
            raise row["dst"].make_error(f"node {sender} sends to itself")
        size = row["size"].parse_integer("size")
        if not 1 <= size <= PAYLOAD_BYTES_MAX:
            raise row["size"].make_error(f"size must be 1 to {PAYLOAD_BYTES_MAX} bytes, not {size}")
        sends.append(RawSend(number, at_us, sender, to, size))
    return sends


def _read_rows(source: FilePath, columns: tuple[str, ...]) -> Iterator[CsvRow]:
    """The rows of a table, by column name; blank lines are skipped."""
    path = os.fspath(source)
    lines = ((n, line) for n, line in enumerate(read_lines(source), 1) if line.strip())
    header = _split_line(path, *next(lines))
    names = _column_indexes(header, columns)
    rows = 0
    for number, line in lines:
        tokens = _split_line(path, number, line)
        if len(tokens) != len(header):
            raise tokens[-1].make_error(
                f"the line has {len(tokens)} columns, but the header has {len(header)}"
            )
        yield {name: tokens[index] for name, index in names.items()}
        rows += 1
    if not rows:
        raise InputFileError(path, "the table has a header but no rows", header[0].line + 1)


def _column_indexes(header: list[Token], columns: tuple[str, ...]) -> dict[str, int]:
    """The index of each required column in the header."""
    found: dict[str, int] = {}
    for index, token in enumerate(header):
        if token.text in found:
            raise token.make_error(f"the header names {token.text} twice")
        found[token.text] = index
    missing = [name for name in columns if name not in found]
    if missing:
        names = ",".join(token.text for token in header)
        raise header[0].make_error(
            f"the header lacks {', '.join(missing)}: expected {','.join(columns)}, "
            f"found {safe_repr(names)}"
        )
    return {name: found[name] for name in columns}


def _split_line(path: str, line_number: int, line: str) -> list[Token]:
    tokens = []
    column = 1
    for field in line.split(","):
        text = field.strip()
        if len(text) >= 2 and text[0] == text[-1] == '"':
            text = text[1:-1]
        tokens.append(Token(path, line_number, column + len(field) - len(field.lstrip()), text))
        column += len(field) + 1
    return tokens
