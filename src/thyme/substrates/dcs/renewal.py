"""Re-announcement: after topology changes, nodes announce their records to the cells again.

When a node starts or stops serving a cell, or keys are transferred, records may be lost unnoticed.
Beacons carry the instant of the latest such change, so that all nodes learn of it at no extra cost.
Once no change was seen for `quiet_us`, or after `wait_us_max` at the latest, each node announces
its objects and subscriptions again, a few at a time (`location_updates`), and repeats its deletes
(`deletion_log`). Cells that lost a record receive it again. Without topology changes nothing is
sent. Entry points: `Reannouncer.record_change` and `on_change_stamp`.
Clauses: B1, B2.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from thyme.model.frames import SECOND_US
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.substrates.dcs.floor import Floor
from thyme.substrates.dcs.location import Location
from thyme.substrates.dcs.replicas import HeldObject, Role

_WORD_BYTES = 4


class RenewTimer(msgspec.Struct, frozen=True):
    """The timer of the next re-announcement."""


class Renewal:
    """The topology changes known to one node, and its re-announcements."""

    def __init__(self, floor: Floor, location: Location) -> None:
        self._node_id = floor.node_id
        self._routing = floor.routing
        self._outbox = floor.outbox
        self._replicas = floor.replicas
        self._location = location
        self._deletions = floor.deletions
        self._rng = floor.rng
        self._config = floor.config.renewal
        self._latest_s = 0
        """When the latest topology change was; 0 if there was none."""
        self._since_us: int | None = None
        """When this node learnt of the first topology change since its last complete
        re-announcement."""
        self._turn: list[Key] = []
        """The objects still to be announced, in reverse order."""
        self._due = False
        self.rounds = 0

    # Change stamps

    @property
    def word(self) -> bytes:
        """The stamp of the latest topology change, for beacons."""
        if not self._config.on:
            return b""
        return self._latest_s.to_bytes(_WORD_BYTES, "big")

    def note(self, now_us: int) -> None:
        """Records a topology change at this node."""
        self._learn(now_us // SECOND_US, now_us)

    def on_word(self, word: bytes, now_us: int) -> None:
        """Handles a neighbour's stamp of the latest topology change; a stamp in the future is
        ignored."""
        if self._config.on and len(word) == _WORD_BYTES:
            stamp_s = int.from_bytes(word, "big")
            if stamp_s * SECOND_US <= now_us + self._config.skew_us:
                self._learn(stamp_s, now_us)

    def _learn(self, at_s: int, now_us: int) -> None:
        if self._config.on and 0 <= at_s < 256**_WORD_BYTES and at_s > self._latest_s:
            self._latest_s = at_s
            if self._since_us is None:
                self._since_us = now_us
            if not self._due:
                self._wake(self._config.calm_us, now_us)

    def _wake(self, wait_us: int, now_us: int) -> None:
        self._due = True
        self._outbox.set_timer(RenewTimer(), now_us + wait_us + self._rng.randint(0, wait_us))

    # Re-announcing

    def on_timer(self, now_us: int) -> None:
        """Announces the next few objects; in the first step also the subscriptions."""
        self._due = False
        if not self._routing.serving:
            self._turn.clear()
            return  # starts again after the join, which is a topology change, too
        is_first_batch = not self._turn
        if is_first_batch:
            quiet = now_us - self._latest_s * SECOND_US >= self._config.calm_us
            self._deletions.tell(now_us, calm=quiet)
            if not quiet and self._can_wait(now_us):
                self._wake(self._config.calm_us, now_us)
                return
            self.rounds += 1
            self._since_us = None
            self._turn = [stored.metadata.key for stored in self._mine(retrieved=quiet)]
        batch: list[Metadata] = []
        while self._turn and len(batch) < self._config.keys_max:
            stored = self._replicas.get(self._turn.pop())
            if stored is not None:
                batch.append(stored.metadata)
        self._location.say(batch, now_us, subscriptions=is_first_batch)
        if self._turn:
            self._wake(self._config.pace_us, now_us)
        elif self._since_us is not None:
            self._wake(self._config.calm_us, now_us)

    def _can_wait(self, now_us: int) -> bool:
        """Whether there is time to wait for a quiet period before the next re-announcement."""
        return self._since_us is not None and now_us - self._since_us < self._config.wait_us

    def _mine(self, *, retrieved: bool) -> Iterable[HeldObject]:
        """The objects this node announces: its own; active replicas whose owner is not in the cell,
        if it is the cell peer with the lowest id or a named holder; and, if the network is quiet,
        passive replicas, which are many and only a convenience."""
        cell_peers = self._routing.nodes_in(self._routing.cell)
        is_lowest = not any(node < self._node_id for node in cell_peers)
        if retrieved:
            yield from self._replicas.of_role(Role.PASSIVE)
        for stored in self._replicas.of_role(Role.ACTIVE):
            is_named = any(replica.node is not None for replica in stored.active)
            if stored.metadata.owner not in cell_peers and (is_lowest or is_named):
                yield stored
        yield from self._replicas.of_role(Role.OWN)
