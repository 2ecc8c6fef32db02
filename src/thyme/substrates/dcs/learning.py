"""Learning: what a cell knows, in parts that fit a message, and taken in from such parts.

Used by nodes that join a cell, by cells that hand keys over, and for what is kept aside in case a
cell dies. What is gone comes first, so that nothing is learnt only to be forgotten.
Clauses: D15, D23, D24, B1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from thyme.model.errors import ThymeError
from thyme.model.ids import Key, SubscriptionId
from thyme.model.subscriptions import SubscriptionKey
from thyme.protocol.cell_messages import CellState
from thyme.protocol.cells import Grave
from thyme.substrates.catalogue import DELETED
from thyme.substrates.dcs.index import CellIndex
from thyme.substrates.dcs.replicas import Replicas

Records = Iterable[tuple[str, object]]
"""What goes into a `CellState`: the field, and what it should hold."""


def in_parts(records: Records, bytes_max: int) -> Iterator[CellState]:
    """Records in parts of bounded size, at least one; a larger record comes alone."""
    part: dict[str, tuple[object, ...]] = {}
    room = bytes_max
    for kind, record in records:
        size = len(msgspec.msgpack.encode(record))
        if part and size > room:
            yield _part(part)
            part, room = {}, bytes_max
        part[kind] = (*part.get(kind, ()), record)
        room -= size
    yield _part(part)


def _part(fields: dict[str, tuple[object, ...]]) -> CellState:
    return CellState(0, 0, 1, **fields)  # type: ignore[arg-type]


@dataclass(slots=True)
class Learnt:
    """What of a state was new."""

    objects: list[Key] = field(default_factory=list)
    subscriptions: list[SubscriptionKey] = field(default_factory=list)
    refused: int = 0


def learn(state: CellState, index: CellIndex, replicas: Replicas, now_us: int) -> Learnt:
    """Takes in what others know; what was buried here stays buried (D15)."""
    learnt = Learnt()
    for grave in state.buried_objects:
        if (key := object_key(grave)) is not None:
            index.learn_burial(key, grave)
            if grave.why == DELETED:
                replicas.bury(key, DELETED, grave.at_us)
    for grave in state.buried_subscriptions:
        if (sub_key := subscription_key(grave)) is not None:
            index.learn_cancellation(sub_key, grave)
    history = index.broker.catalogue.history
    for indexed in state.objects:
        known = indexed.metadata.key in history
        if not index.learn_object(indexed, now_us):
            learnt.refused += 1
        elif not known:
            learnt.objects.append(indexed.metadata.key)
    for interest in state.interests:
        sub_key = interest.subscription.key
        before = index.broker.standing(sub_key)
        if not index.learn_interest(interest, now_us):
            learnt.refused += 1
        elif index.broker.standing(sub_key) != before:
            learnt.subscriptions.append(sub_key)
    return learnt


def object_key(grave: Grave) -> Key | None:
    """The object in a grave; nothing if that is not how keys are written."""
    try:
        return Key.parse(grave.key)
    except ThymeError:
        return None


def subscription_key(grave: Grave) -> SubscriptionKey | None:
    """A subscription's written key looks like an object's."""
    key = object_key(grave)
    return None if key is None else SubscriptionKey(SubscriptionId(key.oid), key.owner)
