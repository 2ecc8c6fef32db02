"""Cell state: splits a cell's records into messages of bounded size, and merges received records.

Used when a node joins a cell, for state transfer, backups and anti-entropy. Tombstones come first,
so that no record is merged only to be removed. Entry points: `split_state` and `merge_state`.
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
"""The content of a `CellState`: pairs of field name and record."""


def in_parts(records: Records, bytes_max: int) -> Iterator[CellState]:
    """Splits records into parts of bounded size, at least one part; a larger record is sent
    alone."""
    part: dict[str, tuple[object, ...]] = {}
    bytes_left = bytes_max
    for field_name, record in records:
        size = len(msgspec.msgpack.encode(record))
        if part and size > bytes_left:
            yield _part(part)
            part, bytes_left = {}, bytes_max
        part[field_name] = (*part.get(field_name, ()), record)
        bytes_left -= size
    yield _part(part)


def _part(fields: dict[str, tuple[object, ...]]) -> CellState:
    return CellState(0, 0, 1, **fields)  # type: ignore[arg-type]


@dataclass(slots=True)
class Learnt:
    """The keys of records that were new, and the number of rejected records."""

    objects: list[Key] = field(default_factory=list)
    subscriptions: list[SubscriptionKey] = field(default_factory=list)
    refused: int = 0


def learn(state: CellState, index: CellIndex, replicas: Replicas, now_us: int) -> Learnt:
    """Merges another node's state; tombstones here take precedence over its records (D15)."""
    result = Learnt()
    for tombstone in state.buried_objects:
        if (key := object_key(tombstone)) is not None:
            index.learn_burial(key, tombstone)
            if tombstone.why == DELETED:
                replicas.bury(key, DELETED, tombstone.at_us)
    for tombstone in state.buried_subscriptions:
        if (sub_key := subscription_key(tombstone)) is not None:
            index.learn_cancellation(sub_key, tombstone)
    history = index.broker.catalogue.history
    for indexed in state.objects:
        was_known = indexed.metadata.key in history
        if not index.learn_object(indexed, now_us):
            result.refused += 1
        elif not was_known:
            result.objects.append(indexed.metadata.key)
    for cell_subscription in state.interests:
        sub_key = cell_subscription.subscription.key
        previous = index.broker.standing(sub_key)
        if not index.learn_interest(cell_subscription, now_us):
            result.refused += 1
        elif index.broker.standing(sub_key) != previous:
            result.subscriptions.append(sub_key)
    return result


def object_key(grave: Grave) -> Key | None:
    """The key of the object in a tombstone; None if it is malformed."""
    try:
        return Key.parse(grave.key)
    except ThymeError:
        return None


def subscription_key(grave: Grave) -> SubscriptionKey | None:
    """The key of the subscription in a tombstone, which is written like that of an object; None if
    it is malformed."""
    key = object_key(grave)
    return None if key is None else SubscriptionKey(SubscriptionId(key.oid), key.owner)
