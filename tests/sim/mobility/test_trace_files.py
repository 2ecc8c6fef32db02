"""Recorded paths are read as ns-2 and BonnMotion write them, or refused with line and column."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.model.rng import derive_rng
from thyme.model.time_frames import SECOND_US
from thyme.model.worlds import Area
from thyme.sim.mobility.manhattan import ManhattanGrid
from thyme.sim.mobility.models import Leg, position_at, random_waypoint_at_pace
from thyme.sim.mobility.movement_files import read_bonnmotion, read_ns2
from thyme.traces.files import InputFileError

S = SECOND_US

NS2 = """\
#
# nodes: 2, pause: 2.00
#
$node_(0) set X_ 1.0
$node_(0) set Y_ 2.0
$node_(0) set Z_ 0.0
$node_(1) set X_ 10.0
$node_(1) set Y_ 10.0
$god_ set-dist 0 1 1
$ns_ at 5.0 "$node_(0) setdest 5.0 5.0 2.5"
$ns_ at 8.0 "$god_ set-dist 0 1 2"
$ns_ at 9.0 "$node_(0) setdest 5.0 6.0 0.5"; # and on
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "paths.txt"


def movements(paths: list[list[Leg]]) -> str:
    """Paths as BonnMotion writes them: a line of triples for each node."""
    lines = []
    for path in paths:
        waypoints = [(0, *path[0].start), *((leg.end_us, *leg.end) for leg in path)]
        lines.append(" ".join(f"{t / S!r} {x!r} {y!r}" for t, x, y in waypoints))
    return "\n".join(lines) + "\n"


# BonnMotion


def test_s6_a_bonnmotion_file_has_a_line_of_waypoints_for_each_node(file: Path) -> None:
    file.write_text("0.0 1.0 2.0 3.0 1.0 2.0 5.0 4.0 6.0\n0 7 8\n")
    assert read_bonnmotion(file) == [
        (Leg(0, 3 * S, 1.0, 2.0, 1.0, 2.0), Leg(3 * S, 5 * S, 1.0, 2.0, 4.0, 6.0)),
        (Leg(0, 5 * S, 7.0, 8.0, 7.0, 8.0),),
    ]


def test_s6_a_compressed_file_with_comments_is_read(tmp_path: Path) -> None:
    path = tmp_path / "walk.movements.gz"
    path.write_bytes(gzip.compress(b"# made by hand\n0 1 2 1 3 4\n\n"))
    assert read_bonnmotion(path, nodes=1) == [(Leg(0, S, 1.0, 2.0, 3.0, 4.0),)]


def test_s6_a_waypoint_said_twice_counts_once(file: Path) -> None:
    file.write_text("0 1 2 5 3 4 5 3 4.001 9 5 6\n")
    assert read_bonnmotion(file) == [
        (Leg(0, 5 * S, 1.0, 2.0, 3.0, 4.0), Leg(5 * S, 9 * S, 3.0, 4.0, 5.0, 6.0))
    ]


@given(seed=st.integers(0, 2**32), nodes=st.integers(1, 4), until_s=st.integers(1, 2000))
def test_s6_paths_survive_a_bonnmotion_file(
    tmp_path_factory: pytest.TempPathFactory, seed: int, nodes: int, until_s: int
) -> None:
    models = [random_waypoint_at_pace("jog", Area(400.0, 200.0)), ManhattanGrid(side_m=60.0)]
    written = [
        list(models[node % 2].path(derive_rng(seed, "mobility", node), until_s * S))
        for node in range(nodes)
    ]
    file = tmp_path_factory.getbasetemp() / "round.movements"
    file.write_text(movements(written))

    read = read_bonnmotion(file, nodes)

    end_us = max(path[-1].end_us for path in written)
    for before, after in zip(written, read, strict=True):
        assert list(after[: len(before)]) == before
        assert after[-1].end_us == end_us
        assert after[-1].end == before[-1].end


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("", None, None, "empty"),
        ("# nothing\n", None, None, "no node"),
        ("0 1 2\n\n0 3 4\n", 2, 1, "a gap: the line of node 1 is blank"),
        ("0 1 2\n4.5 3 4 6 5 6\n", 2, 1, "a gap: node 1 has no position until 4.5 s"),
        ("0 1 2 5 3\n", 1, 9, "has 5 numbers"),
        ("0 1 2 0 3 4 5 6\n", 1, 15, "has 8 numbers"),
        ("0 1 2 -5 3 4\n", 1, 7, "0 s or later, not -5"),
        ("0 1 2 5 NaN 4\n", 1, 9, "x is a finite number"),
        ("0 1 2 5 3 inf\n", 1, 11, "y is a finite number"),
        ("0 1 2 nan 3 4\n", 1, 7, "the instant is a finite number"),
        ("0 1 2 five 3 4\n", 1, 7, "the instant is a number, not 'five'"),
        ("0 1 2 9 3 4  8 5 6\n", 1, 14, "node 0 goes back in time, from 9.0 to 8 s"),
        ("0 1 2 9 3 4 9 5 6\n", 1, 13, "node 0 is at two places at 9 s"),
    ],
)
def test_s6_a_bonnmotion_file_that_leaves_open_where_a_node_is_is_refused(
    file: Path, text: str, line: int | None, column: int | None, problem: str
) -> None:
    file.write_text(text)
    with pytest.raises(InputFileError) as caught:
        read_bonnmotion(file)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert problem in caught.value.problem


