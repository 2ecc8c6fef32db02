"""Anti-entropy: the nodes of one cell find and remove differences between their states.

Beacons carry the digest of their sender's cell state (`cell_digest`). If the digest of a cell peer
keeps differing, the two nodes compare bucket digests, then record hashes, and send each other the
missing records. Tombstones are sent first and take precedence. A comparison starts after a random
wait, which grows as long as differences remain, so that not all nodes compare at once or for ever.
Entry points: `AntiEntropy.on_beacon` and `on_timer`.
Clauses: B2, D15.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionKey
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cells import CellDigest, CellRecordHashes, CellState
from thyme.query.history_index.chunk import order_key
from thyme.routing.cells import BeaconReceived, Delivery, Destination
from thyme.substrates.common.catalogue import DELETED
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.state.cell_digest import (
    BUCKETS,
    DIGEST_BYTES,
    RecordHash,
    SetDigest,
    bucket_digests,
    cancelled_name,
    combine_digests,
    deleted_name,
    differing_buckets,
    hash_record,
    pack_hashes,
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
_ON_THE_WAY_US = 2 * SECOND_US
"""An object that was published so recently may be on its way to a cell peer that lacks it. While
objects are inserted all the time, cell peers always differ in these."""


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
        return combine_digests(self._parts())

    def matches_digest(self, beacon: BeaconReceived) -> bool:
        """Whether a cell peer's beacon carries the same digest as this node's."""
        return beacon.payload[:DIGEST_BYTES] == combine_digests(self._parts())

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
            digest = CellDigest(bucket_digests(self._parts()))
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
        chosen: list[int] = []
        hashes_listed: list[RecordHash] = []
        for bucket in differing_buckets(bucket_digests(self._parts()), message.bucket_digests):
            hashes_in_bucket = self._hashes_in(bucket)
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
        buckets = sorted(set(message.buckets))
        their_hashes = unpack_hashes(message.record_hashes)
        if message.hashes_wanted:
            hashes = [each for bucket in buckets for each in self._hashes_in(bucket)]
            self._send_to_origin(
                delivery, CellRecordHashes(message.buckets, pack_hashes(hashes), False), now_us
            )
        missing = list(self._missing_records(buckets, their_hashes, now_us))
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

    def _parts(self) -> tuple[SetDigest, ...]:
        return (*self._index.digests(), self._replicas.cell_wide_digest)

    def _hashes_in(self, bucket: int) -> list[RecordHash]:
        return [record_hash for part in self._parts() for record_hash in part.in_bucket(bucket)]

    def _missing_records(
        self, buckets: list[int], their_hashes: set[RecordHash], now_us: int
    ) -> Iterator[tuple[str, object]]:
        """The records in some buckets that a cell peer lacks; tombstones come first. New objects
        are left out: they are still on their way to the cell peer."""
        objects, conjunctions, tombstones, replicas = (
            {
                record_hash: key
                for bucket in buckets
                for record_hash, key in part.in_bucket(bucket).items()
                if record_hash not in their_hashes
            }
            for part in self._parts()
        )
        if tombstones:
            yield from self._tombstones(tombstones)
        found = (self._index.get_object(cast(Key, key)) for key in objects.values())
        for metadata in _settled(found, now_us):
            yield "objects", self._index.with_replication_list(metadata)
        for key in dict.fromkeys(conjunctions.values()):
            if active := self._index.cell_subscription(cast(SubscriptionKey, key)):
                yield "subscriptions", active
        stored = (self._replicas.get(cast(Key, key)) for key in replicas.values())
        for metadata in _settled((each.metadata for each in stored if each), now_us):
            yield "replicated", metadata

    def _tombstones(self, hashes: Container[RecordHash]) -> Iterator[tuple[str, object]]:
        for tombstone in self._index.object_tombstones():
            deleted = tombstone.reason == DELETED
            if deleted and hash_record(deleted_name(tombstone.key)) in hashes:
                yield "object_tombstones", tombstone
        for tombstone in self._index.subscription_tombstones():
            if hash_record(cancelled_name(tombstone.key)) in hashes:
                yield "subscription_tombstones", tombstone

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._suspects) <= _SUSPECTS_MAX


def _settled(found: Iterable[Metadata | None], now_us: int) -> list[Metadata]:
    """Those objects that were not published just now, oldest first."""
    settled = [
        metadata
        for metadata in found
        if metadata is not None and abs(now_us - metadata.published_us) > _ON_THE_WAY_US
    ]
    return sorted(settled, key=order_key)
