"""Contacts computed from movement, against a slow twin; recorded contacts (S6, U9)."""

from __future__ import annotations

import gzip
import math
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thyme.model.worlds import Area
from thyme.sim.encounters.contact_files import ContactFileError, read_contacts
from thyme.sim.encounters.contacts import Contact, ListedContacts, MovementContacts
from thyme.sim.encounters.segments import PathSegments, StreetSegments
from thyme.sim.mobility.manhattan import ManhattanGrid
from thyme.sim.mobility.models import RandomWaypoint
from thyme.sim.mobility.paths import Leg, pause_leg, position_at, straight_leg

SECOND_US = 1_000_000
RANGE_M = 10.0
OVERLAP = "rows that repeat or overlap a contact"
NOT_BEGUN = "ends of contacts that did not begin"


def contacts_of(source: MovementContacts, until_us: int) -> list[Contact]:
    """The contacts up to an instant, those still open cut there."""
    found: list[Contact] = []
    began: dict[tuple[int, int], int] = {}
    end_us = 0
    while end_us < until_us:
        changes, end_us = source.next_changes()
        rows = zip(changes.at_us, changes.first, changes.second, changes.begins, strict=True)
        for at_us, first, second, begins in rows:
            if at_us >= until_us:
                continue
            if begins:
                assert (first, second) not in began
                began[first, second] = at_us
            else:
                found.append(Contact(began.pop((first, second)), at_us, first, second))
    found += [Contact(start_us, until_us, *pair) for pair, start_us in began.items()]
    return sorted(found)


def slow_contacts(paths: list[list[Leg]], until_us: int, range_m: float) -> list[Contact]:
    """The same by looking at every pair and every pair of legs, one after the other."""
    found: list[Contact] = []
    for first in range(len(paths)):
        for second in range(first + 1, len(paths)):
            spans: list[list[float]] = []
            instants = sorted(
                {0, until_us}
                | {leg.end_us for path in (paths[first], paths[second]) for leg in path}
            )
            for start_us, end_us in pairwise(instants):
                if start_us >= until_us:
                    break
                span = _in_range(
                    paths[first], paths[second], start_us, min(end_us, until_us), range_m
                )
                if span is not None:
                    if spans and span[0] <= spans[-1][1] + 2:
                        spans[-1][1] = span[1]
                    else:
                        spans.append(list(span))
            found += [
                Contact(round(a), round(b), first, second) for a, b in spans if round(b) > round(a)
            ]
    return sorted(found)


def _in_range(
    one: list[Leg], other: list[Leg], start_us: int, end_us: int, range_m: float
) -> tuple[float, float] | None:
    (ax0, ay0), (ax1, ay1) = position_at(one, start_us), position_at(one, end_us)
    (bx0, by0), (bx1, by1) = position_at(other, start_us), position_at(other, end_us)
    dx, dy = bx0 - ax0, by0 - ay0
    wx, wy = bx1 - ax1 - dx, by1 - ay1 - dy  # over the whole span
    a, b, c = wx * wx + wy * wy, dx * wx + dy * wy, dx * dx + dy * dy - range_m**2
    if a < 1e-18:
        low, high = (0.0, 1.0) if c <= 0 else (1.0, 0.0)
    elif b * b <= a * c:
        return None
    else:
        root = math.sqrt(b * b - a * c)
        low, high = max(0.0, (-b - root) / a), min(1.0, (-b + root) / a)
    span_us = end_us - start_us
    return (start_us + low * span_us, start_us + high * span_us) if low < high else None


