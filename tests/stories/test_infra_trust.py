"""Stories of visitors who forge and lie: a station believes no more than a node does (B5, I23)."""

from __future__ import annotations

from msgspec.structs import replace

from tests.fake_signer import signed
from tests.stories.test_infra_stories import BOTH, ONE_VENUE, TWO_VENUES, popular_photo
from tests.substrates.infra.venues import WORLD, Venues
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.metadata import make_metadata
from thyme.model.tags import Tag
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.protocol.messages.common import Message, RouteToCell, RouteToNode, ToStation, Unpublish
from thyme.protocol.messages.replies import Done, Refused
from thyme.protocol.messages.requests import DeleteObject
from thyme.protocol.messages.stations import (
    COUNT_MAX,
    CellCycle,
    CellData,
    DownloadCount,
    ProvidedItem,
    ProvideItems,
    StorageUpdate,
    StoredObject,
    TagNeed,
    WorldList,
)
from thyme.protocol.node import Received, Send
from thyme.routing.cells import LogicalCells
from thyme.substrates.infra.mobile.stability import CYCLES_MAX, INDEX_MAX, StabilityPart
from thyme.substrates.infra.station.node import StationNode
from thyme.substrates.infra.world_numbers import world_number

WORLD_NUMBER = world_number(WORLD)
NORTH, ANN, BOB, JOE = (NodeId(name) for name in (b"north", b"ann", b"bob", b"joe"))
GOAL = Tag("goal")


def receive(station: StationNode, sender: NodeId, message: Message, net: Venues) -> list[Message]:
    """The answers of a station to a message of a mobile node."""
    cell = LogicalCells(2).cell_of_node(sender)
    envelope = ToStation(WORLD_NUMBER, cell, message)
    actions = station.handle(Received(sender, envelope), net.net.now_us)
    return [each.message for each in actions if isinstance(each, Send) and each.to == sender]


def an_unpublish(net: Venues, oid: str = "goal1") -> Unpublish:
    photo_key = Key(ObjectId(oid), ANN)
    return Unpublish(1, WORLD_NUMBER, (GOAL,), DeleteObject(1, photo_key))


def test_signed_records_pass_through_stations_to_the_other_venue() -> None:
    net = Venues(TWO_VENUES, stations=BOTH, signed=True)
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)
    assert net.heard("eve") == ["goal1"]
    net.delete("ann", net.metadata("eve", "goal1").key)
    net.run(20)

    assert net.found("fay", "goal") == set()
    assert not net.stations["north"].context.verifier.dropped


def test_b5_a_stranger_cannot_delete_in_the_name_of_another() -> None:
    net = Venues(ONE_VENUE, signed=True)
    popular_photo(net)
    net.run(25)
    north = net.stations["north"]
    forged = an_unpublish(net)
    stolen = replace(forged, delete=forged.delete.with_proof(b"of somebody else"))  # type: ignore[attr-defined]

    assert receive(north, BOB, forged, net) == receive(north, BOB, stolen, net) == []
    assert not north.context.is_unpublished(WORLD_NUMBER, Key(ObjectId("goal1"), ANN))
    assert north.context.verifier.dropped["not genuine: delete"] == 2
    assert net.found("joe", "goal") == {"goal1"}


def test_b5_a_delete_for_another_world_than_that_of_the_sender_is_dropped() -> None:
    net = Venues(ONE_VENUE)
    north = net.stations["north"]

    assert receive(north, ANN, replace(an_unpublish(net), world=7), net) == []
    assert north.dropped == {"not spoken here": 1}


def test_b5_a_station_takes_no_object_that_its_owner_did_not_sign() -> None:
    """From a visitor who was asked for a popular object, and from another station."""
    net = Venues(TWO_VENUES, stations=BOTH, signed=True)
    north = net.stations["north"]
    unsigned = make_metadata(Key(ObjectId("fake"), ANN), b"fake", [GOAL], net.net.now_us)
    by_bob = signed(unsigned, by=BOB)
    for metadata in (unsigned, by_bob):
        assert receive(north, BOB, StoredObject(1, metadata, b"fake"), net) == []
        items = ProvideItems(0, 1, (ProvidedItem(WORLD_NUMBER, metadata, b"fake"),))
        north.handle(Received(NodeId(b"south"), items), net.net.now_us)

    assert north.context.verifier.dropped["not genuine: object"] == 4
    assert north.context.content.read_item(WORLD_NUMBER, unsigned.key) is None
    genuine = ProvideItems(0, 1, (ProvidedItem(WORLD_NUMBER, signed(unsigned), b"fake"),))
    north.handle(Received(NodeId(b"south"), genuine), net.net.now_us)
    assert north.context.content.read_item(WORLD_NUMBER, unsigned.key) is not None


def cell_data(node: NodeId, *cycles: CellCycle) -> CellData:
    return CellData(1, LogicalCells(2).cell_of_node(node), 2, cycles)


