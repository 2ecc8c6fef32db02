"""Stories of Thyme-DCS: a street and a square, over links and over the radio."""

from __future__ import annotations

import math

import pytest

from tests.substrates.dcs.network import STREET, DcsNetwork, in_cell, tag_in
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.rng import derive_rng
from thyme.model.tags import as_tags
from thyme.model.time_frames import TimeFrame
from thyme.protocol import app_interface as asked
from thyme.protocol.app_interface import AppEvent, AppRequest, Finished, NotificationEvent
from thyme.query.query import Query
from thyme.routing.cells import Grid
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.storage.store import MemoryStore
from thyme.substrates.dcs.cell_map import GridCellMap
from thyme.substrates.dcs.config import PAPER
from thyme.substrates.dcs.node import DcsNode

SECOND_US = 1_000_000


def test_a_photo_crosses_the_street_and_outlives_its_owner() -> None:
    """D11, D13, D16, D17, D18: news of it reach dan, who gets it from ann's cell when she is gone;
    then her whole cell is gone, and dot gets it from dan."""
    net = DcsNetwork(STREET)
    net.subscribe("dan", f"{tag_in(2)} & !{tag_in(4)}")

    key = net.insert("ann", "photo", tag_in(2), tag_in(0))
    assert net.heard("dan") == ["photo"]

    net.go("ann")
    assert net.finish("dan", asked.Retrieve, metadata=net.metadata("dan", "photo")) == b"pixels"

    net.go("abe")
    net.run(6)
    net.subscribe("dot", tag_in(2))
    assert net.heard("dot") == ["photo"]
    assert net.finish("dot", asked.Retrieve, metadata=net.metadata("dot", "photo")) == b"pixels"
    assert net.holding(key) == {"dan", "dot"}


def test_a_cell_whose_nodes_come_and_go_one_by_one_forgets_nothing() -> None:
    """D23, M24: of the four who keep the tag, there are never fewer than one."""
    shifts = {f"b{number}": in_cell(2, number) for number in range(4)}
    net = DcsNetwork({"ann": in_cell(0), **shifts, "cat": in_cell(4)}, absent=("b1", "b2", "b3"))
    net.subscribe("cat", tag_in(2))
    net.insert("ann", "early", tag_in(2))

    for leaves, comes in (("b0", "b1"), ("b1", "b2"), ("b2", "b3")):
        net.come(comes)
        net.run(6)
        net.go(leaves)
        net.run(6)
        net.insert("ann", f"with-{comes}", tag_in(2))

    assert net.heard("cat") == ["early", "with-b1", "with-b2", "with-b3"]
    assert set(net.index("b3")) == set(net.heard("cat"))


@pytest.mark.parametrize("seed", range(4))
def test_m26_between_stored_and_new_objects_nobody_misses_anything_whoever_of_the_cell_comes_first(
    seed: int,
) -> None:
    crowd = {f"b{number}": in_cell(2, number) for number in range(4)}
    net = DcsNetwork({"ann": in_cell(0), **crowd, "cat": in_cell(4)}, seed=seed)
    tag = tag_in(2)
    ann, cat = NodeId(b"ann"), NodeId(b"cat")
    for number in range(12):
        insert = asked.Insert(
            request_id=500 + number, data=b"x", tags=(tag,), oid=ObjectId(f"photo-{number}")
        )
        net.links.ask(ann, insert)
        if number == 6:
            conjunctions = Query(tag).conjunctions
            net.links.ask(
                cat,
                asked.Subscribe(
                    request_id=600, conjunctions=conjunctions, frame=TimeFrame(), batch=50
                ),
            )
        net.run(0.001)
    net.run(3)

    assert sorted(net.heard("cat")) == sorted(f"photo-{number}" for number in range(12))


class Square:
    """Sixteen nodes in nine cells, by radio."""

    GRID = Grid(columns=3, rows=3)

    def __init__(self, seed: int) -> None:
        rng = derive_rng(seed, "square")
        self.places = {
            NodeId(bytes([number])): (rng.uniform(0, 120), rng.uniform(0, 120))
            for number in range(1, 17)
        }
        self.world = WirelessNetwork(self.places, seed=seed)
        self.told: dict[NodeId, list[AppEvent]] = {name: [] for name in self.places}
        self.nodes: dict[NodeId, DcsNode] = {}
        for name, place in self.places.items():
            node_rng, store = derive_rng(seed, name), MemoryStore()
            ground = GridCellMap(name, self.GRID, node_rng)
            cell = self.GRID.cell_at(place)
            node = DcsNode(name, cell, ground, store, node_rng, PAPER)
            self.nodes[name] = node
            self.world.add(node, store, self.told[name].append)
        self.run(8)

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now_us + round(seconds * SECOND_US))

    def ask(self, name: NodeId, request: AppRequest) -> None:
        self.world.send_request(name, request)
        self.run(0.5)

    def finished(self, name: NodeId) -> list[object]:
        return [told.value for told in self.told[name] if isinstance(told, Finished)]


def test_on_the_radio_news_of_everybody_reach_everybody_and_objects_can_be_had() -> None:
    """D11–D18, M22."""
    square = Square(seed=4)
    names = list(square.places)
    for name in names:
        subscribe = asked.Subscribe(
            request_id=1,
            conjunctions=Query("goal & !replay").conjunctions,
            frame=TimeFrame(),
            batch=20,
        )
        square.ask(name, subscribe)
    for name in names:
        tags = as_tags(["goal", f"by-{name.hex()}"])
        square.ask(
            name, asked.Insert(request_id=2, data=name * 500, tags=tags, oid=ObjectId("photo"))
        )
    square.run(3)

    expected = {Key(ObjectId("photo"), name) for name in names}
    heard = {
        name: [
            told.notification for told in square.told[name] if isinstance(told, NotificationEvent)
        ]
        for name in names
    }
    assert all(len(square.finished(name)) == 2 for name in names)
    assert all(len(notes) == len({note.key for note in notes}) for notes in heard.values())
    total = sum(len(notes) for notes in heard.values())
    assert total >= 0.95 * len(expected) * len(names)

    reader = names[0]
    farthest = max(heard[reader], key=lambda note: math.dist(*_places(square, reader, note.key)))
    square.ask(reader, asked.Retrieve(request_id=3, metadata=farthest.metadata))
    square.run(5)  # it may take a second try
    assert square.finished(reader)[-1] == farthest.metadata.owner * 500
    for node in square.nodes.values():
        node.check()


def _places(
    square: Square, reader: NodeId, key: Key
) -> tuple[tuple[float, float], tuple[float, float]]:
    return square.places[reader], square.places[key.owner]
