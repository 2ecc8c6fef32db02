"""The links of a station to the nodes of several worlds (I2, I25)."""

from __future__ import annotations

from tests.builders import ALICE, BOB
from thyme.model.ids import NodeId
from thyme.model.worlds import INFRA, WorldInfo, named_world_id
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.common import Message, ToStation
from thyme.protocol.messages.replies import Done
from thyme.protocol.messages.stations import WorldProbe
from thyme.substrates.infra.world_numbers import world_number
from thyme.transport.link import Link
from thyme.transport.link_config import LinkConfig, MessageReceived, MessageUndelivered
from thyme.transport.world_links import WORLDS_MAX, WorldLinks

STATION = NodeId(b"station")
HERE, THERE = ("10.0.0.1", 1), ("10.0.0.2", 2)


def a_world(name: str, **fields: object) -> WorldInfo:
    made = {"substrate": INFRA, "world_id": named_world_id(INFRA, name), **fields}
    return WorldInfo(name, **made)  # type: ignore[arg-type]


class Mobile:
    """A mobile node's link, and what passes between it and a station."""

    def __init__(self, station: WorldLinks, node_id: NodeId, world: WorldInfo) -> None:
        self.station = station
        self.link = Link(node_id, world, node_id[:8].ljust(8), LinkConfig())
        self.exchange(1_000_000)

    def exchange(self, now_us: int) -> None:
        self.link.tick(now_us)
        self.station.tick(now_us)
        for _ in range(4):
            for sent in self.link.drain_datagrams():
                self.station.receive_datagram(sent.datagram, HERE, now_us)
            for reply in self.station.drain_datagrams():
                self.link.receive_datagram(reply.datagram, THERE, now_us)

    def send(self, message: Message, now_us: int = 2_000_000) -> None:
        self.link.send(STATION, message, now_us)
        self.exchange(now_us)


def a_station() -> WorldLinks:
    def make_link(world: WorldInfo) -> Link:
        return Link(STATION, world, b"incarnat", LinkConfig())

    return WorldLinks(make_link, world_number, 0)


def to_station(name: str) -> ToStation:
    return ToStation(world_number(name), CellId(1), WorldProbe(1))


def test_i2_a_station_meets_the_nodes_of_any_world_and_answers_over_the_right_link() -> None:
    station = a_station()
    one, other = Mobile(station, ALICE, a_world("match")), Mobile(station, BOB, a_world("fair"))
    one.send(to_station("match"))
    other.send(to_station("fair"))

    assert [each.name for each in station.worlds] == ["match", "fair"]
    assert station.neighbours_of("fair") == [BOB]
    assert station.drain_events() == [
        MessageReceived(ALICE, to_station("match"), 17),
        MessageReceived(BOB, to_station("fair"), 17),
    ]
    station.send(ALICE, Done(7), 3_000_000)
    one.exchange(3_000_000)
    assert one.link.drain_events() == [MessageReceived(STATION, Done(7), 5)]
    assert other.link.drain_events() == []


def test_i25_a_message_for_another_world_is_dropped_and_others_are_not_passed_on() -> None:
    station = a_station()
    mobile = Mobile(station, ALICE, a_world("match"))
    mobile.send(to_station("fair"))
    mobile.send(Done(1))
    mobile.link.broadcast(Done(2), 2_000_000)
    mobile.exchange(2_000_000)

    assert station.drain_events() == []
    assert station.dropped["wrong world"] == 1
    station.send(BOB, Done(3), 0)
    assert station.drain_events() == [MessageUndelivered(BOB, Done(3))]


def test_b5_only_open_worlds_with_the_right_id_get_a_link() -> None:
    station = a_station()
    for world in (
        a_world("match", substrate="dcs"),
        a_world("match", world_id="another"),
    ):
        Mobile(station, ALICE, world)
    station.receive_datagram(b"Th\x01 nothing", HERE, 0)
    station.receive_datagram(b"", HERE, 0)

    assert station.worlds == []
    assert station.dropped["another world"] == 4  # a greeting and a clock reading of each
    assert sum(station.dropped.values()) == 6


def test_b5_worlds_are_bounded_and_one_without_nodes_makes_room() -> None:
    station = a_station()
    Mobile(station, ALICE, a_world("match"))
    for number in range(WORLDS_MAX):
        assert station.add_world(f"empty {number}")

    assert len(station.worlds) == WORLDS_MAX
    assert "match" in {each.name for each in station.worlds}, "a node is there"


def test_i2_worlds_of_other_venues_are_announced_by_hellos() -> None:
    station = a_station()
    station.add_world("fair")
    station.tick(1_000_000)
    mobile = Link(ALICE, a_world("match"), b"12345678", LinkConfig())
    for sent in station.drain_datagrams():
        mobile.receive_datagram(sent.datagram, THERE, 1_000_000)

    assert mobile.hellos.worlds == {named_world_id(INFRA, "fair"): a_world("fair")}