def test_b8_a_node_that_lies_about_popularity_counts_no_more_than_the_whole_venue() -> None:
    net = Venues(ONE_VENUE)
    north = net.stations["north"]
    liked = Key(ObjectId("liked"), JOE)
    lie = CellCycle(1, (DownloadCount(liked, COUNT_MAX, ()),), (TagNeed(Tag("mine"), COUNT_MAX),))
    assert receive(north, JOE, cell_data(JOE, lie), net) == [Done(1)]

    present = len(ONE_VENUE)
    assert north.context.popularity.all_items()[WORLD_NUMBER, liked].downloads == present
    need = north.needs.get(WORLD_NUMBER, Tag("mine"))
    assert need is not None
    assert need.count == 10 * present
    assert north.context.counts["count reduced"] == 2


def test_b8_a_report_is_bounded_in_length_and_only_of_the_own_cell() -> None:
    net = Venues(ONE_VENUE)
    north = net.stations["north"]
    many = tuple(DownloadCount(Key(ObjectId(f"o{n}"), JOE), 1, ()) for n in range(1_200))
    receive(north, JOE, cell_data(JOE, CellCycle(1, many, ())), net)
    assert len(north.context.popularity) == 1_000
    assert north.context.counts["cell data too long"] == 200

    other = CellId(1 - LogicalCells(2).cell_of_node(JOE))
    message = ToStation(WORLD_NUMBER, other, replace(cell_data(JOE), cell=other))
    north.handle(Received(JOE, message), net.net.now_us)
    assert north.dropped == {"cell data of another cell": 1}


def test_i6_a_node_that_lies_about_its_stability_silences_its_own_cell_only() -> None:
    """It claims to be the most stable one, reports nothing, and names all cycles as confirmed."""
    net = Venues({f"node{number}": "north" for number in range(6)}, settle_s=0)
    cells = {name: node.routing.cell for name, node in net.nodes.items()}
    liar = "node0"
    owner = next(name for name in cells if cells[name] == cells[liar] and name != liar)
    reader = next(name for name in cells if cells[name] != cells[liar])
    reporter = net.extensions[liar].cell_data

    def lie(now_us: int) -> bytes:
        now = now_us // reporter.period_us
        return StabilityPart(INDEX_MAX, True, tuple(range(now - CYCLES_MAX + 2, now + 2))).encode()

    reporter.beacon_part = lie  # type: ignore[method-assign]
    reporter.report = lambda now_us: None  # type: ignore[method-assign]
    net.run(10)
    tags = {LogicalCells(2).cell_of_key(tag): tag for tag in ("goal", "save", "foul", "corner")}
    for cell, tag in tags.items():
        net.insert(owner, f"in{cell}", tag)
        net.subscribe(reader, tag)
        net.retrieve(reader, net.metadata(reader, f"in{cell}"))
    net.run(20)

    counted = {key.oid for _, key in net.stations["north"].context.popularity.all_items()}
    assert counted == {f"in{cell}" for cell in tags if cell != cells[liar]}


def test_b5_a_mobile_node_takes_orders_of_its_own_station_only() -> None:
    """Otherwise a stranger could claim that the station has objects, and cells would omit them."""
    net = Venues(ONE_VENUE)
    popular_photo(net)
    ida = net.nodes["ida"]
    photo_key = Key(ObjectId("goal1"), ANN)
    update = RouteToCell(5, ida.routing.cell, StorageUpdate((photo_key,), is_stored=True))
    now_us = net.net.now_us

    def answers(sender: NodeId, message: Message) -> list[Message]:
        sent = [a for a in ida.handle(Received(sender, message), now_us) if isinstance(a, Send)]
        return [a.message.message for a in sent if isinstance(a.message, ToStation)]

    assert [type(each) for each in answers(JOE, update)] == [Refused]
    assert answers(JOE, RouteToNode(NORTH, NodeId(b"ida"), update)) == []
    assert answers(NORTH, update) == [Done(5)]


def test_b5_a_node_with_named_stations_uses_no_other() -> None:
    link = replace(Venues(ONE_VENUE).mobile.link, accepted=(NodeId(b"south"),))
    net = Venues(ONE_VENUE, mobile=replace(Venues(ONE_VENUE).mobile, link=link))

    assert {each.link.station for each in net.extensions.values()} == {None}
    assert all(each.link.refused for each in net.extensions.values())


def test_i7_a_station_sets_the_length_of_a_cycle_for_its_cells() -> None:
    net = Venues(ONE_VENUE)
    reporter = net.extensions["joe"].cell_data
    assert reporter.period_us == 5_000_000
    joe = net.nodes["joe"]
    north = net.extensions["joe"].link
    probe = north._probe_id
    entries = net.stations["north"].context.worlds.entries()
    north.station = None
    joe.handle(Received(NORTH, WorldList(probe, entries, 1, 2_000_000)), net.net.now_us)

    assert reporter.period_us == 2_000_000


def test_a_replica_list_in_cell_data_may_name_anybody() -> None:
    """The station asks them for the object, and verifies what it gets."""
    net = Venues(ONE_VENUE)
    popular_photo(net)
    net.run(25)
    north = net.stations["north"]
    replicas = (Replica(CellId(0), BOB), Replica(CellId(1), None))
    ghost = DownloadCount(Key(ObjectId("ghost"), JOE), 5, replicas)
    receive(north, JOE, cell_data(JOE, CellCycle(1, (ghost,), ())), net)
    net.run(40)

    assert north.context.counts["popular item not found"] >= 1
    assert north.context.content.read_item(WORLD_NUMBER, ghost.key) is None
