"""Movement files: reads recorded paths in the formats of ns-2 (setdest) and BonnMotion.

Entry points: `read_ns2` and `read_bonnmotion`. Each reader returns one path for each node, from
instant 0 to the last instant of the file. A file with a gap, in which a node has no position, is
rejected. `traces.files` reads the text.
Clause: S6.
"""

from __future__ import annotations

import math
import os
import re
from itertools import pairwise

from thyme.model.errors import safe_repr
from thyme.model.positions import Position
from thyme.sim.mobility.paths import Leg, pause_leg, straight_leg
from thyme.traces.files import TIME_S_MAX, FilePath, InputFileError, Token, read_lines

NodePath = tuple[Leg, ...]

JUMP_M_MAX = 0.01
"""Two positions of one node at the same instant count as equal up to this distance."""

_TOKEN = re.compile(r"\S+")
_NODE = r"\$\w+\(\s*(?P<node>[^)\s]*)\s*\)"
_INITIAL = re.compile(rf"\s*{_NODE}\s+set\s+(?P<axis>[XYZ])_\s+(?P<value>\S+?)\s*;?\s*(#.*)?")
_AT = re.compile(r'\s*\$\w+\s+at\s+(?P<time>\S+)\s+"\s*(?P<command>[^"]*)"\s*;?\s*(#.*)?')
_SETDEST = re.compile(rf"{_NODE}\s+setdest\s+(?P<x>\S+)\s+(?P<y>\S+)\s+(?P<speed>\S+)\s*")
# setdest also writes shortest paths, which are not used here.
_GOD = re.compile(r"\s*\$god_\b.*")


def read_bonnmotion(source: FilePath, nodes: int | None = None) -> list[NodePath]:
    """The paths of a BonnMotion file (`.movements`, also compressed).

    The file has one line for each node: triples of an instant in seconds, x and y. Between two
    waypoints the node moves straight at a constant speed.
    """
    path = os.fspath(source)
    lines = read_lines(source)
    while not lines[-1].strip():
        lines.pop()
    numbered = [(n, line) for n, line in enumerate(lines, 1) if not line.startswith("#")]
    if not numbered:
        raise InputFileError(path, "the file has comments, but no node")
    if nodes is not None and len(numbered) != nodes:
        n = numbered[min(nodes, len(numbered) - 1)][0]
        raise InputFileError(path, f"the file has {len(numbered)} nodes, not {nodes}", n)
    waypoints = [_parse_waypoints(path, n, line, node) for node, (n, line) in enumerate(numbered)]
    end_us = max(1, max(places[-1][0] for places in waypoints))
    return [_join_waypoints(places, end_us) for places in waypoints]


def _parse_waypoints(
    path: str, line_number: int, line: str, node: int
) -> list[tuple[int, Position]]:
    tokens = [Token(path, line_number, m.start() + 1, m.group()) for m in _TOKEN.finditer(line)]
    if not tokens:
        raise InputFileError(path, f"a gap: the line of node {node} is blank", line_number, 1)
    if len(tokens) % 3:
        raise tokens[-1].make_error(
            f"a waypoint is an instant, x and y, but node {node} has {len(tokens)} numbers"
        )
    if tokens[0].parse_instant_us("the instant"):
        raise tokens[0].make_error(
            f"a gap: node {node} has no position until {tokens[0].text} s; start it at 0 s"
        )
    waypoints: list[tuple[int, Position]] = []
    for time, x, y in zip(tokens[::3], tokens[1::3], tokens[2::3], strict=True):
        at_us, there = (
            time.parse_instant_us("the instant"),
            (x.parse_coordinate_m("x"), y.parse_coordinate_m("y")),
        )
        if waypoints:
            before_us, here = waypoints[-1]
            if at_us < before_us:
                raise time.make_error(
                    f"node {node} goes back in time, from {before_us / 1e6} to {time.text} s"
                )
            if at_us == before_us:
                if math.dist(here, there) > JUMP_M_MAX:
                    raise time.make_error(f"node {node} is at two places at {time.text} s")
                continue
        waypoints.append((at_us, there))
    return waypoints


def _join_waypoints(waypoints: list[tuple[int, Position]], end_us: int) -> NodePath:
    legs = [
        Leg(start_us, stop_us, *start, *stop)
        for (start_us, start), (stop_us, stop) in pairwise(waypoints)
    ]
    last_us, last = waypoints[-1]
    if last_us < end_us:
        legs.append(pause_leg(last_us, end_us, last))
    return tuple(legs)


def read_ns2(source: FilePath, nodes: int | None = None) -> list[NodePath]:
    """The paths of an ns-2 movement file, as `setdest` and BonnMotion write it.

    `set X_` and `set Y_` set the first position of a node; `setdest` starts a movement at an
    instant, also during another one, and stops the node if the speed is 0. Comments and `$god_`
    lines are skipped.
    """
    reader = _Ns2Reader(os.fspath(source), nodes)
    for number, line in enumerate(read_lines(source), 1):
        reader.read_line(number, line)
    return reader.paths()


