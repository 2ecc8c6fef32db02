"""Stories of Thyme-DCS on the move: groups that meet, worlds side by side, crowds that walk."""

from __future__ import annotations

import msgspec
import pytest

from tests.substrates.dcs.network import DcsNetwork, in_cell, tag_in
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.rng import derive_rng
from thyme.model.tags import Tag
from thyme.protocol import app_interface as asked
from thyme.protocol.app_interface import Finished, NotificationEvent
from thyme.routing.cells import Grid
from thyme.substrates.dcs.config import PAPER, ROBUST, BackupConfig, DcsConfig

SAFE = msgspec.structs.replace(PAPER, backup=BackupConfig(nodes_max=1))
EAST = {"ann": in_cell(0), "abe": in_cell(1)}
WEST = {"yan": in_cell(6), "zoe": in_cell(7)}
BRIDGE = {"bea": in_cell(3), "cat": in_cell(5)}
both_profiles = pytest.mark.parametrize("config", [PAPER, ROBUST], ids=["paper", "robust"])


# Two groups that meet (D25)


def apart(config: DcsConfig) -> DcsNetwork:
    """Two groups that do not hear each other, each of which stands in for all cells between."""
    net = DcsNetwork({**EAST, **WEST, **BRIDGE}, config=config, absent=tuple(BRIDGE))
    for cell in (2, 3, 4):
        net.insert("ann", f"east-{cell}", tag_in(cell))
        net.insert("zoe", f"west-{cell}", tag_in(cell))
        net.subscribe("abe", tag_in(cell))
        net.subscribe("yan", tag_in(cell))
    return net


def everything() -> set[str]:
    return {f"{side}-{cell}" for side in ("east", "west") for cell in (2, 3, 4)}


def check_settled(net: DcsNetwork) -> None:
    for name in ("ann", "zoe"):
        for cell in (2, 3, 4):
            assert net.found(name, tag_in(cell)) == {f"east-{cell}", f"west-{cell}"}
    assert set(net.heard("abe")) == set(net.heard("yan")) == everything()
    for name in ("abe", "yan"):
        assert len(net.heard(name)) == len(everything()), "each once"


@both_profiles
def test_d25_two_groups_that_come_into_contact_know_all_that_both_knew(config: DcsConfig) -> None:
    net = apart(config)
    assert set(net.heard("abe")) == {"east-2", "east-3", "east-4"}

    for name in BRIDGE:
        net.come(name)
    net.run(40)

    check_settled(net)
    for cell, keepers in ((3, {"bea"}), (2, {"abe"}), (4, {"bea"})):
        assert net.indexing(f"east-{cell}") == keepers, "keys are where they belong"
        assert net.indexing(f"west-{cell}") == keepers


@both_profiles
def test_d25_a_group_that_walks_up_to_another_becomes_one_with_it(config: DcsConfig) -> None:
    net = apart(config)

    for step in range(1, 4):
        net.move("yan", in_cell(6 - step))
        net.move("zoe", in_cell(7 - step))
        net.run(3)
    net.run(60)

    check_settled(net)


def test_d25_what_one_group_deleted_does_not_come_back_from_the_other() -> None:
    """D15: dot had it before the groups parted."""
    net = DcsNetwork({**EAST, **BRIDGE, **WEST})
    key = net.insert("ann", "photo", tag_in(4))
    assert net.indexing("photo") == {"bea"}
    for name in BRIDGE:
        net.move(name, in_cell(7, 3), settle_s=0)
    net.run(20)
    net.insert("ann", "later", tag_in(4))
    net.finish("ann", asked.Delete, key=key)

    for name, cell in (("bea", 3), ("cat", 5)):
        net.move(name, in_cell(cell), settle_s=0)
    net.run(60)

    assert net.found("zoe", tag_in(4)) == {"later"}
    assert net.found("ann", tag_in(4)) == {"later"}


# Worlds side by side (D26)


