"""A node of a cell that acknowledges and drops: what others lose, and get back (D27)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.substrates.dcs.grey_hole import make_grey_hole, make_hider, make_liar
from tests.substrates.dcs.network import DcsNetwork, in_cell, tag_in
from thyme.protocol import app_interface as asked
from thyme.routing.cells import Grid
from thyme.substrates.dcs.config import ROBUST, DcsConfig, RecordCheckConfig

GRID = Grid(columns=3, rows=2)
CELL = 1
TAG = tag_in(CELL, grid=GRID)
CHECKS = RecordCheckConfig(notifications=True, second_opinions=3, compare_counts=True)
LIVE = replace(ROBUST, record_checks=CHECKS)
OBJECTS = 24
WAIT_S = 300
"""Some checks in a network in which nothing else happens."""


def a_network(members: int, config: DcsConfig = LIVE, seed: int = 1) -> DcsNetwork:
    """Two nodes in every cell but that of the tag, which has a grey hole and honest members."""
    places = {
        f"n{cell}{number}": in_cell(cell, 3 * number, GRID)
        for cell in range(6)
        for number in range(2)
        if cell != CELL
    }
    places |= {f"t{number}": in_cell(CELL, 3 * number, GRID) for number in range(members)}
    net = DcsNetwork(places, grid=GRID, config=config, seed=seed, settle_s=10)
    make_grey_hole(net.nodes["t0"])
    return net


def publish(net: DcsNetwork) -> set[str]:
    for number in range(OBJECTS):
        net.insert(f"n{2 * (number % 2)}0", f"o{number}", TAG, seconds=0.5)
    return {f"o{number}" for number in range(OBJECTS)}


def test_d27_of_a_cell_that_a_grey_hole_has_for_itself_everything_comes_once_it_left() -> None:
    """All 24, more than one page: earlier, those beyond the first page never came."""
    net = a_network(1)
    net.subscribe("n50", TAG)
    published = publish(net)
    net.run(20)
    assert (net.heard("n50"), net.found("n40", TAG)) == ([], set()), "nobody else can know"

    net.go("t0")
    net.run(WAIT_S)

    assert set(net.heard("n50")) == published == net.found("n40", TAG)
    assert len(net.heard("n50")) == OBJECTS, "each once"


@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_d27_beside_honest_nodes_every_notification_comes_while_the_grey_hole_is_there(
    members: int, seed: int
) -> None:
    net = a_network(members, seed=seed)
    net.subscribe("n50", TAG)
    published = publish(net)
    net.run(WAIT_S)

    assert set(net.heard("n50")) == published
    assert len(net.heard("n50")) == OBJECTS, "each once"
    readers = 10 * ["n00", "n20", "n30", "n40"]
    found_all = sum(net.found(name, TAG) == published for name in readers)
    assert found_all >= 39, "of 40 searches"


@pytest.mark.parametrize("compare", [True, False])
def test_d27_a_node_that_hides_single_objects_from_readers_is_outvoted(compare: bool) -> None:
    """Another node of the cell counts more matches, so the cell is asked again."""
    checks = replace(CHECKS, compare_counts=compare)
    net = a_network(2, replace(ROBUST, record_checks=checks))
    net.go("t0")
    net.come("t0")
    net.run(20)
    published = publish(net)
    net.run(10)
    make_hider(net.nodes["t0"], {"o3", "o5"})

    readers = 10 * ["n00", "n20", "n30", "n40"]
    found_all = sum(net.found(name, TAG) == published for name in readers)
    assert (found_all >= 28) == compare, f"{found_all} of 40 searches"


def test_d27_without_the_checks_some_notifications_never_come() -> None:
    """What the checks are for: the honest node has the objects, and leaves it to the other one."""
    net = a_network(2, ROBUST, seed=2)
    net.subscribe("n50", TAG)
    published = publish(net)
    net.run(WAIT_S)

    assert set(net.heard("n50")) < published
    assert net.indexing("o1") == {"t1"}


def test_d27_where_all_are_honest_a_check_finds_nothing() -> None:
    net = a_network(2)
    net.go("t0")
    net.come("t0")
    net.run(20)
    net.subscribe("n50", TAG)
    published = publish(net)
    net.run(60)

    checker = net.nodes["n50"].membership.record_checker
    assert checker is not None
    assert checker.notifications is not None
    assert set(net.heard("n50")) == published
    assert checker.notifications.found == 0


@pytest.mark.parametrize("liar", ["n00", "n01"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_m19_of_a_replica_that_serves_wrong_bytes_the_next_one_is_asked(
    liar: str, seed: int
) -> None:
    """The owner lies, or the node beside it: readers get the right bytes from the other one."""
    net = a_network(2, seed=seed)
    net.go("t0")
    net.subscribe("n50", TAG)
    net.insert("n00", "photo", TAG, seconds=10)
    make_liar(net.nodes[liar])

    metadata = net.metadata("n50", "photo")
    assert net.finish("n50", asked.Retrieve, metadata=metadata, seconds=20) == b"pixels"