def same(one: list[Contact], other: list[Contact]) -> bool:
    """Equal up to the rounding of instants."""
    key = lambda contact: (contact.first, contact.second, contact.start_us)  # noqa: E731
    pairs = list(zip(sorted(one, key=key), sorted(other, key=key), strict=False))
    return len(one) == len(other) and all(
        (a.first, a.second) == (b.first, b.second)
        and abs(a.start_us - b.start_us) <= 5
        and abs(a.end_us - b.end_us) <= 5
        for a, b in pairs
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("pause_us", [0, 30 * SECOND_US])
def test_contacts_of_random_waypoints_are_those_of_the_slow_twin(seed: int, pause_us: int) -> None:
    until_us = 900 * SECOND_US
    model = RandomWaypoint(
        area=Area(80.0, 60.0),
        speed_m_s_min=0.5,
        speed_m_s_max=3.0,
        pause_us=pause_us,
        move_probability=0.8,
    )
    paths = [list(model.path(Random(f"{seed} {node}"), until_us)) for node in range(9)]

    found = contacts_of(MovementContacts(PathSegments(paths), RANGE_M), until_us)

    assert found
    assert same(found, slow_contacts(paths, until_us, RANGE_M))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_contacts_of_any_legs_are_those_of_the_slow_twin(data: st.DataObject) -> None:
    coordinates = st.integers(-30, 30).map(float)
    durations = st.integers(1, 40).map(lambda s: s * SECOND_US)
    paths: list[list[Leg]] = []
    for _ in range(3):
        here = data.draw(st.tuples(coordinates, coordinates))
        now_us, path = 0, []
        for duration_us in data.draw(st.lists(durations, min_size=1, max_size=4)):
            there = data.draw(st.tuples(coordinates, coordinates))
            path.append(Leg(now_us, now_us + duration_us, *here, *there))
            now_us, here = now_us + duration_us, there
        paths.append([*path, pause_leg(now_us, 200 * SECOND_US, here)])
    until_us = 170 * SECOND_US

    found = contacts_of(MovementContacts(PathSegments(paths), 7.3), until_us)
    expected = slow_contacts(paths, until_us, 7.3)

    # Grazing contacts of a few microseconds may round to nothing in one of the two.
    long = [[c for c in some if c.end_us - c.start_us > 50] for some in (found, expected)]
    assert same(*long)


def test_u9_two_walkers_that_pass_are_in_contact_for_the_time_of_20_metres() -> None:
    there = straight_leg(0, (0.0, 0.0), (100.0, 0.0), 1.5)
    back = straight_leg(0, (100.0, 0.0), (0.0, 0.0), 1.5)
    [contact] = contacts_of(MovementContacts(PathSegments([[there], [back]])), there.end_us)

    assert contact.start_us == pytest.approx(30 * SECOND_US, abs=2)  # 90 m at 3 m/s
    assert contact.end_us == pytest.approx(36_666_667, abs=2)


def test_nodes_that_never_move_are_in_contact_for_ever() -> None:
    paths = [[pause_leg(0, 1, (0.0, 0.0))], [pause_leg(0, 1, (9.0, 0.0))]]
    source = MovementContacts(PathSegments([[pause_leg(0, 10**12, p[0].start)] for p in paths]))

    assert contacts_of(source, 10**10) == [Contact(0, 10**10, 0, 1)]


def test_u9_street_walkers_stay_on_streets_at_the_speeds_of_the_paper() -> None:
    grid = ManhattanGrid()
    segments = StreetSegments(grid, 50, seed=1).read_until(3_600 * SECOND_US)
    block_m = grid.side_m / grid.blocks
    vertical = segments.x0 == segments.x1
    for along, across in ((segments.y0, segments.x0), (segments.x0, segments.y0)):
        chosen = vertical if across is segments.x0 else ~vertical
        streets = across[chosen] / block_m
        assert abs(streets - streets.round()).max() < 1e-6
        assert along.min() >= 0
        assert along.max() <= grid.side_m
    lengths = abs(segments.x1 - segments.x0) + abs(segments.y1 - segments.y0)
    speeds = lengths / (segments.end_us - segments.start_us) * 1e6
    long = lengths > 0.1
    assert speeds[long].min() > 0.49
    assert (lengths[long].sum() / ((segments.end_us - segments.start_us)[long].sum() / 1e6)) == (
        pytest.approx(1.5, abs=0.05)
    )


def test_u9_street_walkers_turn_and_change_speed_like_those_of_the_mobility_model() -> None:
    """The fast generator and `ManhattanGrid.path` draw the same legs, in distribution."""
    grid = ManhattanGrid()
    hour_us = 3_600 * SECOND_US
    fast = StreetSegments(grid, 40, seed=3).read_until(4 * hour_us)
    slow = [leg for node in range(12) for leg in grid.path(Random(node), 4 * hour_us)]
    fast_lengths = abs(fast.x1 - fast.x0) + abs(fast.y1 - fast.y0)

    assert fast_lengths.mean() == pytest.approx(
        sum(leg.length_m for leg in slow) / len(slow), rel=0.05
    )
    fast_vertical = (fast.x0 == fast.x1).mean()
    assert fast_vertical == pytest.approx(0.5, abs=0.03)


def test_the_paths_of_each_node_have_no_gaps() -> None:
    segments = StreetSegments(ManhattanGrid(side_m=100.0), 5, seed=2).read_until(600 * SECOND_US)
    for node in range(5):
        mine = segments.select(segments.node == node)
        order = mine.start_us.argsort()
        mine = mine.select(order)
        assert (mine.end_us[:-1] == mine.start_us[1:]).all()
        assert abs(mine.x1[:-1] - mine.x0[1:]).max() < 1e-6
        assert abs(mine.y1[:-1] - mine.y0[1:]).max() < 1e-6


# Files


def written(folder: Path, text: str, name: str = "contacts.dat") -> Path:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["tij.dat", "tij.dat.gz"])
def test_sociopatterns_steps_that_follow_each_other_are_one_contact(
    tmp_path: Path, name: str
) -> None:
    trace = read_contacts(written(tmp_path, "100\t9\t7\n120\t7\t9\n160\t7\t9\n160\t7\t12\n", name))

    assert trace.names == ["7", "9", "12"]
    assert trace.contacts == [
        Contact(0, 40 * SECOND_US, 0, 1),
        Contact(60 * SECOND_US, 80 * SECOND_US, 0, 1),
        Contact(60 * SECOND_US, 80 * SECOND_US, 0, 2),
    ]
    assert not trace.skipped


