"""Anti-entropy: the nodes of one cell find and remove differences between their states.

Beacons carry the digest of their sender's cell state (`cell_digest`). If the digest of a cell peer
keeps differing, the two nodes compare bucket digests, then record hashes, and send each other the
missing records. Tombstones are sent first and take precedence. A comparison starts after a random
wait, which grows as long as differences remain, so that not all nodes compare at once or for ever.
Entry points: `AntiEntropy.on_beacon` and `on_timer`.
Clauses: B2, D15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cells import CellDigest, CellRecordHashes, CellState
from thyme.routing.cells import BeaconReceived, Delivery, Destination
from thyme.substrates.common.catalogue import DELETED
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.state.cell_digest import (
    BUCKETS,
    DIGEST_BYTES,
    RecordHash,
    bucket_digests,
    bucket_of,
    cancelled_name,
    combine_digests,
    conjunction_names,
    deleted_name,
    differing_buckets,
    hash_record,
    object_name,
    pack_hashes,
    replica_name,
    unpack_hashes,
)
from thyme.substrates.dcs.state.cell_state import MergeResult, merge_state, split_state

_BEACONS_MIN = 2
"""How many consecutive beacons of a cell peer must differ, since an update may be on its way."""
_JITTER_US = SECOND_US
"""The maximum random wait before a comparison, so that cell peers do not start at the same time."""
_PAUSE_US = 2 * SECOND_US
"""The pause before the next comparison with the same cell peer, doubled after each comparison that
left a difference."""
_PAUSE_DOUBLINGS_MAX = 6
_RECORD_HASHES_MAX = 500
"""The maximum number of record hashes in one message."""
_PART_BYTES_MAX = 1_200
_SUSPECTS_MAX = 1_000


class AntiEntropyTimer(msgspec.Struct, frozen=True):
    """The timer of the next comparison with a cell peer."""

    node: NodeId


@dataclass(slots=True)
class _Suspect:
    """A cell peer whose digest differs."""

    beacons_differing: int = 0
    """The number of consecutive beacons that differed."""
    tries: int = 0
    not_before_us: int = 0


class AntiEntropy:
    """The comparisons of one node with its cell peers."""

    def __init__(
        self,
        context: NodeContext,
        on_merged: Callable[[NodeId, CellState, MergeResult, int], None],
    ) -> None:
        self._routing = context.routing
        self._outbox = context.outbox
        self._index = context.index
        self._replicas = context.replicas
        self._rng = context.rng
        self._on_merged = on_merged
        self._suspects: BoundedDict[NodeId, _Suspect] = BoundedDict(_SUSPECTS_MAX)
        self.comparisons = 0
        self.records_merged = 0

    # Detecting differences

    def beacon_digest(self) -> bytes:
        """The digest of this node's cell state for its beacons."""
        if not self._routing.serving:
            return b""
        return combine_digests((*self._index.digests(), self._replicas.cell_wide_digest))

    def matches_digest(self, beacon: BeaconReceived) -> bool:
        """Whether a cell peer's beacon carries the same digest as this node's."""
        own_digest = combine_digests((*self._index.digests(), self._replicas.cell_wide_digest))
        return beacon.payload[:DIGEST_BYTES] == own_digest

    def on_beacon(self, beacon: BeaconReceived, now_us: int) -> None:
        """Compares the digest in a cell peer's beacon with the own one."""
        if not self._is_cell_peer(beacon):
            self._suspects.pop(beacon.node, None)
            return
        suspect = self._suspects.get(beacon.node)
        if self.matches_digest(beacon):
            if suspect is not None:
                del self._suspects[beacon.node]
                self._outbox.cancel_timer(AntiEntropyTimer(beacon.node))
            return
        if suspect is None:
            suspect = self._suspects[beacon.node] = _Suspect()
        suspect.beacons_differing += 1
        if suspect.beacons_differing == _BEACONS_MIN:
            wait_us = self._rng.randint(0, _JITTER_US)
            at_us = max(now_us, suspect.not_before_us) + wait_us
            self._outbox.set_timer(AntiEntropyTimer(beacon.node), at_us)

    def is_suspect(self, node_id: NodeId) -> bool:
        """Whether a node's digest was found to differ."""
        return node_id in self._suspects

    def _is_cell_peer(self, beacon: BeaconReceived) -> bool:
        routing = self._routing
        both_serve = routing.serving and beacon.serving and beacon.cell == routing.cell
        return both_serve and len(beacon.payload) >= DIGEST_BYTES

    def on_timer(self, timer: AntiEntropyTimer, now_us: int) -> None:
        """Starts a comparison by sending the bucket digests."""
        suspect = self._suspects.get(timer.node)
        if suspect is not None and self._routing.serving:
            self._back_off(suspect, now_us)
            self.comparisons += 1
            digest = CellDigest(bucket_digests(self._record_hashes()))
            self._routing.send([Destination(self._routing.cell, timer.node)], digest, now_us)

    def _back_off(self, suspect: _Suspect, now_us: int) -> None:
        """Postpones the next comparison, for longer after each comparison that left a
        difference."""
        pause_us = _PAUSE_US << min(suspect.tries, _PAUSE_DOUBLINGS_MAX)
        suspect.not_before_us = now_us + pause_us
        suspect.tries += 1
        suspect.beacons_differing = 0

    # Exchanging differences

    def on_digest(self, delivery: Delivery, message: CellDigest, now_us: int) -> None:
        """Replies with the record hashes of the differing buckets, as many as fit in one
        message."""
        if (
            not self._is_from_cell_peer(delivery)
            or len(message.bucket_digests) != BUCKETS * DIGEST_BYTES
        ):
            return
        if (suspect := self._suspects.get(delivery.origin)) is not None:
            self._back_off(suspect, now_us)
            self._outbox.cancel_timer(AntiEntropyTimer(delivery.origin))
        hashes = list(self._record_hashes())
        by_bucket: dict[int, list[RecordHash]] = {}
        for record_hash in hashes:
            by_bucket.setdefault(bucket_of(record_hash), []).append(record_hash)
        chosen: list[int] = []
        hashes_listed: list[RecordHash] = []
        for bucket in differing_buckets(bucket_digests(hashes), message.bucket_digests):
            hashes_in_bucket = by_bucket.get(bucket, [])
            if chosen and len(hashes_listed) + len(hashes_in_bucket) > _RECORD_HASHES_MAX:
                break
            chosen.append(bucket)
            hashes_listed += hashes_in_bucket
        if chosen:
            self._send_to_origin(
                delivery, CellRecordHashes(bytes(chosen), pack_hashes(hashes_listed), True), now_us
            )

    def on_record_hashes(self, delivery: Delivery, message: CellRecordHashes, now_us: int) -> None:
        """Sends the records that the cell peer lacks, and the own record hashes if it wants
        them."""
        if not self._is_from_cell_peer(delivery):
            return
        buckets = frozenset(message.buckets)
        their_hashes = unpack_hashes(message.record_hashes)
        if message.hashes_wanted:
            hashes = [
                record_hash
                for record_hash in self._record_hashes()
                if bucket_of(record_hash) in buckets
            ]
            self._send_to_origin(
                delivery, CellRecordHashes(message.buckets, pack_hashes(hashes), False), now_us
            )
        missing = [
            (field_name, record)
            for field_name, record, hashes in self._records_with_hashes()
            if any(
                bucket_of(record_hash) in buckets and record_hash not in their_hashes
                for record_hash in hashes
            )
        ]
        if missing:
            for part in split_state(missing, _PART_BYTES_MAX):
                self._send_to_origin(delivery, part, now_us)

    def on_state(self, delivery: Delivery, state: CellState, now_us: int) -> None:
        """Merges the missing records that a cell peer sent."""
        if self._is_from_cell_peer(delivery):
            result = merge_state(state, self._index, self._replicas, now_us)
            self.records_merged += len(result.objects) + len(result.subscriptions)
            self._on_merged(delivery.origin, state, result, now_us)

    def _is_from_cell_peer(self, delivery: Delivery) -> bool:
        routing = self._routing
        return routing.serving and delivery.origin_cell == routing.cell

    def _send_to_origin(
        self, delivery: Delivery, message: CellRecordHashes | CellState, now_us: int
    ) -> None:
        self._routing.send([Destination(delivery.origin_cell, delivery.origin)], message, now_us)

    def _record_hashes(self) -> Iterator[RecordHash]:
        for part in (*self._index.digests(), self._replicas.cell_wide_digest):
            yield from part.hashes()

    def _records_with_hashes(self) -> Iterator[tuple[str, object, list[RecordHash]]]:
        """All records of the cell with their hashes; tombstones come first."""
        index = self._index
        for tombstone in index.object_tombstones():
            if tombstone.reason == DELETED:
                yield "object_tombstones", tombstone, [hash_record(deleted_name(tombstone.key))]
        for tombstone in index.subscription_tombstones():
            yield "subscription_tombstones", tombstone, [hash_record(cancelled_name(tombstone.key))]
        for indexed in index.objects():
            yield "objects", indexed, [hash_record(object_name(indexed.metadata.key))]
        for cell_subscription in index.cell_subscriptions():
            subscription = cell_subscription.subscription
            names = conjunction_names(subscription.key, subscription.conjunctions)
            yield "subscriptions", cell_subscription, [hash_record(name) for name in names]
        for metadata in self._replicas.cell_wide_objects():
            yield "replicated", metadata, [hash_record(replica_name(metadata.key))]

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._suspects) <= _SUSPECTS_MAX
