"""Fair inbox: the inputs that a node has not handled yet, from all senders in turn.

Entry point: `FairInbox`. Inputs of the device itself have a queue of their own. Each sender has a
queue with a limit of messages and bytes; one message of each is handled in turn, a long one after
several turns, so that a sender of many or long messages delays itself only. A sender whose queue is
full is in `full_senders`: the link does not acknowledge its fragments; one with many waiting
broadcasts is in `full_broadcasters`: the link drops them.
Clauses: B5.
"""

from __future__ import annotations

from collections import deque

from thyme.model.ids import NodeId
from thyme.model.signed_records import BATCH_RECORDS_MAX
from thyme.protocol.app_interface import Insert, InsertBatch
from thyme.protocol.node import AppRequested, Input, Received

MESSAGES_MAX = 500
"""Maximum number of waiting messages of one sender."""
BROADCASTS_MAX = 250
"""Maximum number of waiting broadcasts of one sender, which does not learn that they wait."""
BYTES_MAX = 16 * 2**20
"""Maximum of the waiting bytes of all senders together."""
BYTES_MIN = 64 * 2**10
"""A sender may have so many bytes waiting, however many senders there are."""
BYTES_PER_TURN = 4 * 2**10
"""A message waits for one more turn of its sender for each so many bytes: it takes longer."""
OWN_PER_MESSAGE = 4
"""Inputs of the device that are handled before the next message."""


class _SenderQueue:
    __slots__ = ("broadcasts", "bytes", "messages", "turns_waited")

    def __init__(self) -> None:
        self.messages: deque[tuple[Received, int, bool]] = deque()
        self.bytes = self.broadcasts = 0
        self.turns_waited = 0
        """Turns that the first message has waited for."""


class FairInbox:
    """Waiting inputs of one node."""

    def __init__(self) -> None:
        self._own: deque[Input] = deque()
        self._own_turns = OWN_PER_MESSAGE
        self._senders: dict[NodeId, _SenderQueue] = {}
        self._turns: deque[NodeId] = deque()
        """The senders with waiting messages, in the order of their turns."""
        self.full_senders: set[NodeId] = set()
        self.full_broadcasters: set[NodeId] = set()

    def __bool__(self) -> bool:
        return bool(self._own or self._turns)

    def append(self, event: Input) -> None:
        """Adds an input of the device, such as a request or a timer."""
        self._own.append(event)

    def add_received(self, event: Received, size: int, is_broadcast: bool = False) -> None:
        """Adds a message of a sender."""
        queue = self._senders.get(event.sender)
        if queue is None:
            queue = self._senders[event.sender] = _SenderQueue()
            self._turns.append(event.sender)
        queue.messages.append((event, size, is_broadcast))
        queue.bytes += size
        queue.broadcasts += is_broadcast
        if len(queue.messages) >= MESSAGES_MAX or queue.bytes > self._bytes_max():
            self.full_senders.add(event.sender)
            self.full_broadcasters.add(event.sender)
        elif queue.broadcasts >= BROADCASTS_MAX:
            self.full_broadcasters.add(event.sender)

    def popleft(self) -> Input:
        """The next input."""
        if self._own and (self._own_turns > 0 or not self._turns):
            self._own_turns -= 1
            return self._own.popleft()
        self._own_turns = OWN_PER_MESSAGE
        sender = self._next_sender()
        queue = self._senders[sender]
        queue.turns_waited = 0
        event, size, is_broadcast = queue.messages.popleft()
        queue.bytes -= size
        queue.broadcasts -= is_broadcast
        if queue.messages:
            self._turns.append(sender)
        else:
            del self._senders[sender]
        if sender in self.full_senders:
            is_short = 2 * len(queue.messages) < MESSAGES_MAX
            if is_short and 2 * queue.bytes <= self._bytes_max():
                self.full_senders.discard(sender)
        if sender not in self.full_senders and 2 * queue.broadcasts < BROADCASTS_MAX:
            self.full_broadcasters.discard(sender)
        return event

    def _next_sender(self) -> NodeId:
        """Removes the sender whose message is next from the turns."""
        while True:
            sender = self._turns.popleft()
            queue = self._senders[sender]
            if not self._turns or queue.turns_waited >= queue.messages[0][1] // BYTES_PER_TURN:
                return sender
            queue.turns_waited += 1
            self._turns.append(sender)

    def pop_joined(self) -> Input:
        """The next input; consecutive inserts of the device become one `InsertBatch` (B5)."""
        event = self.popleft()
        if (insert := _as_insert(event)) is None or self._next_insert() is None:
            return event
        inserts = [insert]
        while (insert := self._next_insert()) and len(inserts) < BATCH_RECORDS_MAX:
            inserts.append(insert)
            self._own.popleft()
        return AppRequested(InsertBatch(tuple(inserts)))

    def _next_insert(self) -> Insert | None:
        return _as_insert(self._own[0]) if self._own else None

    def drop_messages(self) -> list[AppRequested]:
        """Empties the inbox; returns the requests of the application."""
        waiting = [event for event in self._own if isinstance(event, AppRequested)]
        self._own.clear()
        self._senders.clear()
        self._turns.clear()
        self.full_senders.clear()
        self.full_broadcasters.clear()
        return waiting

    def _bytes_max(self) -> int:
        return max(BYTES_MIN, BYTES_MAX // (1 + len(self._senders)))


def _as_insert(event: Input) -> Insert | None:
    request = event.request if isinstance(event, AppRequested) else None
    return request if isinstance(request, Insert) else None