class _Ns2Reader:
    """Reads an ns-2 file line by line."""

    def __init__(self, path: str, nodes: int | None) -> None:
        self._path = path
        self._nodes = nodes
        self._initial: dict[tuple[int, str], float] = {}
        self._first_mentions: dict[int, Token] = {}
        self._legs: dict[int, list[Leg]] = {}
        self._last_command_us: dict[int, int] = {}

    def read_line(self, line_number: int, line: str) -> None:
        """Reads one line."""
        if not line.strip() or line.lstrip().startswith("#") or _GOD.fullmatch(line):
            return
        if match := _INITIAL.fullmatch(line):
            self._set_initial(_MatchTokens(self._path, line_number, match))
        elif match := _AT.fullmatch(line):
            self._apply_command(line_number, match)
        else:
            column = len(line) - len(line.lstrip()) + 1
            raise InputFileError(
                self._path, "expected `set X_`, `set Y_` or `at … setdest`", line_number, column
            )

    def paths(self) -> list[NodePath]:
        """The paths of all nodes, after the last line."""
        if not self._first_mentions:
            raise InputFileError(self._path, "the file places no node")
        last = max(self._first_mentions)
        count = self._nodes if self._nodes is not None else last + 1
        for node in range(count):
            if node not in self._first_mentions:
                token = self._first_mentions[last]
                raise token.make_error(f"a gap: node {node} of {count} is never placed")
            self._initial_position(self._first_mentions[node], node)
        ends_us = [legs[-1].end_us for legs in self._legs.values() if legs]
        end_us = max([1, *ends_us, *self._last_command_us.values()])
        return [tuple(self._legs_until(node, end_us)) for node in range(count)]

    def _set_initial(self, groups: _MatchTokens) -> None:
        token, axis = groups["node"], groups["axis"].text
        node = self._node_number(token)
        if (node, axis) in self._initial:
            raise token.make_error(f"the {axis} of node {node} was already set")
        self._initial[node, axis] = groups["value"].parse_coordinate_m(axis.lower())
        self._first_mentions.setdefault(node, token)

    def _apply_command(self, line_number: int, match: re.Match[str]) -> None:
        outer = _MatchTokens(self._path, line_number, match)
        command = outer["command"]
        if _GOD.fullmatch(command.text):
            return
        inner = _SETDEST.fullmatch(command.text)
        if inner is None:
            raise command.make_error(
                f"expected setdest with x, y and a speed, found {safe_repr(command.text)}"
            )
        groups = _MatchTokens(self._path, line_number, inner, command.column - 1)
        token = groups["node"]
        node = self._node_number(token)
        at_us = outer["time"].parse_instant_us("the instant")
        if at_us < self._last_command_us.get(node, 0):
            raise outer["time"].make_error(
                f"node {node} goes back in time, from {self._last_command_us[node] / 1e6} to "
                f"{outer['time'].text} s"
            )
        there = groups["x"].parse_coordinate_m("x"), groups["y"].parse_coordinate_m("y")
        speed = groups["speed"]
        if (speed_m_s := speed.parse_number("the speed")) < 0:
            raise speed.make_error(f"a speed is 0 m/s or more, not {speed.text}")
        self._initial_position(token, node)
        self._last_command_us[node] = at_us
        legs = self._legs_until(node, at_us)
        here = legs[-1].end if legs else self._initial_position(token, node)
        if speed_m_s > 0 and there != here:
            if math.dist(here, there) / speed_m_s > TIME_S_MAX:
                raise speed.make_error(f"at {speed.text} m/s node {node} would never arrive")
            legs.append(straight_leg(at_us, here, there, speed_m_s))

    def _legs_until(self, node: int, end_us: int) -> list[Leg]:
        """The path of a node so far, cut off or extended by a pause to end at an instant."""
        legs = self._legs.setdefault(node, [])
        while legs and legs[-1].start_us >= end_us:
            legs.pop()
        if legs and legs[-1].end_us > end_us:
            leg = legs.pop()
            legs.append(Leg(leg.start_us, end_us, *leg.start, *leg.position_at(end_us)))
        now_us = legs[-1].end_us if legs else 0
        if now_us < end_us:
            here = legs[-1].end if legs else (self._initial[node, "X"], self._initial[node, "Y"])
            legs.append(pause_leg(now_us, end_us, here))
        return legs

    def _node_number(self, token: Token) -> int:
        if self._nodes is not None:
            return token.parse_node("node", self._nodes)
        node = token.parse_integer("node")
        if node < 0:
            raise token.make_error(f"nodes are numbered from 0, not {node}")
        return node

    def _initial_position(self, token: Token, node: int) -> Position:
        for axis in "XY":
            if (node, axis) not in self._initial:
                raise token.make_error(
                    f"node {node} is unknown here: its {axis}_ was not set before"
                )
        return self._initial[node, "X"], self._initial[node, "Y"]


class _MatchTokens:
    """The groups of a regular-expression match, with their positions in the file."""

    def __init__(self, path: str, line: int, match: re.Match[str], offset: int = 0) -> None:
        self._path = path
        self._line = line
        self._match = match
        self._offset = offset

    def __getitem__(self, name: str) -> Token:
        column = self._offset + self._match.start(name) + 1
        return Token(self._path, self._line, column, self._match.group(name))
