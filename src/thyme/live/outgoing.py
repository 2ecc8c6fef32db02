"""Outgoing: messages on their way to one neighbour, in parts, until it has them.

As many parts are under way as the neighbour and the link take: the number grows while parts come
through and halves when one is lost. While round trips stay short nothing is queueing: what is lost
then was lost by chance, as on a radio, and the number does not fall below the one that is begun
with. A part of which no word comes is sent again; a message that has a part sent too often is given
up.
Clauses: M25, D10.
"""

from __future__ import annotations

from collections import deque

from thyme.live.datagrams import BODY_BYTES_MAX, MORE_BITS, Got, Part
from thyme.live.terms import Pace


class _Letter:
    """A message being sent."""

    __slots__ = ("below", "body", "count", "flights", "left", "next", "number", "token")

    def __init__(self, number: int, body: bytes, token: object) -> None:
        self.number = number
        self.body = body
        self.token = token
        self.count = max(1, -(-len(body) // BODY_BYTES_MAX))
        self.next = 0
        """The part to be sent next for the first time."""
        self.left = self.count
        """How many parts have not come yet."""
        self.below = 0
        """All parts below this one have come."""
        self.flights: dict[int, _Flight] = {}
        """The parts that were sent and have not come, by index."""

    def part(self, index: int) -> Part:
        start = index * BODY_BYTES_MAX
        return Part(self.number, index, self.count, self.body[start : start + BODY_BYTES_MAX])

    def came(self, got: Got) -> list[_Flight]:
        """Takes out the parts that have come, as the neighbour says."""
        below = max(self.below, min(got.below, self.count))
        more = [got.below + place for place in range(MORE_BITS) if got.more >> place & 1]
        indexes = [*range(self.below, below), *more]
        self.below = below
        found = [self.flights.pop(index) for index in indexes if index in self.flights]
        self.left -= len(found)
        return found


class _Flight:
    """A part under way."""

    __slots__ = ("index", "letter", "order", "sent_us", "tries")

    def __init__(self, letter: _Letter, index: int) -> None:
        self.letter = letter
        self.index = index
        self.tries = 0
        self.order = 0
        """How many parts were sent before, of any message; tells one try from the next."""
        self.sent_us = 0


class Outgoing:
    """What one neighbour is to get."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._next_number = 0
        self._next_order = 0
        self._letters: dict[int, _Letter] = {}
        self._unsent: deque[_Letter] = deque()
        self._under_way: dict[int, _Flight] = {}
        """By order, so the one sent longest ago is first."""
        self._lost: deque[_Flight] = deque()
        self._window = float(pace.window_first)
        self._steep = True
        """Whether the window doubles with each round trip: until the first loss."""
        self._calm_until_us = 0
        self._trip_us: float | None = None
        self._trip_us_least = pace.wait_max_us
        self._swing_us = 0.0
        self._wait_us = pace.wait_first_us
        self._failed: list[object] = []

    @property
    def busy(self) -> bool:
        """Whether something has not come yet."""
        return bool(self._letters)

    def put(self, body: bytes, token: object) -> bool:
        """Takes a message to send, unless too many wait already."""
        if len(self._letters) >= self._pace.waiting_max:
            return False
        letter = _Letter(self._next_number, body, token)
        self._next_number += 1
        self._letters[letter.number] = letter
        self._unsent.append(letter)
        return True

    def due(self, now_us: int) -> list[Part]:
        """The parts to send now: lost ones first."""
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
        """When `due` has something to do unless word comes before."""
        if not self._under_way:
            return None
        return next(iter(self._under_way.values())).sent_us + self._wait_us

    def on_got(self, got: Got, now_us: int) -> None:
        """The neighbour says what it has of a message."""
        letter = self._letters.get(got.number)
        if letter is None:
            return
        came = letter.came(got)
        latest = -1
        for flight in came:
            if self._under_way.pop(flight.order, None) is not None:
                latest = max(latest, flight.order)
            self._on_came(flight, now_us)
        if not letter.left:
            del self._letters[letter.number]
        self._skip(latest, now_us)

    def failures(self) -> list[object]:
        """What was given up since this was last asked."""
        failed, self._failed = self._failed, []
        return failed

    def give_up(self) -> None:
        """The neighbour is gone: whatever was for it has failed."""
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
        """Finds the parts of which word should have come."""
        missed = []
        for flight in self._under_way.values():
            if flight.sent_us + self._wait_us > now_us:
                break
            missed.append(flight)
        if missed:
            self._lose(missed, now_us)
            self._wait_us = min(2 * self._wait_us, self._pace.wait_max_us)

    def _skip(self, order: int, now_us: int) -> None:
        """Parts sent well before one that came are lost."""
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
                continue  # given up with another part of its message
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
        """Learns from a part that came: the window may grow, and how long a round trip takes."""
        pace = self._pace
        self._window += 1.0 if self._steep else 1.0 / self._window
        self._window = min(self._window, pace.window_max)
        if flight.tries > 1:
            return  # which of the tries it was, nobody can tell
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
        """Once for each round trip, however many are lost in it."""
        if now_us >= self._calm_until_us:
            self._steep = False
            least = self._pace.window_min if self._crowded() else self._pace.window_first
            self._window = max(least, self._window / 2)
            self._calm_until_us = now_us + round(self._trip_us or self._wait_us)

    def _crowded(self) -> bool:
        """Whether what is under way waits in queues; so it seems until a round trip was seen."""
        trip_us = self._trip_us
        return trip_us is None or trip_us > self._trip_us_least + self._pace.queueing_us
