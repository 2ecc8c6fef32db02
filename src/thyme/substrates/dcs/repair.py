"""Repair: nodes of one cell that know different things tell each other what the other lacks.

Beacons carry the sum of what their sender knows for the cell (`digest`). Where that of a colleague
keeps differing from the own one, the two compare: sums by bucket, then marks, then each sends what
the other has not. What was deleted comes first and wins. A node waits a random moment before it
begins, longer each time that it was of no use, so that not all do so at once or for ever.
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
    """Time to compare with a colleague."""

    node: NodeId


@dataclass(slots=True)
class _Doubt:
    """A colleague that knows something else."""

    beacons: int = 0
    """How many of its beacons in a row said so."""
    tries: int = 0
    not_before_us: int = 0


class Repair:
    """The comparisons of one node with its colleagues."""

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

    # Noticing

    def payload(self, now_us: int) -> bytes:
        """What a beacon says of what this node knows."""
        if not (self._config.digests and self._routing.serving):
            return b""
        return total_of((*self._index.sums(now_us), self._replicas.shared))

    def agrees(self, sighting: Sighting, now_us: int) -> bool:
        """Whether a colleague's beacon says that it knows the very same."""
        ours = total_of((*self._index.sums(now_us), self._replicas.shared))
        return sighting.payload[:SUM_BYTES] == ours

    def on_sighted(self, sighting: Sighting, now_us: int) -> None:
        """Compares a beacon of a colleague with what this node knows."""
        if not self._is_colleague(sighting):
            self._doubts.pop(sighting.node, None)
            return
        doubt = self._doubts.get(sighting.node)
        if self.agrees(sighting, now_us):
            if doubt is not None:
                del self._doubts[sighting.node]
                self._outbox.cancel_timer(RepairTimer(sighting.node))
            return
        if doubt is None:
            if len(self._doubts) >= self._config.doubts_max:
                del self._doubts[next(iter(self._doubts))]
            doubt = self._doubts[sighting.node] = _Doubt()
        doubt.beacons += 1
        if doubt.beacons == self._config.beacons_min:
            wait_us = self._rng.randint(0, self._config.jitter_us)
            at_us = max(now_us, doubt.not_before_us) + wait_us
            self._outbox.set_timer(RepairTimer(sighting.node), at_us)

    def doubts(self, node_id: NodeId) -> bool:
        """Whether a node was found to know something else."""
        return node_id in self._doubts

    def _is_colleague(self, sighting: Sighting) -> bool:
        here = self._routing
        both_serve = here.serving and sighting.serving and sighting.cell == here.cell
        return self._config.digests and both_serve and len(sighting.payload) >= SUM_BYTES

    def on_timer(self, timer: RepairTimer, now_us: int) -> None:
        """Begins to compare."""
        doubt = self._doubts.get(timer.node)
        if doubt is not None and self._routing.serving:
            self._pause(doubt, now_us)
            self.started += 1
            sums = CellSums(sums_of(self._marks(now_us)))
            self._routing.send([To(self._routing.cell, timer.node)], sums, now_us)

    def _pause(self, doubt: _Doubt, now_us: int) -> None:
        """Looks at the next beacons before it goes on, and at fewer of them if that was no use."""
        pause_us = self._config.pause_us << min(doubt.tries, self._config.tries_max)
        doubt.not_before_us = now_us + pause_us
        doubt.tries += 1
        doubt.beacons = 0

    # Comparing

    def on_sums(self, arrival: Arrival, message: CellSums, now_us: int) -> None:
        """Says what this node knows in the buckets that differ, as many as fit."""
        if not self._is_near(arrival) or len(message.sums) != BUCKETS * SUM_BYTES:
            return
        if (doubt := self._doubts.get(arrival.origin)) is not None:
            self._pause(doubt, now_us)
            self._outbox.cancel_timer(RepairTimer(arrival.origin))
        marks = list(self._marks(now_us))
        by_bucket: dict[int, list[Mark]] = {}
        for mark in marks:
            by_bucket.setdefault(bucket_of(mark), []).append(mark)
        chosen: list[int] = []
        listed: list[Mark] = []
        for bucket in differing(sums_of(marks), message.sums):
            theirs = by_bucket.get(bucket, [])
            if chosen and len(listed) + len(theirs) > self._config.marks_max:
                break
            chosen.append(bucket)
            listed += theirs
        if chosen:
            self._answer(arrival, CellMarks(bytes(chosen), packed(listed), True), now_us)

    def on_marks(self, arrival: Arrival, message: CellMarks, now_us: int) -> None:
        """Sends what the other lacks; and the own marks, if it wants to do the same."""
        if not self._is_near(arrival):
            return
        buckets = frozenset(message.buckets)
        theirs = unpacked(message.marks)
        if message.wanted:
            marks = [mark for mark in self._marks(now_us) if bucket_of(mark) in buckets]
            self._answer(arrival, CellMarks(message.buckets, packed(marks), False), now_us)
        lacking = [
            (kind, record)
            for kind, record, marks in self._records()
            if any(bucket_of(mark) in buckets and mark not in theirs for mark in marks)
        ]
        if lacking:
            for part in in_parts(lacking, self._config.part_bytes_max):
                self._answer(arrival, part, now_us)

    def on_state(self, arrival: Arrival, state: CellState, now_us: int) -> None:
        """Takes in what a colleague knows and this node did not."""
        if self._is_near(arrival):
            learnt = learn(state, self._index, self._replicas, now_us)
            self.learnt += len(learnt.objects) + len(learnt.subscriptions)
            self._on_learnt(arrival.origin, state, learnt, now_us)

    def _is_near(self, arrival: Arrival) -> bool:
        here = self._routing
        return self._config.digests and here.serving and arrival.origin_cell == here.cell

    def _answer(self, arrival: Arrival, message: CellMarks | CellState, now_us: int) -> None:
        self._routing.send([To(arrival.origin_cell, arrival.origin)], message, now_us)

    def _marks(self, now_us: int) -> Iterator[Mark]:
        for part in (*self._index.sums(now_us), self._replicas.shared):
            yield from part.marks()

    def _records(self) -> Iterator[tuple[str, object, list[Mark]]]:
        """All that is known for the cell, with the marks of each; what is gone comes first."""
        index = self._index
        for grave in index.buried_objects():
            if grave.why == DELETED:
                yield "buried_objects", grave, [mark_of(gone_name(grave.key))]
        for grave in index.buried_subscriptions():
            yield "buried_subscriptions", grave, [mark_of(over_name(grave.key))]
        for indexed in index.objects():
            yield "objects", indexed, [mark_of(object_name(indexed.metadata.key))]
        for interest in index.interests():
            held = interest.subscription
            names = interest_names(held.key, held.conjunctions)
            yield "interests", interest, [mark_of(name) for name in names]
        for metadata in self._replicas.shares():
            yield "held", metadata, [mark_of(held_name(metadata.key))]

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        assert len(self._doubts) <= self._config.doubts_max
