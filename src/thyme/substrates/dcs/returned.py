"""Returned: notifications that did not find their subscriber, and what becomes of them.

Routing says so when a node is not in its cell. Such a notification waits until the subscriber is
heard of again and is then sent to where it is; or, if so set, is tried again after a while, since
the radio may have been to blame. After a longest time it is given up.
Clauses: D8, D22, B3.
"""

from __future__ import annotations

import msgspec

from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.subscriptions import SubscriptionKey
from thyme.protocol.messages import CellNotify
from thyme.protocol.node import Outbox
from thyme.routing.cells import CellRouting, NotThere, To
from thyme.substrates.dcs.config import ReturnedConfig
from thyme.substrates.dcs.index import CellIndex


class ReturnedTimer(msgspec.Struct, frozen=True):
    """Time to try a subscriber again."""

    subscriber: NodeId


class Note(msgspec.Struct, frozen=True):
    """A notification that was sent: of which object, for which subscriptions."""

    key: Key
    sids: tuple[SubscriptionId, ...]
    first_us: int
    tries: int = 1


class Returned:
    """The notifications of one node that may come back, and those that did."""

    def __init__(
        self, routing: CellRouting, outbox: Outbox, index: CellIndex, config: ReturnedConfig
    ) -> None:
        self._routing = routing
        self._outbox = outbox
        self._index = index
        self._config = config
        self._sent: dict[int, Note] = {}
        self._waiting: dict[NodeId, dict[Key, Note]] = {}
        self.returned = 0
        self.resent = 0
        self.given_up = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def note(self, number: int, note: Note) -> None:
        """Remembers what routing calls a notification, for as long as it may come back."""
        self._sent[number] = note
        if len(self._sent) > self._config.notes_max:
            del self._sent[next(iter(self._sent))]

    def on_not_there(self, failure: NotThere, now_us: int) -> bool:
        """A notification came back: it waits. Returns whether it was one."""
        note, subscriber = self._sent.get(failure.number), failure.node
        if note is None:
            return False
        self.returned += 1
        if len(self) >= self._config.notes_max:
            self.given_up += 1
            return True
        self._waiting.setdefault(subscriber, {})[note.key] = note
        retry_us = self._config.retry_us
        if retry_us is not None and note.tries < self._config.tries_max:
            self._outbox.set_timer(ReturnedTimer(subscriber), now_us + retry_us * note.tries)
        else:
            self._outbox.set_timer(ReturnedTimer(subscriber), note.first_us + self._config.wait_us)
        return True

    def on_timer(self, timer: ReturnedTimer, now_us: int) -> None:
        """Tries again those that may be tried; the others have waited long enough, or wait on."""
        waiting = self._waiting.get(timer.subscriber, {})
        retried = self._config.retry_us is not None
        for note in list(waiting.values()):
            if now_us >= note.first_us + self._config.wait_us:
                del waiting[note.key]
                self.given_up += 1
            elif retried and note.tries < self._config.tries_max:
                del waiting[note.key]
                self._resend(timer.subscriber, note, now_us)
        if waiting:
            until_us = min(note.first_us for note in waiting.values()) + self._config.wait_us
            self._outbox.set_timer(timer, until_us)
        else:
            self._waiting.pop(timer.subscriber, None)

    def on_heard(self, subscriber: NodeId, now_us: int) -> None:
        """A subscriber said where it is: what waited for it is sent there."""
        waiting = self._waiting.pop(subscriber, None)
        if waiting is not None:
            self._outbox.cancel_timer(ReturnedTimer(subscriber))
            for note in waiting.values():
                self._resend(subscriber, note, now_us)

    def _resend(self, subscriber: NodeId, note: Note, now_us: int) -> None:
        """Sends what is still true, to where the subscriber was last heard (M23)."""
        metadata = self._index.broker.catalogue.history.get(note.key)
        keys = [SubscriptionKey(sid, subscriber) for sid in note.sids]
        standing = [key for key in keys if self._index.broker.standing(key) is not None]
        if metadata is None or not standing:
            return
        sids = tuple(key.sid for key in standing)
        message = CellNotify(self._index.indexed(metadata), sids)
        target = To(self._index.cell_of(standing[0]), subscriber)
        number = self._routing.send([target], message, now_us)
        self.resent += 1
        self.note(number, Note(note.key, sids, note.first_us, note.tries + 1))

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        assert len(self._sent) <= self._config.notes_max
        assert len(self) <= self._config.notes_max
        assert all(self._waiting.values())
