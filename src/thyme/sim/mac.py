"""MAC: access to the medium by the 802.11 distributed coordination function (DCF).

Entry points: `Dcf.send` and `Dcf.set_power`. A station with a frame waits for DIFS and a random
back-off, which counts down only while the medium is idle. Receivers acknowledge unicast frames; a
sender without an acknowledgement sends again with a larger contention window. There is no event per
slot: the countdown is computed when the medium becomes busy or idle for a waiting station. `medium`
decides about reception, `station` holds the state of each station.
Clauses: S1, S4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from thyme.sim.kernel import Kernel
from thyme.sim.mac_config import MacConfig
from thyme.sim.medium import Air, Medium
from thyme.sim.phy import ACK_BYTES, CTS_BYTES, RTS_BYTES, Phy
from thyme.sim.sets import numbers
from thyme.sim.stations import BROADCAST, Frame, Station
from thyme.sim.tally import Tally

OnReceived = Callable[[Frame, int, int], None]
OnDone = Callable[[Frame, str], None]


class Dcf:
    """The MACs of all stations on one medium."""

    def __init__(
        self,
        kernel: Kernel,
        phy: Phy,
        medium: Medium,
        size: int,
        rng: Random,
        config: MacConfig,
        on_received: OnReceived,
        on_done: OnDone,
    ) -> None:
        self._kernel = kernel
        self._phy = phy
        self._slot_us, self._difs_us, self._sifs_us = phy.slot_us, phy.difs_us, phy.sifs_us
        self._eifs_us, self._detect_us = phy.eifs_us, phy.detect_us
        self._timeout_us = phy.sifs_us + phy.slot_us + phy.preamble_us
        self._ack_us = phy.duration_us(ACK_BYTES)
        self._medium = medium
        self._random = rng.random
        self._config = config
        self._on_received = on_received
        self._on_done = on_done
        self._window_min = phy.window_min if config.window_min is None else config.window_min
        self._stations = [Station(number, self._window_min) for number in range(size)]
        self._reservations: deque[tuple[int, int]] = deque()
        """NAV entries: the end of a reservation, and the stations that decoded it (bit set)."""
        self._receptions: deque[Air] = deque()
        """The transmissions that ended within the last EIFS."""
        self._counting = 0
        """The stations in back-off, counting down or frozen, as a bit set."""
        self.tally = Tally(phy.duration_us)

    def send(self, source: int, to: int, payload_bytes: int, token: object) -> None:
        """Queues a frame; `on_done` gets its outcome: sent, exceeded, full, stale or off."""
        station = self._stations[source]
        frame = Frame(station, to, payload_bytes, self._kernel.now_us, token)
        queue = station.queue
        if len(queue) >= self._config.queue_max:
            self._on_done(frame, "full")
            return
        queue.append(frame)
        if len(queue) == 1 and not station.sending:
            self._contend(station)

    def switch(self, number: int, *, on: bool) -> None:
        """Switches a node's radio on or off; switching it off drops its queued frames."""
        bit = 1 << number
        if on:
            self._medium.off &= ~bit
            return
        self._medium.off |= bit
        self._counting &= ~bit
        station = self._stations[number]
        lost, self._stations[number] = station.queue, Station(number, self._window_min)
        station.turn += 1
        station.off = True
        for frame in lost:
            self._on_done(frame, "off")

    # Back-off

    def _contend(self, station: Station) -> None:
        """Starts the access procedure for the first frame in an empty queue."""
        now_us = self._kernel.now_us
        bit = station.bit
        if self._counting & bit:
            if station.count_from_us is None:
                return  # the medium is busy; the countdown resumes when it is idle
            ends_us = station.count_from_us + station.slots * self._slot_us
            if ends_us > now_us:
                self._take_turn(station, ends_us)
                return
        else:
            self._counting |= bit
        if self._medium.busy & bit:
            station.slots = self._draw(station)
            station.count_from_us = None
            return
        idle_us = now_us
        station.slots = 0
        if self._reservations:
            reserved_us = self._reserved_until_us(bit)
            if reserved_us > now_us:
                station.slots = self._draw(station)
                idle_us = reserved_us
        self._count(station, idle_us + self._difs_us)

    def _draw(self, station: Station) -> int:
        return int(self._random() * (station.window + 1))

    def _reserved_until_us(self, bit: int) -> int:
        """The end of the reservation that a station has decoded (its NAV); 0 for none."""
        reservations = self._reservations
        now_us = self._kernel.now_us
        while reservations and reservations[0][0] <= now_us:
            reservations.popleft()
        latest_us = 0
        for until_us, stations in reservations:
            if until_us > latest_us and stations & bit:
                latest_us = until_us
        return latest_us if latest_us > now_us else 0

    def _wary_until_us(self, bit: int) -> int:
        """The end of the EIFS of a station whose last received frame could not be decoded; 0 if
        it was decoded. Another station may have decoded it and may be about to answer."""
        for air in reversed(self._receptions):
            if (air.locked | air.maybe) & bit and self._medium.listened(air, bit):
                return 0 if air.got & bit else air.end_us + self._eifs_us
        return 0

    def _take_turn(self, station: Station, at_us: int) -> None:
        station.turn = turn = station.turn + 1
        station.asks_at_us = at_us
        self._kernel.at(at_us, self._on_turn, (station, turn))

    def _freeze(self, waiting: int) -> None:
        """Freezes the back-off of stations that sense a new frame, except of those that will send
        before they can detect it."""
        now_us = self._kernel.now_us
        slot_us, blind_us = self._slot_us, now_us + self._detect_us
        while waiting:
            number = waiting.bit_length() - 1
            bit = 1 << number
            waiting ^= bit
            station = self._stations[number]
            from_us, asks_at_us = station.count_from_us, station.asks_at_us
            if from_us is None or (asks_at_us is not None and asks_at_us <= blind_us):
                continue
            passed = (now_us - from_us) // slot_us
            if passed > 0:
                station.slots = station.slots - passed if passed < station.slots else 0
            if not station.slots and not station.queue:
                self._counting ^= bit  # the queue is empty and the back-off is over
            station.count_from_us = None
            station.asks_at_us = None
            station.turn += 1

    def _thaw(self, air: Air) -> None:
        """Resumes the back-off of stations for which the medium is idle after a frame."""
        now_us, receptions = self._kernel.now_us, self._receptions
        oldest_us = now_us - self._eifs_us
        while receptions and receptions[0].end_us < oldest_us:
            receptions.popleft()
        receptions.append(air)
        waiting = air.sense & self._counting & ~self._medium.busy
        turns: list[tuple[int, int, Station, int]] = []
        while waiting:
            bit = waiting & -waiting
            waiting ^= bit
            station = self._stations[bit.bit_length() - 1]
            if station.count_from_us is not None:
                continue
            station.count_from_us = from_us = self._idle_from_us(air, bit)
            if station.queue and not station.sending:
                station.turn = turn = station.turn + 1
                station.asks_at_us = at_us = from_us + station.slots * self._slot_us
                turns.append((at_us, station.number, station, turn))
        if turns:
            turns.sort(reverse=True)
            self._kernel.at(turns[-1][0], self._on_turns, turns)

    def _idle_from_us(self, air: Air, bit: int) -> int:
        """The instant from which a station counts down after a frame that has just ended."""
        from_us = now_us = self._kernel.now_us
        if self._reservations:
            from_us = max(from_us, self._reserved_until_us(bit))
        from_us += self._difs_us
        if air.got & bit:
            return from_us
        if air.locked & bit:
            return max(from_us, now_us + self._eifs_us)
        return max(from_us, self._wary_until_us(bit))

    def _on_turns(self, turns: list[tuple[int, int, Station, int]]) -> None:
        """Ends the back-off of the first stations of a group that resumed together. The group
        shares an event, because usually one station sends and the others freeze."""
        now_us = self._kernel.now_us
        while turns and turns[-1][0] <= now_us:
            _, _, station, turn = turns.pop()
            if turn == station.turn:
                self._on_turn((station, turn))
        while turns and turns[-1][3] != turns[-1][2].turn:
            turns.pop()
        if turns:
            self._kernel.at(turns[-1][0], self._on_turns, turns)

    def _count(self, station: Station, from_us: int) -> None:
        """Starts the countdown; with a frame in the queue, schedules its transmission."""
        if self._receptions:
            wary_us = self._wary_until_us(station.bit)
            if wary_us > from_us:
                from_us = wary_us
        station.count_from_us = from_us
        if station.queue and not station.sending:
            self._take_turn(station, from_us + station.slots * self._slot_us)

    def _back_off(self, station: Station, from_us: int) -> None:
        """Draws a new back-off after a transmission, whether or not a frame is waiting."""
        station.sending = False
        station.slots = int(self._random() * (station.window + 1))
        station.asks_at_us = None
        self._counting |= station.bit
        if self._medium.busy & station.bit:
            station.count_from_us = None
        else:
            self._count(station, from_us)

    # Transmissions

    def _on_turn(self, argument: tuple[Station, int]) -> None:
        """Sends a station's first frame at the end of its back-off, unless the event is stale."""
        station, turn = argument
        if turn != station.turn or station.asks_at_us is None:
            return
        station.asks_at_us = None
        frame = station.queue[0]
        if frame.queued_us < self._kernel.now_us - self._config.lifetime_us:
            fresh = self._fresh_frame(station)
            if fresh is None:
                return
            frame = fresh
        if self._counting & station.bit:
            self._counting ^= station.bit
        station.sending = True
        frame.transmissions += 1
        if frame.transmissions > 1:
            self.tally.retransmissions[station.number] += 1
        if frame.to == BROADCAST:
            self._put_on_air(station.number, frame.bytes, "broadcast", frame, self._on_data_end)
        elif frame.bytes > self._config.rts_over_bytes:
            self._put_on_air(station.number, RTS_BYTES, "rts", frame, self._on_rts_end)
        else:
            self._send_unicast(frame)

    def _send_unicast(self, frame: Frame) -> None:
        self._put_on_air(frame.station.number, frame.bytes, "unicast", frame, self._on_data_end)

    def _on_rts_end(self, air: Air) -> None:
        """Ends an RTS: the receiver answers with a CTS if it decoded it and its NAV is 0."""
        frame, decoded = self._taken_off(air)
        rest_us = 3 * self._sifs_us + self._phy.duration_us(CTS_BYTES) + self._rest_us(frame)
        self._reserve(rest_us, decoded & ~(1 << frame.to))
        self._thaw(air)
        if decoded >> frame.to & 1 and not self._reserved_until_us(1 << frame.to):
            self._kernel.at(self._kernel.now_us + self._sifs_us, self._grant, frame)
        else:
            self._kernel.at(self._kernel.now_us + self._timeout_us, self._on_silence, frame.station)

    def _grant(self, frame: Frame) -> None:
        if self._medium.off >> frame.to & 1:
            self._on_silence(frame.station)
        else:
            self._put_on_air(frame.to, CTS_BYTES, "cts", frame, self._on_cts_end)

    def _on_cts_end(self, air: Air) -> None:
        frame, decoded = self._taken_off(air)
        station = frame.station
        rest_us = 2 * self._sifs_us + self._rest_us(frame)
        self._reserve(rest_us, decoded & ~(1 << station.number))
        self._thaw(air)
        if decoded >> station.number & 1 and not station.off:
            self._kernel.at(self._kernel.now_us + self._sifs_us, self._send_unicast, frame)
        else:
            self._on_silence(station)

    def _rest_us(self, frame: Frame) -> int:
        """The air time of a frame and of its acknowledgement."""
        return self._phy.duration_us(frame.bytes) + self._ack_us

    def _taken_off(self, air: Air) -> tuple[Frame, int]:
        """Ends a transmission; returns its frame and the stations that decoded it."""
        decoded = self._medium.end(air)
        self.tally.heard(air.locked | air.maybe & air.clean.likely, air.end_us - air.start_us)
        frame: Frame = air.payload
        return frame, decoded

    def _reserve(self, for_us: int, heard: int) -> None:
        """Sets the NAV of the stations that decoded a frame."""
        self._reservations.append((self._kernel.now_us + for_us, heard))

    def _fresh_frame(self, station: Station) -> Frame | None:
        """The first frame in the queue that is not stale; drops the stale ones before it."""
        oldest_us = self._kernel.now_us - self._config.lifetime_us
        while station.queue and station.queue[0].queued_us < oldest_us:
            self._on_done(station.queue.popleft(), "stale")
        return station.queue[0] if station.queue else None

    def _put_on_air(
        self, source: int, size: int, kind: str, frame: Frame, on_end: Callable[[Air], None]
    ) -> None:
        now_us = self._kernel.now_us
        air = self._medium.start(source, size, now_us, frame)
        self.tally.sent(source, kind, size)
        waiting = air.sense & self._counting
        if waiting:
            self._freeze(waiting)
        if not self._medium.patient:
            self._kernel.at(air.payload_us, self._on_header_end, air)
        self._kernel.at(air.end_us, on_end, air)

    def _on_header_end(self, air: Air) -> None:
        """Resumes the back-off of stations that lost the header and sense no other frame."""
        for number in numbers(self._medium.end_header(air) & self._counting):
            station = self._stations[number]
            if station.count_from_us is None:
                self._count(station, self._idle_from_us(air, station.bit))

    def _on_data_end(self, air: Air) -> None:
        frame, decoded = self._taken_off(air)
        now_us = self._kernel.now_us
        if frame.to == BROADCAST:
            self._thaw(air)
            self._on_received(frame, decoded, now_us)
            self._finish(frame.station, "sent")
            return
        bit = 1 << frame.to
        self._reserve(self._sifs_us + self._ack_us, decoded & ~bit)
        self._thaw(air)
        if decoded & bit:
            self._on_received(frame, bit, now_us)
            self._kernel.at(now_us + self._sifs_us, self._acknowledge, frame)
        else:
            self._kernel.at(now_us + self._timeout_us, self._on_silence, frame.station)

    def _acknowledge(self, frame: Frame) -> None:
        if self._medium.off >> frame.to & 1:
            self._on_silence(frame.station)
            return
        self._put_on_air(frame.to, ACK_BYTES, "ack", frame, self._on_ack_end)

    def _on_ack_end(self, air: Air) -> None:
        frame, decoded = self._taken_off(air)
        self._thaw(air)
        station = frame.station
        if decoded >> station.number & 1:
            self._finish(station, "sent")
        else:
            self._on_silence(station)

    def _on_silence(self, station: Station) -> None:
        """Handles a missing CTS or ACK: sends again with a larger window, or gives the frame up."""
        if station.off:
            return
        self._widen(station)
        if station.queue[0].transmissions >= self._config.transmissions_max:
            self._finish(station, "exceeded")
        else:
            self._back_off(station, self._kernel.now_us + self._difs_us)

    def _widen(self, station: Station) -> None:
        """Grows the contention window after a failure. Failures count for the station, not for one
        frame: when a frame is given up, the window keeps its size until a frame succeeds or the
        next one fails, too."""
        config = self._config
        if station.failures < config.transmissions_max:
            station.failures += 1
            station.window = min(2 * station.window + 1, config.window_max)
        else:
            station.failures = 0
            station.window = self._window_min

    def _finish(self, station: Station, how: str) -> None:
        if station.off:
            return
        frame = station.queue.popleft()
        if how == "sent":
            station.failures = 0
            station.window = self._window_min
        self._back_off(station, self._kernel.now_us + self._difs_us)
        self._on_done(frame, how)