@pytest.mark.parametrize(("nodes", "line"), [(1, 2), (3, 2)])
def test_s6_a_bonnmotion_file_for_other_nodes_is_refused(file: Path, nodes: int, line: int) -> None:
    file.write_text("0 1 2\n0 3 4\n")
    with pytest.raises(InputFileError, match=f"2 nodes, not {nodes}") as caught:
        read_bonnmotion(file, nodes)
    assert caught.value.line == line


# ns-2


def test_s6_an_ns2_file_sends_nodes_off_at_instants(file: Path) -> None:
    file.write_text(NS2)
    assert read_ns2(file) == read_ns2(file, nodes=2)
    assert read_ns2(file) == [
        (
            Leg(0, 5 * S, 1.0, 2.0, 1.0, 2.0),
            Leg(5 * S, 7 * S, 1.0, 2.0, 5.0, 5.0),  # 5 m at 2.5 m/s
            Leg(7 * S, 9 * S, 5.0, 5.0, 5.0, 5.0),
            Leg(9 * S, 11 * S, 5.0, 5.0, 5.0, 6.0),
        ),
        (Leg(0, 11 * S, 10.0, 10.0, 10.0, 10.0),),
    ]


def placed(*orders: tuple[int, str]) -> str:
    """A file with one node at (0, 0) and commands for it: time, destination and speed."""
    lines = [f'$ns_ at {at_s} "$node_(0) setdest {order}"' for at_s, order in orders]
    return "\n".join(["$node_(0) set X_ 0", "$node_(0) set Y_ 0", *lines])


def test_s6_a_file_in_which_nobody_moves_is_a_path_too(file: Path) -> None:
    file.write_text(placed())
    assert read_ns2(file) == [(Leg(0, 1, 0.0, 0.0, 0.0, 0.0),)]


def test_s6_a_node_under_way_turns_where_it_is(file: Path) -> None:
    file.write_text(placed((0, "10 0 1"), (4, "4 3 1")))
    [path] = read_ns2(file)
    assert path == (Leg(0, 4 * S, 0.0, 0.0, 4.0, 0.0), Leg(4 * S, 7 * S, 4.0, 0.0, 4.0, 3.0))


def test_s6_a_node_sent_off_with_speed_0_halts(file: Path) -> None:
    file.write_text(placed((0, "10 0 1"), (4, "10 0 0"), (6, "4 1 1")))
    [path] = read_ns2(file)
    assert [position_at(path, at_us * S) for at_us in (4, 6, 7)] == [(4, 0), (4, 0), (4, 1)]


def test_s6_of_two_orders_at_one_instant_the_later_counts(file: Path) -> None:
    file.write_text(placed((1, "10 0 1"), (1, "0 5 1")))
    [path] = read_ns2(file)
    assert path == (Leg(0, S, 0.0, 0.0, 0.0, 0.0), Leg(S, 6 * S, 0.0, 0.0, 0.0, 5.0))


