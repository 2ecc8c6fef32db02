"""Send window: congestion-controlled, reliable sending of fragmented messages to one neighbour.

The window limits the number of fragments in flight. It grows with each acknowledged fragment and
halves after a loss. Without queueing delay a loss is taken for a radio error, and the window stays
at or above its initial size. A fragment without an ack is retransmitted; a message fails once one
of its fragments was sent too often.
Entry points: `SendWindow.enqueue`, `due_fragments`, `on_ack`. The receiving side is `reassembly`.
Clauses: M25, D10.
"""

from __future__ import annotations

from collections import deque

from thyme.live.datagrams import BODY_BYTES_MAX, MORE_BITS, Got, Part
from thyme.live.terms import Pace


class _Letter:
    """A message that is not acknowledged yet."""

    __slots__ = ("below", "body", "count", "flights", "left", "next", "number", "token")

    def __init__(self, number: int, body: bytes, token: object) -> None:
        self.number = number
        self.body = body
        self.token = token
        self.count = max(1, -(-len(body) // BODY_BYTES_MAX))
        self.next = 0
        """Index of the next fragment that was never sent."""
        self.left = self.count
        """Number of fragments that are not acknowledged."""
        self.below = 0
        """All fragments below this index are acknowledged."""
        self.flights: dict[int, _Flight] = {}
        """Fragments that were sent and are not acknowledged, by index."""

    def part(self, index: int) -> Part:
        start = index * BODY_BYTES_MAX
        return Part(self.number, index, self.count, self.body[start : start + BODY_BYTES_MAX])

    def came(self, got: Got) -> list[_Flight]:
        """Removes and returns the fragments that an ack acknowledges."""
        below = max(self.below, min(got.below, self.count))
        more = [got.below + offset for offset in range(MORE_BITS) if got.more >> offset & 1]
        indexes = [*range(self.below, below), *more]
        self.below = below
        found = [self.flights.pop(index) for index in indexes if index in self.flights]
        self.left -= len(found)
        return found


class _Flight:
    """A fragment that was sent and is not acknowledged."""

    __slots__ = ("index", "letter", "order", "sent_us", "tries")

    def __init__(self, letter: _Letter, index: int) -> None:
        self.letter = letter
        self.index = index
        self.tries = 0
        self.order = 0
        """Serial number of the latest transmission, over all messages."""
        self.sent_us = 0


class Outgoing:
    """Sends messages to one neighbour."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._next_number = 0
        self._next_order = 0
        self._letters: dict[int, _Letter] = {}
        self._unsent: deque[_Letter] = deque()
        self._under_way: dict[int, _Flight] = {}
        """Fragments in flight by send order, so the oldest transmission is first."""
        self._lost: deque[_Flight] = deque()
        self._window = float(pace.window_first)
        self._steep = True
        """Whether the window doubles with each round trip; ends with the first loss."""
        self._calm_until_us = 0
        self._trip_us: float | None = None
        self._trip_us_least = pace.wait_max_us
        self._swing_us = 0.0
        self._wait_us = pace.wait_first_us
        self._failed: list[object] = []

    @property
    def busy(self) -> bool:
        """Whether a message is not acknowledged yet."""
        return bool(self._letters)

    def put(self, body: bytes, token: object) -> bool:
        """Queues a message; returns False if too many are pending."""
        if len(self._letters) >= self._pace.waiting_max:
            return False
        letter = _Letter(self._next_number, body, token)
        self._next_number += 1
        self._letters[letter.number] = letter
        self._unsent.append(letter)
        return True

    def due(self, now_us: int) -> list[Part]:
        """The fragments to send now: lost ones first."""
        self._miss(now_us)
        parts: list[Part] = []
        while self._lost and len(self._under_way) < self._window:
            flight = self._lost.popleft()
            if flight.letter.flights.get(flight.index) is flight:
                parts.append(self._send(flight, now_us))
        while self._unsent and len(self._under_way) < self._window:
            letter = self._unsent[0]
            flight = letter.flights[letter.next] = _Flight(letter, letter.next)
            parts.append(self._send(flight, now_us))
            letter.next += 1
            if letter.next == letter.count:
                self._unsent.popleft()
        return parts

    def next_us(self) -> int | None:
        """The next retransmission timeout; None if no fragment is in flight."""
        if not self._under_way:
            return None
        return next(iter(self._under_way.values())).sent_us + self._wait_us

    def on_got(self, got: Got, now_us: int) -> None:
        """Processes an ack from the neighbour."""
        letter = self._letters.get(got.number)
        if letter is None:
            return
        acked = letter.came(got)
        latest = -1
        for flight in acked:
            if self._under_way.pop(flight.order, None) is not None:
                latest = max(latest, flight.order)
            self._on_came(flight, now_us)
        if not letter.left:
            del self._letters[letter.number]
        self._skip(latest, now_us)

    def failures(self) -> list[object]:
        """Returns and clears the tokens of the messages that failed."""
        failed, self._failed = self._failed, []
        return failed

    def give_up(self) -> None:
        """Fails all pending messages, since the neighbour is gone."""
        for letter in list(self._letters.values()):
            self._give_up(letter)

    def _send(self, flight: _Flight, now_us: int) -> Part:
        flight.tries += 1
        flight.sent_us = now_us
        flight.order = self._next_order
        self._next_order += 1
        self._under_way[flight.order] = flight
        return flight.letter.part(flight.index)

    def _miss(self, now_us: int) -> None:
        """Marks fragments as lost whose retransmission timeout has passed."""
        timed_out = []
        for flight in self._under_way.values():
            if flight.sent_us + self._wait_us > now_us:
                break
            timed_out.append(flight)
        if timed_out:
            self._lose(timed_out, now_us)
            self._wait_us = min(2 * self._wait_us, self._pace.wait_max_us)

    def _skip(self, order: int, now_us: int) -> None:
        """Marks fragments as lost that were sent well before an acknowledged one."""
        skipped = []
        for flight in self._under_way.values():
            if flight.order + self._pace.skipped_max >= order:
                break
            skipped.append(flight)
        if skipped:
            self._lose(skipped, now_us)

    def _lose(self, flights: list[_Flight], now_us: int) -> None:
        for flight in flights:
            if self._under_way.pop(flight.order, None) is None:
                continue  # its message failed because of another fragment
            if flight.tries >= self._pace.tries_max:
                self._give_up(flight.letter)
            else:
                self._lost.append(flight)
        self._narrow(now_us)

    def _give_up(self, letter: _Letter) -> None:
        del self._letters[letter.number]
        if letter.next < letter.count:
            self._unsent.remove(letter)
        for flight in letter.flights.values():
            self._under_way.pop(flight.order, None)
        letter.flights.clear()
        self._failed.append(letter.token)

    def _on_came(self, flight: _Flight, now_us: int) -> None:
        """Grows the window and updates the round-trip time after a fragment was acknowledged."""
        pace = self._pace
        self._window += 1.0 if self._steep else 1.0 / self._window
        self._window = min(self._window, pace.window_max)
        if flight.tries > 1:
            return  # the ack may belong to an earlier transmission (Karn's algorithm)
        trip_us = now_us - flight.sent_us
        self._trip_us_least = min(self._trip_us_least, trip_us)
        if self._trip_us is None:
            self._trip_us, self._swing_us = float(trip_us), trip_us / 2
        else:
            self._swing_us += (abs(trip_us - self._trip_us) - self._swing_us) / 4
            self._trip_us += (trip_us - self._trip_us) / 8
        wait_us = round(self._trip_us + 4 * self._swing_us)
        self._wait_us = max(pace.wait_min_us, min(wait_us, pace.wait_max_us))

    def _narrow(self, now_us: int) -> None:
        """Halves the window, at most once per round trip."""
        if now_us >= self._calm_until_us:
            self._steep = False
            smallest = self._pace.window_min if self._crowded() else self._pace.window_first
            self._window = max(smallest, self._window / 2)
            self._calm_until_us = now_us + round(self._trip_us or self._wait_us)

    def _crowded(self) -> bool:
        """Whether fragments wait in queues on the path; assumed until a round trip was measured."""
        trip_us = self._trip_us
        return trip_us is None or trip_us > self._trip_us_least + self._pace.queueing_us
