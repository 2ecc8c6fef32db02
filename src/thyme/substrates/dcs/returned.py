"""Returned: notifications on their way, and what becomes of those that do not arrive.

Routing says so when a node is not in its cell. Such a notification waits until the subscriber is
heard of again and is then sent to where it is; or, if so set, is tried again after a while, since
the radio may have been to blame. Where notifications are acknowledged, silence is as bad an answer,
and what is sent again to one subscriber travels as one. After a longest time and a last try it is
given up, and its subscriber with it. Before a subscriber is taken for failed, each node of the cell
asks it whether it is there, and believes what it finds itself.
Clauses: D8, D9, D22, B3, B5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from thyme.model.frames import SECOND_US
from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.subscriptions import SubscriptionKey
from thyme.protocol.cell_messages import CellNews, CellNotify, NewsCame
from thyme.protocol.cells import CellId, Matched
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import CellRouting, NotThere, To
from thyme.substrates.dcs.config import ReturnedConfig
from thyme.substrates.dcs.index import CellIndex

ASK_WAIT_US = SECOND_US
ASKS_MAX = 3
"""So often a subscriber is asked whether it is there before it is taken for failed."""

Audience = Mapping[tuple[CellId, NodeId], list[SubscriptionId]]
"""Who is to be notified, where, and for which subscriptions."""


class ReturnedTimer(msgspec.Struct, frozen=True):
    """Time to try a subscriber again."""

    subscriber: NodeId


class GatherTimer(msgspec.Struct, frozen=True):
    """Time to send what was kept back."""


class Note(msgspec.Struct, frozen=True):
    """A notification for one subscriber: of which object, for which subscriptions."""

    key: Key | None
    """None in a question whether the subscriber is there."""
    sids: tuple[SubscriptionId, ...]
    first_us: int
    due_us: int
    """When something is to be done about it."""
    tries: int = 1
    back: bool = False
    """Whether it did not arrive, as far as is known."""
    last: bool = False
    """Whether this was the last try, after which the subscriber is taken for failed (D22)."""
    at: CellId | None = None
    """Where the subscriber is asked whether it is there."""


class Returned:
    """The notifications of one node that may not arrive, and those that did not."""

    def __init__(
        self, routing: CellRouting, outbox: Outbox, index: CellIndex, config: ReturnedConfig
    ) -> None:
        self._routing = routing
        self._outbox = outbox
        self._index = index
        self._config = config
        self._sent: dict[int, tuple[Note, ...]] = {}
        self._waiting: dict[NodeId, dict[Key | None, Note]] = {}
        self._gathered: dict[tuple[To, ...], dict[Key, tuple[SubscriptionId, ...]]] = {}
        self.on_failed: Callable[[NodeId, int], None] | None = None
        """Told of a subscriber that was not found for the longest time (D22)."""
        self.on_absent: Callable[[NodeId, CellId], None] | None = None
        """Told of one that was asked whether it is in a cell, and did not say so."""
        self.returned = 0
        self.resent = 0
        self.given_up = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    # On their way

    def notify(self, key: Key, audience: Audience, now_us: int) -> None:
        """One message to all subscribers, which parts where their ways do (D9)."""
        people = sorted(audience.items())
        for start in range(0, len(people), self._config.targets_max):
            some = people[start : start + self._config.targets_max]
            sids = tuple(sorted(sid for _, theirs in some for sid in theirs))
            targets = tuple(To(cell, subscriber) for (cell, subscriber), _ in some)
            if self._config.receipt_us is None or not self._config.gather_us:
                self._send(targets, [Note(key, sids, now_us, now_us)], now_us)
                continue
            if not self._gathered:
                self._outbox.set_timer(GatherTimer(), now_us + self._config.gather_us)
            known = self._gathered.setdefault(targets, {})
            known[key] = tuple(dict.fromkeys((*known.get(key, ()), *sids)))

    def on_gathered(self, now_us: int) -> None:
        """Sends what was kept back."""
        gathered, self._gathered = self._gathered, {}
        for targets, items in gathered.items():
            notes = [Note(key, sids, now_us, now_us) for key, sids in items.items()]
            self._send(targets, notes, now_us)

    def _send(self, targets: tuple[To, ...], notes: list[Note], now_us: int) -> None:
        history = self._index.broker.catalogue.history
        known = [(note, history.get(note.key)) for note in notes if note.key is not None]
        items = [
            (note, Matched(self._index.indexed(metadata), note.sids))
            for note, metadata in known
            if metadata is not None
        ]
        if not items:
            return
        if self._config.receipt_us is None:
            for note, item in items:
                news = CellNotify(item.indexed, item.sids)
                self._remember(self._routing.send(targets, news, now_us), (note,))
            return
        number = self._routing.send(targets, CellNews(tuple(item for _, item in items)), now_us)
        sent = tuple(note for note, _ in items)
        self._remember(number, sent)
        wait_us = self._config.receipt_us * min(note.tries for note in sent)
        for to in targets:
            assert to.node is not None
            self._await(to.node, sent, now_us + wait_us)

    def _remember(self, number: int, notes: tuple[Note, ...]) -> None:
        """Remembers what routing calls a message, for as long as it may come back."""
        self._sent[number] = notes
        if len(self._sent) > self._config.notes_max:
            del self._sent[next(iter(self._sent))]

    def _await(self, subscriber: NodeId, notes: Iterable[Note], due_us: int) -> None:
        for note in notes:
            if len(self) < self._config.notes_max:
                waits = msgspec.structs.replace(note, due_us=due_us, back=False)
                self._waiting.setdefault(subscriber, {})[note.key] = waits
        self._set_timer(subscriber)

    def on_came(self, subscriber: NodeId, came: NewsCame) -> None:
        """A subscriber has what was sent under these numbers."""
        waiting = self._waiting.get(subscriber)
        if waiting is None:
            return
        for number in came.numbers:
            for note in self._sent.get(number, ()):
                waiting.pop(note.key, None)
        if not waiting:
            self._forget(subscriber)

    # Whether one is there

    def ask(self, subscriber: NodeId, cell: CellId, now_us: int) -> None:
        """Asks a subscriber whether it is there, unless that is being done."""
        if None not in self._waiting.get(subscriber, {}):
            self._ask(subscriber, cell, 1, now_us)

    def _ask(self, subscriber: NodeId, cell: CellId, tries: int, now_us: int) -> None:
        """With no news, of which it says that they came."""
        question = Note(None, (), now_us, now_us, tries, at=cell)
        number = self._routing.send((To(cell, subscriber),), CellNews(()), now_us)
        self._remember(number, (question,))
        self._await(subscriber, (question,), now_us + ASK_WAIT_US)

    def _unanswered(self, subscriber: NodeId, question: Note, now_us: int) -> None:
        assert question.at is not None
        if question.tries < ASKS_MAX:
            self._ask(subscriber, question.at, question.tries + 1, now_us)
        elif self.on_absent is not None:
            self.on_absent(subscriber, question.at)

    # Back

    def on_not_there(self, failure: NotThere, now_us: int) -> bool:
        """A notification came back: it waits. Returns whether it was one."""
        notes, subscriber = self._sent.get(failure.number), failure.node
        if notes is None:
            return False
        for note in notes:
            if note.key is not None:  # a question waits for its time: the subscriber may be moving
                self._came_back(subscriber, note, now_us)
        self._set_timer(subscriber)
        if any(note.last for note in notes):
            self._failed(subscriber, now_us)
        return True

    def _failed(self, subscriber: NodeId, now_us: int) -> None:
        if self.on_failed is not None:
            self.on_failed(subscriber, now_us)

    def _came_back(self, subscriber: NodeId, note: Note, now_us: int) -> None:
        self.returned += 1
        if note.last or len(self) >= self._config.notes_max:
            self._waiting.get(subscriber, {}).pop(note.key, None)
            self.given_up += 1
            return
        retry_us = self._config.retry_us
        due_us = note.first_us + self._config.wait_us
        if retry_us is not None and note.tries < self._config.tries_max:
            due_us = min(due_us, now_us + retry_us * note.tries)
        back = msgspec.structs.replace(note, due_us=due_us, back=True)
        self._waiting.setdefault(subscriber, {})[note.key] = back

    def on_timer(self, timer: ReturnedTimer, now_us: int) -> None:
        """Tries again those that may be tried; the others have waited long enough, or wait on."""
        waiting = self._waiting.get(timer.subscriber, {})
        again: list[Note] = []
        failed = False
        # What would be due soon travels with what is.
        until_us = now_us + (self._config.receipt_us or 0) // 2
        for note in [note for note in waiting.values() if note.due_us <= until_us]:
            end_us = note.first_us + self._config.wait_us
            if note.key is None:
                del waiting[None]
                self._unanswered(timer.subscriber, note, now_us)
            elif note.last:
                del waiting[note.key]
                self.given_up += 1
                failed = True
            elif now_us >= end_us:
                # The radio may have been to blame, and not the subscriber.
                del waiting[note.key]
                again.append(msgspec.structs.replace(note, last=True))
            elif note.tries < self._config.tries_max:
                del waiting[note.key]
                again.append(note)
            else:
                waiting[note.key] = msgspec.structs.replace(note, due_us=end_us, back=True)
        self._resend(timer.subscriber, again, now_us)
        self._set_timer(timer.subscriber)
        if failed:
            self._failed(timer.subscriber, now_us)

    def on_heard(self, subscriber: NodeId, now_us: int) -> None:
        """A subscriber said where it is: what waited for it is sent there."""
        waiting = self._waiting.get(subscriber)
        if waiting is None:
            return
        waiting.pop(None, None)
        back = [note for note in waiting.values() if note.back]
        for note in back:
            del waiting[note.key]
        self._resend(subscriber, back, now_us)
        self._set_timer(subscriber)

    def _resend(self, subscriber: NodeId, notes: list[Note], now_us: int) -> None:
        """Sends what is still true, to where the subscriber was last heard (M23)."""
        by_cell: dict[CellId, list[Note]] = {}
        for note in notes:
            standing = list(self._standing(subscriber, note))
            if standing:
                sids = tuple(key.sid for key in standing)
                next_try = msgspec.structs.replace(
                    note, sids=sids, tries=note.tries + 1, back=False
                )
                by_cell.setdefault(self._index.cell_of(standing[0]), []).append(next_try)
        for cell, some in by_cell.items():
            self.resent += len(some)
            self._send((To(cell, subscriber),), some, now_us)

    def _standing(self, subscriber: NodeId, note: Note) -> Iterator[SubscriptionKey]:
        keys = (SubscriptionKey(sid, subscriber) for sid in note.sids)
        return (key for key in keys if self._index.broker.standing(key) is not None)

    def _set_timer(self, subscriber: NodeId) -> None:
        waiting = self._waiting.get(subscriber)
        if waiting:
            due_us = min(note.due_us for note in waiting.values())
            self._outbox.set_timer(ReturnedTimer(subscriber), due_us)
        else:
            self._forget(subscriber)

    def _forget(self, subscriber: NodeId) -> None:
        if self._waiting.pop(subscriber, None) is not None:
            self._outbox.cancel_timer(ReturnedTimer(subscriber))

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        assert len(self._sent) <= self._config.notes_max
        assert len(self) <= self._config.notes_max
        assert all(self._waiting.values())
