"""Notification checks: subscribers make sure that cells notified them of every match.

The node of a cell that receives an object first notifies the subscribers, and the others rely on
it. One that acknowledges and drops leaves gaps that no node of the cell knows of. So a subscriber
asks the key cells of its subscriptions how many matches they have of the last hour, and reads them
if it was notified of fewer. Any node of a cell answers, so another one is asked most times. Entry
point: `MissedMatchChecker.check`, called by `record_checks`.
Clauses: D27, M34. Decision: docs/decisions/0057-grey-holes.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from thyme.model.ids import SubscriptionId
from thyme.model.subscriptions import Conjunction
from thyme.model.time_frames import SECOND_US, TimeFrame
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import CellPage
from thyme.protocol.messages.requests import FetchPage
from thyme.protocol.results import Ok, Result
from thyme.query.cursor import Cursor, cursor_at
from thyme.routing.cells import Destination
from thyme.substrates.common.subscriber import OwnSubscription, Subscriber
from thyme.substrates.dcs.client.cell_requests import CellRequests, Replies
from thyme.substrates.dcs.client.key_choice import KeyChooser

_WINDOW_US = 3_600 * SECOND_US
"""How old a missed object may be."""
_DUE_US = 10 * SECOND_US
"""How long a notification may take before it counts as missed."""
_PAGE_SIZE = 64
_TRIES_MAX = 3
"""How often a cell is asked in one check, if it has far fewer matches than it should have."""
_PAGES_MAX = 32
"""How many pages one check reads at most."""


class MissedMatchChecker:
    """The checks of the subscriptions of one node."""

    def __init__(
        self,
        requests: CellRequests,
        key_chooser: KeyChooser,
        subscriber: Subscriber,
        on_missed: Callable[[int], None],
    ) -> None:
        """`on_missed` is called at an instant when a missed object was found, or nodes of one cell
        disagree about the number of matches."""
        self._requests = requests
        self._key_chooser = key_chooser
        self._subscriber = subscriber
        self._on_missed = on_missed
        self.found = 0
        """Number of missed objects that checks found."""

    def check(self, cell: CellId, sids: Iterable[SubscriptionId], now_us: int) -> None:
        """Asks a cell for the number of matches of some subscriptions, and reads them if they are
        more than this node emitted."""
        for sid in sids:
            own = self._subscriber.get(sid)
            since_us = None if own is None else own.due_since_us
            if own is None or since_us is None or not (own.attached and own.started):
                continue
            chosen = self._key_chooser.assign_cells(own.subscription)
            window = _due_window(own.subscription.frame, since_us, now_us)
            if window is not None and cell in chosen and not own.paused:
                # Of several cells none has all matches: each is read, down to what is known.
                emitted = _count_emitted(own, window) if len(chosen) == 1 else 0
                self._count(cell, own, chosen[cell], window, emitted, now_us)

    def _count(
        self,
        cell: CellId,
        own: OwnSubscription,
        conjunctions: tuple[Conjunction, ...],
        frame: TimeFrame,
        emitted: int,
        now_us: int,
        tries: int = 1,
    ) -> None:
        """Asks for the number of matches. A node that has far fewer than this one emitted has
        dropped some: another one is asked."""

        def on_result(result: Result[Replies], now_us: int) -> None:
            for reply in result.value.values() if isinstance(result, Ok) else ():
                if not isinstance(reply, CellPage):
                    continue
                if tries > 1 and 2 * reply.total >= emitted:
                    self._on_missed(now_us)  # the nodes of the cell disagree
                if reply.total > emitted:
                    self._read(cell, own, conjunctions, frame, None, _PAGES_MAX, now_us)
                elif 2 * reply.total < emitted and tries < _TRIES_MAX:
                    self._count(cell, own, conjunctions, frame, emitted, now_us, tries + 1)

        request = FetchPage(self._requests.next_id(), conjunctions, frame, 0)
        self._requests.send_requests({Destination(cell): request}, now_us, on_result)

    def _read(
        self,
        cell: CellId,
        own: OwnSubscription,
        conjunctions: tuple[Conjunction, ...],
        frame: TimeFrame,
        before: Cursor | None,
        pages_left: int,
        now_us: int,
    ) -> None:
        """Reads a page of matches, tells the application of those that are new, and goes on."""

        def on_result(result: Result[Replies], now_us: int) -> None:
            for reply in result.value.values() if isinstance(result, Ok) else ():
                if not isinstance(reply, CellPage) or self._subscriber.get(own.sid) is not own:
                    return
                items = [indexed.metadata for indexed in reply.items]
                missed = [item for item in items if item.key not in own.seen]
                for item in missed:
                    self._subscriber.emit_missed(own, item, cell, now_us)
                if missed:
                    self.found += len(missed)
                    self._on_missed(now_us)
                if reply.has_more and items and pages_left > 1:
                    cursor = cursor_at(items[-1])
                    self._read(cell, own, conjunctions, frame, cursor, pages_left - 1, now_us)

        request = FetchPage(self._requests.next_id(), conjunctions, frame, _PAGE_SIZE, before)
        self._requests.send_requests({Destination(cell): request}, now_us, on_result)


def _due_window(frame: TimeFrame, since_us: int, now_us: int) -> TimeFrame | None:
    """The part of a subscription's time frame of which every match was due; None if there is
    none."""
    start_us, end_us = max(since_us, now_us - _WINDOW_US), now_us - _DUE_US
    if frame.start_us is not None:
        start_us = max(start_us, frame.start_us)
    if frame.end_us is not None:
        end_us = min(end_us, frame.end_us)
    return TimeFrame(start_us, end_us) if start_us < end_us else None


def _count_emitted(own: OwnSubscription, frame: TimeFrame) -> int:
    """How many objects of a time frame were emitted."""
    return sum(frame.contains(seen.published_us) for seen in own.seen.values())
