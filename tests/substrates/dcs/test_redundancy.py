"""Known: what a node of a cell knows already is not told to the others again (D7, B2)."""

from __future__ import annotations

import msgspec
import pytest

from tests.substrates.dcs.network import STREET, DcsNetwork, tag_in
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.protocol import app_interface as asked
from thyme.protocol.messages.cell_records import CellTarget
from thyme.protocol.messages.cells import IndexObject, LocationUpdate
from thyme.protocol.messages.common import CellBroadcast, CellPacket, Message
from thyme.protocol.messages.requests import DeleteObject
from thyme.routing.cells.config import CellRoutingConfig
from thyme.substrates.dcs.config import PAPER

SPARING = msgspec.structs.replace(PAPER, routing=CellRoutingConfig(broadcast_redundant=False))
"""The documents' profile, and this part."""
ANN = NodeId(b"ann")


def told_on(net: DcsNetwork, message: Message, *, origin: str = "ann", cell: int = 0) -> bool:
    """Whether a node of cell 2 tells the others of a message that comes to it."""
    net.sent.clear()
    number = net.links.kernel.now_us
    packet = CellPacket(NodeId(origin.encode()), cell, number, 1, (CellTarget(2),), message)
    net.receive("bea", "ann", packet)
    net.run(0.01)
    return any(name == "bea" and isinstance(sent, CellBroadcast) for name, _, sent in net.sent)


def an_object(net: DcsNetwork) -> Key:
    """That cell 2 knows of, and that ann has."""
    net.subscribe("dan", tag_in(2))
    return net.insert("ann", "photo", tag_in(2))


def index_again(net: DcsNetwork) -> IndexObject:
    [indexed] = net.nodes["bea"].index.objects()
    return IndexObject(1, indexed)


def test_d7_what_is_asked_again_is_told_again_in_the_documents_profile() -> None:
    net = DcsNetwork(STREET)
    an_object(net)

    assert told_on(net, index_again(net))


def test_b2_an_object_that_is_known_is_not_told_on_and_is_answered_all_the_same() -> None:
    net = DcsNetwork(STREET, config=SPARING)
    an_object(net)

    assert not told_on(net, index_again(net))
    answers = [sent for name, _, sent in net.sent if name == "bea"]
    assert len(answers) == 1

    net.nodes["bea"].index.forget_object(Key(ObjectId("photo"), ANN))
    [indexed] = net.nodes["ben"].index.objects()
    assert told_on(net, IndexObject(2, indexed))


def test_b2_a_delete_is_told_on_once() -> None:
    net = DcsNetwork(STREET, config=SPARING)
    key = an_object(net)

    assert told_on(net, DeleteObject(1, key))
    assert not told_on(net, DeleteObject(1, key))
    assert net.indexing("photo") == set()


@pytest.mark.parametrize("signed", [False, True])
def test_d21_where_a_subscriber_is_and_who_retrieved_what_is_told_on(signed: bool) -> None:
    net = DcsNetwork(STREET, config=SPARING, keys=signed)
    key = an_object(net)
    net.finish("dan", asked.Retrieve, metadata=net.metadata("dan", "photo"))
    [sid] = [
        SubscriptionId(held.sid) for held in net.nodes["dan"].subscriber.active_subscriptions()
    ]

    def moved(sids: tuple[SubscriptionId, ...], keys: tuple[Key, ...], cell: int) -> bool:
        authenticator = net.nodes["dan"]._authenticator
        message = LocationUpdate(1, sids, keys)
        if authenticator is not None:
            message = authenticator.sign_message(message, net.links.kernel.now_us, cell)
        return told_on(net, message, origin="dan", cell=cell)

    assert moved((sid,), (), 6)  # others of the cell may believe it elsewhere
    assert moved((), (key,), 6)  # or not know that it has the object
    assert not moved((), (Key(ObjectId("unheard-of"), ANN),), 6)


def test_b2_that_the_owner_has_its_object_is_not_told_on() -> None:
    net = DcsNetwork(STREET, config=SPARING)
    key = an_object(net)

    assert not told_on(net, LocationUpdate(1, (), (key,)))
    assert told_on(net, LocationUpdate(1, (), (key,)), cell=1)
