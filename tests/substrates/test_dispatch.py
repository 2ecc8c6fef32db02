"""Dispatch: every message type is accepted by some node, and by the nodes it is meant for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import get_args

import pytest

from tests.builders import ALICE, BOB
from tests.substrates.dcs.network import DcsNetwork, in_cell
from tests.substrates.infra.venues import Venues
from tests.wire.test_schema import GOLDEN, PHOTO
from thyme.model.ids import NodeId
from thyme.model.metadata import Limits
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages import stations as station_wire
from thyme.protocol.messages.cell_records import CellId, CellTarget
from thyme.protocol.messages.common import MESSAGE_TYPES, Message
from thyme.protocol.messages.traits import BaseMessage
from thyme.protocol.node import Received, Started
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import Grid
from thyme.routing.dsdv.protocol import Dsdv
from thyme.routing.routed_node import RoutedNode
from thyme.storage.store import MemoryStore
from thyme.substrates.common.subscriber import SubscriberConfig
from thyme.substrates.dcs.config import ROBUST as DCS_ROBUST
from thyme.substrates.encounters.config import (
    EncounterConfig,
    MfpsConfig,
    MobUserConfig,
    RapidConfig,
)
from thyme.substrates.encounters.node import EncounterNode
from thyme.substrates.es import PAPER as ES_PAPER
from thyme.substrates.es import EsNode
from thyme.substrates.ls.config import ROBUST as LS_ROBUST
from thyme.substrates.ls.node import LsNode

SERVER = NodeId(b"server")
HOME = CellId(2)
GRID = Grid(columns=400, rows=1)
CARRIERS = (wire.CellPacket, wire.CellBroadcast, wire.Packet)
NOT_ACCEPTED = ("not spoken here", "not for a node", "not for a cell")
Types = set[type[BaseMessage]]

EXAMPLES: dict[type[BaseMessage], Message] = {type(message): message for message, _ in GOLDEN}
EXAMPLES[wire.ReliableMessage] = wire.ReliableMessage(14, wire.Notify(PHOTO, ()))
EXAMPLES[wire.CellPacket] = wire.CellPacket(
    BOB, HOME, 1, 1, (CellTarget(HOME),), wire.FetchObject(1, PHOTO.key)
)


def accepted(offer: Callable[[Message], None], dropped: Callable[[], int]) -> Types:
    """The message types that a node does not count as unexpected."""
    found: Types = set()
    for kind, message in EXAMPLES.items():
        before = dropped()
        offer(message)
        if dropped() == before:
            found.add(kind)
    return found


def accepted_by(node: EsNode | LsNode, sender: NodeId) -> Types:
    node.handle(Started(), 0)
    return accepted(
        lambda message: node.handle(Received(sender, message), 10),  # type: ignore[arg-type,return-value]
        lambda: node.dropped["not spoken here"],
    )


@cache
def of_es() -> frozenset[type[BaseMessage]]:
    server = EsNode(SERVER, SERVER, MemoryStore(), Random(1), ES_PAPER)
    client = EsNode(ALICE, SERVER, MemoryStore(), Random(1), ES_PAPER)
    return frozenset(accepted_by(server, SERVER) | accepted_by(client, SERVER))


@cache
def of_ls() -> frozenset[type[BaseMessage]]:
    node = LsNode(BOB, MemoryStore(), Random(1), LS_ROBUST)
    return frozenset(accepted_by(node, BOB))


@cache
def of_dsdv() -> frozenset[type[BaseMessage]]:
    outbox = Outbox()
    inner = EsNode(SERVER, SERVER, MemoryStore(), Random(1), ES_PAPER)
    routing = Dsdv(SERVER, outbox, Random(1))
    node = RoutedNode(inner, routing, outbox)
    node.handle(Started(), 0)
    before = inner.dropped["not spoken here"]
    for kind in (wire.Packet, wire.RouteUpdate):
        node.handle(Received(BOB, EXAMPLES[kind]), 10)
    assert inner.dropped["not spoken here"] == before
    return frozenset({wire.Packet, routing.control_type})


@cache
def of_dcs() -> frozenset[type[BaseMessage]]:
    """Directly, to the node, to its cell from a node of the same cell, or as a reply of a cell."""
    net = DcsNetwork({"bea": in_cell(HOME, grid=GRID)}, grid=GRID, config=DCS_ROBUST)
    bea = net.nodes["bea"]
    assert bea.routing.serving
    numbers = iter(range(10_000))

    def dropped() -> int:
        return sum(bea.dropped[cause] for cause in NOT_ACCEPTED)

    def in_packet(target: CellTarget) -> Callable[[Message], None]:
        def offer(message: Message) -> None:
            if isinstance(message, CARRIERS):
                bea.dropped[NOT_ACCEPTED[0]] += 1
                return
            packet = wire.CellPacket(BOB, HOME, next(numbers), 1, (target,), message)
            bea.handle(Received(BOB, packet), net.links.kernel.now_us)

        return offer

    def as_reply(message: Message) -> None:
        wrapped = not isinstance(message, wire.ReplyFromCell)
        reply = wire.ReplyFromCell(HOME, message) if wrapped else message
        in_packet(CellTarget(HOME, bea.node_id))(
            message if isinstance(message, CARRIERS) else reply
        )

    def directly(message: Message) -> None:
        bea.handle(Received(BOB, message), net.links.kernel.now_us)

    offers = (directly, in_packet(CellTarget(HOME, bea.node_id)), in_packet(CellTarget(HOME)))
    return frozenset().union(*(accepted(offer, dropped) for offer in (*offers, as_reply)))


@cache
def of_infra() -> frozenset[type[BaseMessage]]:
    """By a station, from a mobile node or another station, and by a mobile node."""
    net = Venues({"ann": "north"}, stations=("north", "south"))
    ann, north, now_us = net.nodes["ann"], net.stations["north"], net.net.now_us
    cell = ann.routing.cell

    def from_mobile(message: Message) -> None:
        north.handle(Received(ann.node_id, wire.ToStation(1, cell, message)), now_us)

    def to_cell(message: Message) -> None:
        if isinstance(message, CARRIERS):
            ann.dropped[NOT_ACCEPTED[0]] += 1
        else:
            world = net.mobile.world
            target = (CellTarget(cell),)
            packet = wire.CellPacket(BOB, cell, id(message), 1, target, message, world)
            ann.handle(Received(BOB, packet), now_us)

    def at_station() -> int:
        return north.dropped["not spoken here"]

    def at_mobile() -> int:
        return sum(ann.dropped[cause] for cause in NOT_ACCEPTED)

    found = accepted(from_mobile, at_station)
    found |= accepted(
        lambda message: void(north.handle(Received(NodeId(b"south"), message), now_us)), at_station
    )
    found |= accepted(
        lambda message: void(ann.handle(Received(NodeId(b"north"), message), now_us)), at_mobile
    )
    return frozenset(found | accepted(to_cell, at_mobile))


@cache
def of_encounters() -> frozenset[type[BaseMessage]]:
    """By devices of the three protocols of encounters."""
    found: Types = set()
    for protocol in (MobUserConfig(), MfpsConfig(), RapidConfig()):
        config = EncounterConfig(
            protocol=protocol,
            limits=Limits(),
            subscriber=SubscriberConfig(),
            first_discovery_us=0,
        )
        node = EncounterNode(SERVER, MemoryStore(), Random(1), config)
        node.handle(Started(), 0)

        def offer(message: Message, node: EncounterNode = node) -> None:
            node.handle(Received(BOB, message), 10)

        def dropped(node: EncounterNode = node) -> int:
            return node.dropped["not spoken here"]

        found |= accepted(offer, dropped)
    return frozenset(found)


def void(_result: object) -> None:
    """Drops a result."""


def test_every_message_is_accepted_somewhere() -> None:
    by_other_substrates = of_infra() | of_encounters() | {wire.Authenticated}  # test_answers
    assert of_es() | of_ls() | of_dsdv() | of_dcs() | by_other_substrates == set(MESSAGE_TYPES)


@pytest.mark.parametrize(
    ("types", "meant"),
    [
        (of_es, wire.BrokerRequest | wire.Reply | wire.Notify | wire.ReliableDelivery),
        (of_ls, wire.RoutingMessage | wire.JoinMessage | wire.NotificationMessage | wire.Reply),
        (of_dcs, wire.CellRoutingMessage | wire.CellMessage | wire.CellRequest | wire.CellReply),
        (of_infra, station_wire.StationMessage | wire.StationCarrier),
        (of_dcs, cell_wire.CellMaintenanceRequest | cell_wire.SignedLocationUpdate),
    ],
)
def test_a_node_accepts_the_messages_that_are_meant_for_it(
    types: Callable[[], frozenset[type[BaseMessage]]], meant: object
) -> None:
    elsewhere = {wire.Packet, wire.RouteUpdate}  # around the node: thyme.routing.routed_node
    assert set(get_args(meant)) - elsewhere <= types()


def test_a_signed_variant_is_accepted_by_the_handler_of_its_message() -> None:
    assert set(get_args(wire.SignedMessage)) <= of_dcs()