@pytest.mark.parametrize(
    ("extra", "column", "problem"),
    [
        ('$ns_ at 1 "$node_(7) setdest 1 1 1"', 19, "node 7 is unknown"),
        ('$ns_ at -1 "$node_(0) setdest 1 1 1"', 9, "0 s or later, not -1"),
        ('$ns_ at nan "$node_(0) setdest 1 1 1"', 9, "the instant is a finite number"),
        ('$ns_ at 8 "$node_(0) setdest 1 1 1"', 9, "node 0 goes back in time, from 9.0 to 8 s"),
        ('$ns_ at 10 "$node_(0) setdest NaN 1 1"', 31, "x is a finite number"),
        ('$ns_ at 10 "$node_(0) setdest 1 y 1"', 33, "y is a number, not 'y'"),
        ('$ns_ at 10 "$node_(0) setdest 1 1 -1"', 35, "a speed is 0 m/s or more, not -1"),
        ('$ns_ at 10 "$node_(0) setdest 1 1 1e-99"', 35, "would never arrive"),
        ('$ns_ at 10 "$node_(0) setdest 1 1"', 13, "expected setdest with x, y and a speed"),
        ('$ns_ at 10 "$node_(0) set X_ 5"', 13, "expected setdest with x, y and a speed"),
        ("  $node_(0) setdest 1 1 1", 3, "expected `set X_`"),
        ("$node_(0) set X_ 3", 8, "the X of node 0 was already set"),
        ("$node_(-1) set X_ 3", 8, "numbered from 0"),
        ("$node_(a) set X_ 3", 8, "node is a whole number, not 'a'"),
        ("$node_(2) set X_ inf", 18, "x is a finite number"),
        ("$node_(2) set X_ 1", 8, "node 2 is unknown here: its Y_ was not set"),
        ("$node_(3) set X_ 1\n$node_(3) set Y_ 1", 8, "a gap: node 2 of 4 is never placed"),
    ],
)
def test_s6_an_ns2_file_that_leaves_open_where_a_node_is_is_refused(
    file: Path, extra: str, column: int, problem: str
) -> None:
    file.write_text(NS2 + extra)
    with pytest.raises(InputFileError) as caught:
        read_ns2(file)
    assert problem in caught.value.problem
    assert (caught.value.line, caught.value.column) == (13, column)


def test_s6_an_ns2_file_for_other_nodes_is_refused(file: Path) -> None:
    file.write_text(NS2)
    with pytest.raises(InputFileError, match=r":7:8: node is unknown: 1"):
        read_ns2(file, nodes=1)
    with pytest.raises(InputFileError, match="a gap: node 2 of 3"):
        read_ns2(file, nodes=3)
    file.write_text("# nothing\n")
    with pytest.raises(InputFileError, match="places no node"):
        read_ns2(file)


@given(seed=st.integers(0, 2**32), until_s=st.integers(1, 2000))
def test_s6_both_formats_tell_the_same_path(
    tmp_path_factory: pytest.TempPathFactory, seed: int, until_s: int
) -> None:
    model = random_waypoint_at_pace("jog", Area(400.0, 200.0))
    path = list(model.path(derive_rng(seed, "mobility", 0), until_s * S))
    folder = tmp_path_factory.getbasetemp()
    (folder / "one.movements").write_text(movements([path]))
    orders = [
        f'$ns_ at {leg.start_us / S!r} "$node_(0) setdest {leg.x1!r} {leg.y1!r} {leg.speed_m_s!r}"'
        for leg in path
        if leg.is_moving
    ]
    x, y = path[0].start
    start = [f"$node_(0) set X_ {x!r}", f"$node_(0) set Y_ {y!r}"]
    (folder / "one.ns_movements").write_text("\n".join(start + orders))

    [one] = read_bonnmotion(folder / "one.movements")
    [other] = read_ns2(folder / "one.ns_movements")

    for at_us in range(0, until_s * S, 10_000_000):
        assert position_at(one, at_us) == pytest.approx(position_at(other, at_us), abs=1e-4)


PIECES = [
    *("$node_(0)", "$node_(1)", "set", "X_", "Y_", "5", "0.5", "-1", "nan", "\n", "#"),
    *("$ns_ at", '"$node_(0) setdest', '"', "$god_"),
]


@given(
    text=st.text("0123456789.-naif \n", max_size=60),
    words=st.lists(st.sampled_from(PIECES), max_size=30),
)
def test_s6_whatever_a_movement_file_holds_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str, words: list[str]
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.movements"
    for content, read in ((text, read_bonnmotion), (placed() + "\n" + " ".join(words), read_ns2)):
        file.write_text(content)
        try:
            paths = read(file)
        except InputFileError:
            continue
        assert len({path[-1].end_us for path in paths}) == 1
        assert all(path[0].start_us == 0 for path in paths)