def test_sociopatterns_rows_may_name_the_groups_of_people(tmp_path: Path) -> None:
    trace = read_contacts(written(tmp_path, "100 7 9 1A 2B\n"))

    assert trace.contacts == [Contact(0, 20 * SECOND_US, 0, 1)]


def test_contacts_of_one_go_up_and_down(tmp_path: Path) -> None:
    text = "10.5 CONN 1 2 up\n12 CONN 3 1 up\n30.5 CONN 2 1 down\n40 CONN 4 5 up\n50 CONN 1 2 up\n"
    trace = read_contacts(written(tmp_path, text))

    assert trace.contacts == [
        Contact(0, 20 * SECOND_US, 0, 1),
        Contact(1_500_000, 39_500_000, 0, 2),
        Contact(29_500_000, 39_500_000, 3, 4),
    ]
    assert trace.skipped == {"contacts that last no time": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("20 1 1\n20 1 2\n", "contacts of a node with itself"),
        ("20 1 2\n20 2 1\n", "rows that repeat or overlap a contact"),
        ("20 1 2\n30 1 2\n", "rows that repeat or overlap a contact"),
        (
            "1 CONN 1 2 up\n2 CONN 1 2 up\n3 CONN 1 2 down\n",
            "rows that repeat or overlap a contact",
        ),
        (
            "1 CONN 1 2 up\n3 CONN 1 2 down\n4 CONN 1 2 down\n",
            "ends of contacts that did not begin",
        ),
    ],
)
def test_rows_that_contradict_others_are_left_out_and_counted(
    tmp_path: Path, text: str, reason: str
) -> None:
    trace = read_contacts(written(tmp_path, text))

    assert len(trace.contacts) == 1
    assert trace.skipped == {reason: 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("40 1 2\n20 1 3\n", "line 2: is earlier"),
        ("20 1 2 4\n", "line 1: has 4 columns"),
        ("time,i,j\n", "line 1: has 1 columns"),
        ("t i j\n", "line 1: has no time"),
        ("-20 1 2\n", "line 1: has an impossible time"),
        ("nan 1 2\n", "line 1: has an impossible time"),
        ("20 CONN 1 2 sideways\n", "not up or down"),
        ("20 1 2\n40 CONN 1 2 up\n", "line 2: has the other format"),
        ("", "has no contacts"),
        ("20 1 1\n", "has no contacts"),
    ],
)
def test_files_that_make_no_sense_are_refused_with_the_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ContactFileError, match=problem):
        read_contacts(written(tmp_path, text))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(b"\x1f\x8b broken")
    with pytest.raises(ContactFileError, match="cannot be read"):
        read_contacts(path)


def test_listed_contacts_come_in_order_of_time() -> None:
    source = ListedContacts([Contact(5, 9, 0, 1), Contact(1, 5, 1, 2)], 3)
    changes, _ = source.next_changes()

    assert changes.at_us == [1, 5, 5, 9]
    assert changes.begins == [True, False, True, False]
