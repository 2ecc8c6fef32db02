"""A grey hole: a node that takes part, acknowledges what it is asked to keep, and keeps nothing."""

from __future__ import annotations

from collections.abc import Container

from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.traits import BaseMessage
from thyme.routing.cells import Delivery, Destination
from thyme.substrates.dcs.node import DcsNode

_Request = (
    cell_wire.IndexObject
    | wire.StartSubscription
    | wire.FetchPage
    | cell_wire.LocationUpdate
    | cell_wire.ReindexObjects
)


def make_grey_hole(node: DcsNode) -> None:
    """Turns a node into a grey hole. It stays in its cell, forwards packets of others, and answers
    for its cell; what it receives as one of several nodes of a cell it drops."""
    table = node.handlers.table

    def lie(delivery: Delivery, request: _Request, now_us: int) -> None:
        reply: wire.CellReply
        match request:
            case wire.StartSubscription() | wire.FetchPage():
                reply = cell_wire.CellPage(request.request_id, 0, (), False)
            case cell_wire.LocationUpdate():
                reply = cell_wire.LocationUpdateReply(request.request_id)
            case _:
                reply = wire.Done(request.request_id)
        if delivery.is_first:
            target = Destination(delivery.origin_cell, delivery.origin)
            node.routing.send([target], wire.ReplyFromCell(delivery.cell, reply), now_us)

    for kind in (
        cell_wire.IndexObject,
        wire.StartSubscription,
        wire.FetchPage,
        cell_wire.LocationUpdate,
        cell_wire.ReindexObjects,
    ):
        table.add(kind, to_cell=lie)
    for dropped in (cell_wire.CellState, cell_wire.BackupState, cell_wire.TransferState):
        table.add(dropped, to_cell=_drop, to_node=_drop)


def make_liar(node: DcsNode) -> None:
    """Turns a node into one that serves wrong bytes of every object."""

    def lie(delivery: Delivery, request: wire.FetchObject, now_us: int) -> wire.ObjectData:
        return wire.ObjectData(request.request_id, request.key, b"forged")

    handler = node.service.answering(lie)
    node.handlers.table.add(wire.FetchObject, to_cell=handler, to_node=handler)


def make_hider(node: DcsNode, hidden: Container[str]) -> None:
    """Turns a node into one that serves its cell, but hides some objects from readers."""

    def hide(delivery: Delivery, request: wire.FetchPage, now_us: int) -> cell_wire.CellPage:
        page = node.service.read_page(delivery, request, now_us)
        history = node.index.broker.catalogue.history
        matches = history.latest_matches(request.conjunctions, request.frame, 1_000, None)
        total = sum(each.key.oid not in hidden for each in matches)
        items = tuple(each for each in page.items if each.metadata.key.oid not in hidden)
        return cell_wire.CellPage(request.request_id, total, items, page.has_more)

    node.handlers.table.add(wire.FetchPage, to_cell=node.service.answering(hide))


def _drop(_delivery: Delivery, _message: BaseMessage, _now_us: int) -> None:
    """Forgets a message."""
