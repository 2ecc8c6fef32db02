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
from thyme.protocol.messages.cell_records import TombstoneRecord
from thyme.protocol.messages.cells import CellState
from thyme.substrates.common.catalogue import DELETED
from thyme.substrates.dcs.state.cell_index import CellIndex
from thyme.substrates.dcs.state.replica_store import ReplicaStore

StateRecords = Iterable[tuple[str, object]]
"""The content of a `CellState`: pairs of field name and record."""


def split_state(records: StateRecords, bytes_max: int) -> Iterator[CellState]:
    """Splits records into parts of bounded size, at least one part; a larger record is sent
    alone."""
    part: dict[str, tuple[object, ...]] = {}
    bytes_left = bytes_max
    for field_name, record in records:
        size = len(msgspec.msgpack.encode(record))
        if part and size > bytes_left:
            yield _make_part(part)
            part, bytes_left = {}, bytes_max
        part[field_name] = (*part.get(field_name, ()), record)
        bytes_left -= size
    yield _make_part(part)


def _make_part(fields: dict[str, tuple[object, ...]]) -> CellState:
    return CellState(0, 0, 1, **fields)  # type: ignore[arg-type]


@dataclass(slots=True)
class MergeResult:
    """The keys of records that were new, and the number of rejected records."""

    objects: list[Key] = field(default_factory=list)
    subscriptions: list[SubscriptionKey] = field(default_factory=list)
    rejected: int = 0


def merge_state(
    state: CellState, index: CellIndex, replicas: ReplicaStore, now_us: int
) -> MergeResult:
    """Merges another node's state; tombstones here take precedence over its records (D15)."""
    result = MergeResult()
    for tombstone in state.object_tombstones:
        if (key := parse_object_key(tombstone)) is not None:
            index.merge_object_tombstone(key, tombstone)
            if tombstone.reason == DELETED:
                replicas.remove_with_tombstone(key, DELETED, tombstone.removed_us)
    for tombstone in state.subscription_tombstones:
        if (sub_key := parse_subscription_key(tombstone)) is not None:
            index.merge_subscription_tombstone(sub_key, tombstone)
    for indexed in state.objects:
        was_known = index.has_object(indexed.metadata.key)
        if not index.merge_object(indexed, now_us):
            result.rejected += 1
        elif not was_known:
            result.objects.append(indexed.metadata.key)
    for cell_subscription in state.subscriptions:
        sub_key = cell_subscription.subscription.key
        previous = index.get_subscription(sub_key)
        if not index.merge_subscription(cell_subscription, now_us):
            result.rejected += 1
        elif index.get_subscription(sub_key) != previous:
            result.subscriptions.append(sub_key)
    return result


def parse_object_key(tombstone: TombstoneRecord) -> Key | None:
    """The key of the object in a tombstone; None if it is malformed."""
    try:
        return Key.parse(tombstone.key)
    except ThymeError:
        return None


def parse_subscription_key(tombstone: TombstoneRecord) -> SubscriptionKey | None:
    """The key of the subscription in a tombstone, which is written like that of an object; None if
    it is malformed."""
    key = parse_object_key(tombstone)
    return None if key is None else SubscriptionKey(SubscriptionId(key.oid), key.owner)
