"""Known: what a node of a cell knows already is not told to the others again (D7, B2)."""

from __future__ import annotations

import msgspec
import pytest

from tests.substrates.dcs.town import STREET, Town, tag_in
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.protocol import app_interface as asked
from thyme.protocol.messages.cell_records import CellTarget
from thyme.protocol.messages.cells import IndexObject, LocationUpdate
from thyme.protocol.messages.common import CellBroadcast, CellPacket, DeleteObject, Message
from thyme.routing.cells.config import CellRoutingConfig
from thyme.substrates.dcs.config import PAPER

SPARING = msgspec.structs.replace(PAPER, routing=CellRoutingConfig(broadcast_redundant=False))
"""The documents' profile, and this part."""
ANN = NodeId(b"ann")


def told_on(town: Town, message: Message, *, origin: str = "ann", cell: int = 0) -> bool:
    """Whether a node of cell 2 tells the others of a message that comes to it."""
    town.sent.clear()
    number = town.links.kernel.now_us
    packet = CellPacket(NodeId(origin.encode()), cell, number, 1, (CellTarget(2),), message)
    town.receive("bea", "ann", packet)
    town.run(0.01)
    return any(name == "bea" and isinstance(sent, CellBroadcast) for name, _, sent in town.sent)


def an_object(town: Town) -> Key:
    """That cell 2 knows of, and that ann has."""
    town.subscribe("dan", tag_in(2))
    return town.insert("ann", "photo", tag_in(2))


def index_again(town: Town) -> IndexObject:
    [indexed] = town.nodes["bea"].index.objects()
    return IndexObject(1, indexed)


def test_d7_what_is_asked_again_is_told_again_in_the_documents_profile() -> None:
    town = Town(STREET)
    an_object(town)

    assert told_on(town, index_again(town))


def test_b2_an_object_that_is_known_is_not_told_on_and_is_answered_all_the_same() -> None:
    town = Town(STREET, config=SPARING)
    an_object(town)

    assert not told_on(town, index_again(town))
    answers = [sent for name, _, sent in town.sent if name == "bea"]
    assert len(answers) == 1

    town.nodes["bea"].index.forget_object(Key(ObjectId("photo"), ANN))
    [indexed] = town.nodes["ben"].index.objects()
    assert told_on(town, IndexObject(2, indexed))


def test_b2_a_delete_is_told_on_once() -> None:
    town = Town(STREET, config=SPARING)
    key = an_object(town)

    assert told_on(town, DeleteObject(1, key))
    assert not told_on(town, DeleteObject(1, key))
    assert town.indexing("photo") == set()


@pytest.mark.parametrize("signed", [False, True])
def test_d21_where_a_subscriber_is_and_who_retrieved_what_is_told_on(signed: bool) -> None:
    town = Town(STREET, config=SPARING, keys=signed)
    key = an_object(town)
    town.finish("dan", asked.Retrieve, metadata=town.metadata("dan", "photo"))
    [sid] = [
        SubscriptionId(held.sid) for held in town.nodes["dan"].subscriber.active_subscriptions()
    ]

    def moved(sids: tuple[SubscriptionId, ...], keys: tuple[Key, ...], cell: int) -> bool:
        warden = town.nodes["dan"].requests._authenticator
        message = LocationUpdate(1, sids, keys)
        if warden is not None:
            message = warden.sign_message(message, town.links.kernel.now_us, cell)
        return told_on(town, message, origin="dan", cell=cell)

    assert moved((sid,), (), 6)  # others of the cell may believe it elsewhere
    assert moved((), (key,), 6)  # or not know that it has the object
    assert not moved((), (Key(ObjectId("unheard-of"), ANN),), 6)


def test_b2_that_the_owner_has_its_object_is_not_told_on() -> None:
    town = Town(STREET, config=SPARING)
    key = an_object(town)

    assert not told_on(town, LocationUpdate(1, (), (key,)))
    assert told_on(town, LocationUpdate(1, (), (key,)), cell=1)
