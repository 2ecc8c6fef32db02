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

from thyme.model.ids import NodeId
from thyme.protocol.cell_messages import CellMarks, CellState, CellSums
from thyme.routing.cells import Arrival, Sighting, To
from thyme.substrates.catalogue import DELETED
from thyme.substrates.dcs.digest import (
    BUCKETS,
    SUM_BYTES,
    Mark,
    bucket_of,
    differing,
    gone_name,
    held_name,
    interest_names,
    mark_of,
    object_name,
    over_name,
    packed,
    sums_of,
    total_of,
    unpacked,
)
from thyme.substrates.dcs.floor import Floor
from thyme.substrates.dcs.learning import Learnt, in_parts, learn


class RepairTimer(msgspec.Struct, frozen=True):
    """The timer of the next comparison with a cell peer."""

    node: NodeId


@dataclass(slots=True)
class _Doubt:
    """A cell peer whose digest differs."""

    beacons: int = 0
    """The number of consecutive beacons that differed."""
    tries: int = 0
    not_before_us: int = 0


class Repair:
    """The comparisons of one node with its cell peers."""

    def __init__(
        self,
        floor: Floor,
        on_learnt: Callable[[NodeId, CellState, Learnt, int], None],
    ) -> None:
        self._routing = floor.routing
        self._outbox = floor.outbox
        self._index = floor.index
        self._replicas = floor.replicas
        self._rng = floor.rng
        self._config = floor.config.repair
        self._on_learnt = on_learnt
        self._doubts: dict[NodeId, _Doubt] = {}
        self.started = 0
        self.learnt = 0

    # Detecting differences

    def payload(self, now_us: int) -> bytes:
        """The digest of this node's cell state for its beacons."""
        if not (self._config.digests and self._routing.serving):
            return b""
        return total_of((*self._index.sums(now_us), self._replicas.shared))

    def agrees(self, sighting: Sighting, now_us: int) -> bool:
        """Whether a cell peer's beacon carries the same digest as this node's."""
        own_digest = total_of((*self._index.sums(now_us), self._replicas.shared))
        return sighting.payload[:SUM_BYTES] == own_digest

    def on_sighted(self, sighting: Sighting, now_us: int) -> None:
        """Compares the digest in a cell peer's beacon with the own one."""
        if not self._is_colleague(sighting):
            self._doubts.pop(sighting.node, None)
            return
        suspect = self._doubts.get(sighting.node)
        if self.agrees(sighting, now_us):
            if suspect is not None:
                del self._doubts[sighting.node]
                self._outbox.cancel_timer(RepairTimer(sighting.node))
            return
        if suspect is None:
            if len(self._doubts) >= self._config.doubts_max:
                del self._doubts[next(iter(self._doubts))]
            suspect = self._doubts[sighting.node] = _Doubt()
        suspect.beacons += 1
        if suspect.beacons == self._config.beacons_min:
            wait_us = self._rng.randint(0, self._config.jitter_us)
            at_us = max(now_us, suspect.not_before_us) + wait_us
            self._outbox.set_timer(RepairTimer(sighting.node), at_us)

    def doubts(self, node_id: NodeId) -> bool:
        """Whether a node's digest was found to differ."""
        return node_id in self._doubts

    def _is_colleague(self, sighting: Sighting) -> bool:
        routing = self._routing
        both_serve = routing.serving and sighting.serving and sighting.cell == routing.cell
        return self._config.digests and both_serve and len(sighting.payload) >= SUM_BYTES

    def on_timer(self, timer: RepairTimer, now_us: int) -> None:
        """Starts a comparison by sending the bucket digests."""
        suspect = self._doubts.get(timer.node)
        if suspect is not None and self._routing.serving:
            self._pause(suspect, now_us)
            self.started += 1
            digest = CellSums(sums_of(self._marks(now_us)))
            self._routing.send([To(self._routing.cell, timer.node)], digest, now_us)

    def _pause(self, doubt: _Doubt, now_us: int) -> None:
        """Postpones the next comparison, for longer after each comparison that left a
        difference."""
        pause_us = self._config.pause_us << min(doubt.tries, self._config.tries_max)
        doubt.not_before_us = now_us + pause_us
        doubt.tries += 1
        doubt.beacons = 0

    # Exchanging differences

    def on_sums(self, arrival: Arrival, message: CellSums, now_us: int) -> None:
        """Replies with the record hashes of the differing buckets, as many as fit in one
        message."""
        if not self._is_near(arrival) or len(message.sums) != BUCKETS * SUM_BYTES:
            return
        if (suspect := self._doubts.get(arrival.origin)) is not None:
            self._pause(suspect, now_us)
            self._outbox.cancel_timer(RepairTimer(arrival.origin))
        hashes = list(self._marks(now_us))
        by_bucket: dict[int, list[Mark]] = {}
        for record_hash in hashes:
            by_bucket.setdefault(bucket_of(record_hash), []).append(record_hash)
        chosen: list[int] = []
        hashes_listed: list[Mark] = []
        for bucket in differing(sums_of(hashes), message.sums):
            hashes_in_bucket = by_bucket.get(bucket, [])
            if chosen and len(hashes_listed) + len(hashes_in_bucket) > self._config.marks_max:
                break
            chosen.append(bucket)
            hashes_listed += hashes_in_bucket
        if chosen:
            self._answer(arrival, CellMarks(bytes(chosen), packed(hashes_listed), True), now_us)

    def on_marks(self, arrival: Arrival, message: CellMarks, now_us: int) -> None:
        """Sends the records that the cell peer lacks, and the own record hashes if it wants
        them."""
        if not self._is_near(arrival):
            return
        buckets = frozenset(message.buckets)
        their_hashes = unpacked(message.marks)
        if message.wanted:
            hashes = [
                record_hash
                for record_hash in self._marks(now_us)
                if bucket_of(record_hash) in buckets
            ]
            self._answer(arrival, CellMarks(message.buckets, packed(hashes), False), now_us)
        missing = [
            (field_name, record)
            for field_name, record, hashes in self._records()
            if any(
                bucket_of(record_hash) in buckets and record_hash not in their_hashes
                for record_hash in hashes
            )
        ]
        if missing:
            for part in in_parts(missing, self._config.part_bytes_max):
                self._answer(arrival, part, now_us)

    def on_state(self, arrival: Arrival, state: CellState, now_us: int) -> None:
        """Merges the missing records that a cell peer sent."""
        if self._is_near(arrival):
            result = learn(state, self._index, self._replicas, now_us)
            self.learnt += len(result.objects) + len(result.subscriptions)
            self._on_learnt(arrival.origin, state, result, now_us)

    def _is_near(self, arrival: Arrival) -> bool:
        routing = self._routing
        return self._config.digests and routing.serving and arrival.origin_cell == routing.cell

    def _answer(self, arrival: Arrival, message: CellMarks | CellState, now_us: int) -> None:
        self._routing.send([To(arrival.origin_cell, arrival.origin)], message, now_us)

    def _marks(self, now_us: int) -> Iterator[Mark]:
        for part in (*self._index.sums(now_us), self._replicas.shared):
            yield from part.marks()

    def _records(self) -> Iterator[tuple[str, object, list[Mark]]]:
        """All records of the cell with their hashes; tombstones come first."""
        index = self._index
        for tombstone in index.buried_objects():
            if tombstone.why == DELETED:
                yield "buried_objects", tombstone, [mark_of(gone_name(tombstone.key))]
        for tombstone in index.buried_subscriptions():
            yield "buried_subscriptions", tombstone, [mark_of(over_name(tombstone.key))]
        for indexed in index.objects():
            yield "objects", indexed, [mark_of(object_name(indexed.metadata.key))]
        for cell_subscription in index.interests():
            subscription = cell_subscription.subscription
            names = interest_names(subscription.key, subscription.conjunctions)
            yield "interests", cell_subscription, [mark_of(name) for name in names]
        for metadata in self._replicas.shares():
            yield "held", metadata, [mark_of(held_name(metadata.key))]

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._doubts) <= self._config.doubts_max