def test_d26_worlds_that_share_a_place_do_not_mix() -> None:
    """M21: the same street, the same tags, two worlds; and each routes over its own nodes only."""
    people = {"ann": 0, "abe": 1, "bea": 2, "ben": 3, "cat": 4, "col": 5}
    places = {name: in_cell(cell) for name, cell in people.items()}
    worlds = {name: 1 + cell % 2 for name, cell in people.items()}
    net = DcsNetwork(places, worlds=worlds)
    net.subscribe("cat", tag_in(2))
    net.subscribe("col", tag_in(2))

    net.insert("ann", "one", tag_in(2))
    net.insert("abe", "two", tag_in(2))

    assert net.heard("cat") == ["one"]
    assert net.heard("col") == ["two"]
    assert net.indexing("one") == {"bea"}
    assert net.indexing("two") == {"abe"}, "in the other world the cell is empty"
    assert all(node.routing.traffic.dropped["another world"] for node in net.nodes.values())  # type: ignore[attr-defined]
    assert net.found("ann", tag_in(2)) == {"one"}
    assert net.found("abe", tag_in(2)) == {"two"}


def test_d26_who_comes_into_a_cell_is_not_told_what_another_world_knows() -> None:
    places = {"ann": in_cell(0), "bea": in_cell(1), "ben": in_cell(1, 1), "eve": in_cell(1, 2)}
    net = DcsNetwork(places, worlds={"ann": 1, "bea": 1, "ben": 1, "eve": 2}, absent=("eve",))
    net.insert("ann", "photo", tag_in(1))

    net.come("eve")
    net.run(6)

    assert net.nodes["eve"].routing.serving
    assert net.index("eve") == {}


# Crowds that walk


class Crowd:
    """Twelve people in twelve cells, of whom some walk, and a memory of what was acknowledged."""

    GRID = Grid(columns=4, rows=3)
    TAGS = tuple(Tag(f"tag{number}") for number in range(8))

    def __init__(self, seed: int, config: DcsConfig) -> None:
        self.rng = derive_rng(seed, "crowd")
        names = [f"n{number:02}" for number in range(12)]
        places = {name: self._place() for name in names}
        self.net = DcsNetwork(places, grid=self.GRID, config=config, seed=seed)
        self.acknowledged: dict[Tag, set[Key]] = {tag: set() for tag in self.TAGS}
        self.asks = 1_000

    def _place(self) -> tuple[float, float]:
        return self.rng.uniform(0, 160), self.rng.uniform(0, 120)

    def step(self) -> None:
        net, rng = self.net, self.rng
        name = rng.choice(list(net.nodes))
        if rng.random() < 0.3:
            net.move(name, self._place())
        else:
            tag = rng.choice(self.TAGS)
            self.asks += 1
            oid = ObjectId(f"o{self.asks}")
            request = asked.Insert(request_id=self.asks, data=b"x", tags=(tag,), oid=oid)
            if isinstance(net.ask(name, request, 0.5), Finished):
                self.acknowledged[tag].add(Key(oid, NodeId(name.encode())))
        net.run(rng.uniform(0.5, 4))

    def known(self, tag: Tag) -> set[Key]:
        net = self.net
        return {
            entry.metadata.key
            for node in net.nodes.values()
            for entry in node.index.objects()
            if tag in entry.metadata.tags
        }


@pytest.mark.parametrize("seed", range(2))
def test_d24_whoever_walks_wherever_nothing_acknowledged_is_lost(seed: int) -> None:
    """D20–D24: cells empty and fill as they like; at the end everything is found."""
    crowd = Crowd(seed, SAFE)
    net = crowd.net
    for tag in crowd.TAGS:
        net.subscribe("n00", tag)
    for _ in range(50):
        crowd.step()
    net.run(40)

    for tag, keys in crowd.acknowledged.items():
        assert net.found("n05", tag) >= {key.oid for key in keys}, tag
    told = [
        told.notification.key for told in net.told["n00"] if isinstance(told, NotificationEvent)
    ]
    assert len(told) == len(set(told))
    expected = set().union(*crowd.acknowledged.values())
    assert set(told) >= expected
    for node in net.nodes.values():
        node.check()
