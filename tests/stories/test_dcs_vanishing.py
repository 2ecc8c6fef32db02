"""Nodes that vanish at every step of every operation.

An operation is done once, and the inputs are counted that nodes handle on its way. Then it is done
again and again: at each of these steps, each node in turn is gone without a word. Whoever goes, the
operation ends, nobody is told anything wrong or twice, what was deleted stays deleted, and what was
acknowledged can be found and had (D7, D15, D19, M16, M23, M24).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest

from tests.substrates.dcs.network import DcsNetwork, in_cell, tag_in
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.metadata import Metadata
from thyme.model.tags import as_tags
from thyme.model.time_frames import ALWAYS
from thyme.protocol import app_interface as asked
from thyme.protocol.app_interface import (
    Failed,
    Finished,
    NotificationEvent,
    SearchResult,
    SubscriptionStarted,
)
from thyme.protocol.messages.common import CellBroadcast, CellPacket
from thyme.protocol.node import Action, Input, Received
from thyme.protocol.retry import RetryPolicy
from thyme.query.query import Query
from thyme.substrates.dcs.config import PAPER, ROBUST, DcsConfig

PLACES = {
    "ann": in_cell(0),
    "abe": in_cell(0, 1),
    "bea": in_cell(2),
    "ben": in_cell(2, 1),
    "cat": in_cell(4),
    "col": in_cell(4, 1),
}
"""Two nodes in each cell, so that one of each is left, whoever goes."""
TAGS = tag_in(2), tag_in(4)
PHOTO = Key(ObjectId("photo"), NodeId(b"ann"))
RETRIES = RetryPolicy(tries_max=4, wait_us=300_000, backoff=1.5)
PATIENCE_S = 6.0
"""Longer than any operation tries, and than neighbours that are gone are believed to be there."""
PROFILES = {
    name: msgspec.structs.replace(profile, retries=RETRIES)
    for name, profile in {"paper": PAPER, "robust": ROBUST}.items()
}
ASK = 777


Doom = tuple[str, int]
"""Who vanishes, and after which step."""


class Street(DcsNetwork):
    """A net in which somebody vanishes after so many steps."""

    def __init__(self, config: DcsConfig) -> None:
        self.steps = 0
        self.actors: dict[str, None] = {}
        self._counting = False
        self._doomed: Doom | None = None
        super().__init__(PLACES, config=config, settle_s=4.0)

    def go_through(self, by: str, request: asked.RequestWithReply, doomed: Doom | None) -> None:
        """An operation, whose steps are counted; with one of them, somebody is gone."""
        self._counting, self._doomed = True, doomed
        self.links.ask(NodeId(by.encode()), request)
        self.run(PATIENCE_S)
        self._counting = False

    def prompt(self, by: str, make: type[msgspec.Struct], **fields: object) -> object:
        """What an operation ends with, which must succeed, and soon."""
        told = self.ask(by, make(request_id=self._ask(), **fields), 0.5)  # type: ignore[arg-type]
        assert isinstance(told, Finished), told
        return told.value

    def _note(self, now_us: int, node_id: NodeId, entry: Input | Action) -> None:
        super()._note(now_us, node_id, entry)
        if not (self._counting and isinstance(entry, Received)):
            return
        message, node = entry.message, self.nodes[node_id.decode()]
        spread = isinstance(message, CellBroadcast) and message.receiving_cell == node.routing.cell
        if not (spread or isinstance(message, CellPacket)):
            return  # not for this node
        self.steps += 1
        self.actors[node_id.decode()] = None
        if self._doomed is not None and self._doomed[1] == self.steps:
            # Once what it was doing is done.
            self.links.kernel.schedule(now_us, self._vanish, self._doomed[0])

    def _vanish(self, name: str) -> None:
        if name in self.nodes:
            self.go(name)


Prepare = Callable[[Street], asked.RequestWithReply]


@dataclass(frozen=True)
class Operation:
    """What somebody asks for, after what was prepared."""

    by: str
    prepare: Prepare


def insert(street: Street) -> asked.RequestWithReply:
    street.subscribe("cat", TAGS[0])
    return asked.Insert(request_id=ASK, data=b"pixels", tags=as_tags(TAGS), oid=PHOTO.oid)


def delete(street: Street) -> asked.RequestWithReply:
    street.insert("ann", "photo", *TAGS, seconds=0.5)
    return asked.Delete(request_id=ASK, key=PHOTO)


def subscribe(street: Street) -> asked.RequestWithReply:
    street.insert("ann", "photo", *TAGS, seconds=0.5)
    conjunctions = Query(f"{TAGS[0]} | {TAGS[1]}").conjunctions
    return asked.Subscribe(request_id=ASK, conjunctions=conjunctions, frame=ALWAYS, batch=10)


def unsubscribe(street: Street) -> asked.RequestWithReply:
    begun = street.subscribe("cat", f"{TAGS[0]} | {TAGS[1]}")
    return asked.Unsubscribe(request_id=ASK, sid=begun.sid)


def retrieve(street: Street) -> asked.RequestWithReply:
    street.subscribe("cat", TAGS[0])
    street.insert("ann", "photo", *TAGS, seconds=0.5)
    return asked.Retrieve(request_id=ASK, metadata=street.metadata("cat", "photo"))


def search(street: Street) -> asked.RequestWithReply:
    street.insert("ann", "photo", *TAGS, seconds=0.5)
    conjunctions = Query(f"{TAGS[0]} | {TAGS[1]}").conjunctions
    return asked.Search(request_id=ASK, conjunctions=conjunctions, frame=ALWAYS, count=10)


OPERATIONS = {
    "insert": Operation("ann", insert),
    "delete": Operation("ann", delete),
    "subscribe": Operation("cat", subscribe),
    "unsubscribe": Operation("cat", unsubscribe),
    "retrieve": Operation("cat", retrieve),
    "search": Operation("cat", search),
}


def done(
    operation: Operation, config: DcsConfig, doomed: Doom | None = None
) -> tuple[Street, Finished | Failed | None]:
    """Does an operation, while somebody vanishes; returns how it ended."""
    street = Street(config)
    request = operation.prepare(street)
    street.go_through(operation.by, request, doomed)
    answers = [
        told
        for told in street.told[operation.by]
        if isinstance(told, Finished | Failed) and told.request_id == ASK
    ]
    assert len(answers) <= 1
    assert answers or operation.by not in street.nodes, "it never ended"
    return street, answers[0] if answers else None


def found(street: Street, by: str, tag: str) -> list[Metadata]:
    """What somebody who is left finds."""
    value = street.prompt(
        by, asked.Search, conjunctions=Query(tag).conjunctions, frame=ALWAYS, count=10
    )
    assert isinstance(value, SearchResult)
    return [note.metadata for note in value]


def check(name: str, street: Street, answer: Finished | Failed | None) -> None:
    """What must hold, however far the operation came."""
    if isinstance(answer, Failed):
        assert answer.code == "timeout"
    _nothing_spurious(street)
    ok = isinstance(answer, Finished)
    readers = [left for left in ("abe", "col", "ben") if left in street.nodes]
    if name == "delete":
        if ok:
            assert not any(found(street, reader, tag) for reader in readers for tag in TAGS)
        return
    if name == "insert" and not ok:
        return  # it may be there or not
    if name == "unsubscribe":
        assert not ok or not any(street.standing().values())
        return
    if isinstance(answer, Finished):
        _check_value(name, answer)
    [metadata], again = (found(street, readers[0], tag) for tag in TAGS)
    assert metadata.key == PHOTO
    assert again == [metadata]
    assert street.prompt(readers[0], asked.Retrieve, metadata=metadata) == b"pixels"


def _check_value(name: str, answer: Finished) -> None:
    match name:
        case "retrieve":
            assert answer.value == b"pixels"
        case "search":
            assert isinstance(answer.value, SearchResult)
            assert [note.key for note in answer.value] == [PHOTO]
        case "subscribe":
            assert isinstance(answer.value, SubscriptionStarted)
            assert answer.value.total == 1


def _nothing_spurious(street: Street) -> None:
    for told in street.told.values():
        notes = [item.notification for item in told if isinstance(item, NotificationEvent)]
        assert len({(note.sid, note.key) for note in notes}) == len(notes)
        assert all(note.key == PHOTO and note.tags == as_tags(TAGS) for note in notes)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_m24_whoever_vanishes_whenever_an_operation_comes_to_a_good_end(
    name: str, profile: str
) -> None:
    operation, config = OPERATIONS[name], PROFILES[profile]
    whole, answer = done(operation, config)
    assert isinstance(answer, Finished)
    check(name, whole, answer)
    steps = whole.steps
    assert steps >= 2

    for step in range(1, steps + 1):
        for who in whole.actors:
            try:
                check(name, *done(operation, config, (who, step)))
            except AssertionError as error:
                raise AssertionError(f"{who} vanished at step {step} of {name}") from error
