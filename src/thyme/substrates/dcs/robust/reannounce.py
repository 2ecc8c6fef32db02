"""Re-announcement: after topology changes, nodes announce their records to the cells again.

When a node starts or stops serving a cell, or keys are transferred, records may be lost unnoticed.
Beacons carry the instant of the latest such change, so that all nodes learn of it at no extra cost.
Once no change was seen for a while, or after `WAIT_US_MAX` at the latest, each node announces
its objects and subscriptions again, a few at a time (`location_updates`), and repeats its deletes
(`deletion_log`). Cells that lost a record receive it again. Without topology changes nothing is
sent; `record_checks` finds what was lost unnoticed. Entry points: `Reannouncer.record_change` and
`on_change_stamp`.
Clauses: B1, B2, D27.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.time_frames import SECOND_US
from thyme.substrates.dcs.client.deletion_log import DeletionLog
from thyme.substrates.dcs.client.location_updates import LocationUpdater
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.state.replica_store import ReplicaRole, StoredReplica

_QUIET_US = 15 * SECOND_US
"""How long the topology must be unchanged before a node starts to re-announce; a random wait of at
most the same length is added."""
WAIT_US_MAX = 240 * SECOND_US
"""How long a node waits for such a quiet period at most."""
BATCH_OBJECTS_MAX = 64
"""The maximum number of objects that a node announces at a time."""
_BATCH_PAUSE_US = 3 * SECOND_US
"""The pause before the next objects are announced; a random wait of at most the same length is
added."""
_SKEW_US = 5 * SECOND_US
"""How far ahead the clocks of other nodes may be."""
STAMP_BYTES = 4


class ReannounceTimer(msgspec.Struct, frozen=True):
    """The timer of the next re-announcement."""


class Reannouncer:
    """The topology changes known to one node, and its re-announcements."""

    def __init__(
        self,
        context: NodeContext,
        location_updater: LocationUpdater,
        deletion_log: DeletionLog,
        on_reannounced: Callable[[int], None] = lambda _now_us: None,
    ) -> None:
        """`on_reannounced` is called when a re-announcement in a quiet network is complete."""
        self._node_id = context.node_id
        self._routing = context.routing
        self._outbox = context.outbox
        self._replicas = context.replicas
        self._location_updater = location_updater
        self._deletion_log = deletion_log
        self._on_reannounced = on_reannounced
        self._rng = context.rng
        self._latest_change_s = 0
        """When the latest topology change was; 0 if there was none."""
        self._pending_since_us: int | None = None
        """When this node learnt of the first topology change since its last complete
        re-announcement."""
        self._keys_to_announce: list[Key] = []
        """The objects still to be announced, in reverse order."""
        self._is_scheduled = False
        self.rounds = 0

    # Change stamps

    @property
    def change_stamp(self) -> bytes:
        """The stamp of the latest topology change, for beacons."""
        return self._latest_change_s.to_bytes(STAMP_BYTES, "big")

    def record_change(self, now_us: int) -> None:
        """Records a topology change at this node."""
        self._update_latest_change(now_us // SECOND_US, now_us)

    def on_change_stamp(self, stamp: bytes, now_us: int) -> None:
        """Handles a neighbour's stamp of the latest topology change; a stamp in the future is
        ignored."""
        if len(stamp) == STAMP_BYTES:
            stamp_s = int.from_bytes(stamp, "big")
            if stamp_s * SECOND_US <= now_us + _SKEW_US:
                self._update_latest_change(stamp_s, now_us)

    def _update_latest_change(self, at_s: int, now_us: int) -> None:
        if 0 <= at_s < 256**STAMP_BYTES and at_s > self._latest_change_s:
            self._latest_change_s = at_s
            if self._pending_since_us is None:
                self._pending_since_us = now_us
            if not self._is_scheduled:
                self._schedule(_QUIET_US, now_us)

    def _schedule(self, wait_us: int, now_us: int) -> None:
        self._is_scheduled = True
        self._outbox.set_timer(ReannounceTimer(), now_us + wait_us + self._rng.randint(0, wait_us))

    # Re-announcing

    def on_timer(self, now_us: int) -> None:
        """Announces the next few objects; in the first step also the subscriptions."""
        self._is_scheduled = False
        if not self._routing.serving:
            self._keys_to_announce.clear()
            return  # starts again after the join, which is a topology change, too
        is_first_batch = not self._keys_to_announce
        if is_first_batch:
            quiet = self._is_quiet(now_us)
            self._deletion_log.repeat_deletes(now_us, quiet=quiet)
            if not quiet and self._can_wait(now_us):
                self._schedule(_QUIET_US, now_us)
                return
            self.rounds += 1
            self._pending_since_us = None
            self._keys_to_announce = [
                stored.metadata.key for stored in self._objects_to_announce(include_passive=quiet)
            ]
        batch: list[Metadata] = []
        while self._keys_to_announce and len(batch) < BATCH_OBJECTS_MAX:
            stored = self._replicas.get(self._keys_to_announce.pop())
            if stored is not None:
                batch.append(stored.metadata)
        self._location_updater.announce_objects(batch, now_us, with_subscriptions=is_first_batch)
        if not self._keys_to_announce and self._is_quiet(now_us):
            self._on_reannounced(now_us)
        if self._keys_to_announce:
            self._schedule(_BATCH_PAUSE_US, now_us)
        elif self._pending_since_us is not None:
            self._schedule(_QUIET_US, now_us)

    def _is_quiet(self, now_us: int) -> bool:
        return now_us - self._latest_change_s * SECOND_US >= _QUIET_US

    def _can_wait(self, now_us: int) -> bool:
        """Whether there is time to wait for a quiet period before the next re-announcement."""
        return self._pending_since_us is not None and now_us - self._pending_since_us < WAIT_US_MAX

    def _objects_to_announce(self, *, include_passive: bool) -> Iterable[StoredReplica]:
        """The objects this node announces: its own; active replicas, if it is the one of the cell
        to do so; and, if the network is quiet, passive replicas, which are many and only a
        convenience."""
        if include_passive:
            yield from self._replicas.brief_with_role(ReplicaRole.PASSIVE)
        yield from filter(self._is_announcer, self._replicas.brief_with_role(ReplicaRole.ACTIVE))
        yield from self._replicas.brief_with_role(ReplicaRole.OWN)

    def _is_announcer(self, stored: StoredReplica) -> bool:
        """Whether this node announces an active replica. A named holder does, and the owner, which
        may have lost its memory and got the object back from the cell; of a replica of the whole
        cell whose owner is elsewhere, the cell peer with the lowest id."""
        owner = stored.metadata.owner
        if owner == self._node_id or any(replica.node is not None for replica in stored.active):
            return True
        cell_peers = self._routing.nodes_in(self._routing.cell)
        return owner not in cell_peers and not any(node < self._node_id for node in cell_peers)
