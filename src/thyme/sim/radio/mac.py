"""MAC: access to the medium by the 802.11 distributed coordination function (DCF).

Entry points: `Dcf.send` and `Dcf.set_power`. A station with a frame waits for DIFS and a random
back-off, which counts down only while the medium is idle. Receivers acknowledge unicast frames; a
sender without an acknowledgement sends again with a larger contention window. There is no event per
slot: the countdown is computed when the medium becomes busy or idle for a waiting station. `medium`
decides about reception, `station` holds the state of each station. The twin in C, `native/mac.c`,
has the same results.
Clauses: S1, S4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

from thyme.sim.engine.bitsets import members_of
from thyme.sim.engine.kernel import Kernel
from thyme.sim.radio.counters import RadioCounters
from thyme.sim.radio.mac_config import MacConfig
from thyme.sim.radio.medium import Medium, Transmission
from thyme.sim.radio.phy import ACK_BYTES, CTS_BYTES, RTS_BYTES, Phy
from thyme.sim.radio.station import BROADCAST, Frame, QueuedFrame, Station

_CW_MAX: Final = 1023
"""The maximum contention window."""
OnFrameReceived = Callable[[Frame, int, int], None]
OnFrameDone = Callable[[Frame, str], None]


class Dcf:
    """The MACs of all stations on one medium."""

    def __init__(
        self,
        kernel: Kernel,
        phy: Phy,
        medium: Medium,
        nodes: int,
        rng: Random,
        config: MacConfig,
        on_received: OnFrameReceived,
        on_done: OnFrameDone,
    ) -> None:
        self._kernel = kernel
        self._phy = phy
        self._slot_us, self._difs_us, self._sifs_us = phy.slot_us, phy.difs_us, phy.sifs_us
        self._eifs_us, self._preamble_detection_us = phy.eifs_us, phy.preamble_detection_us
        self._ack_timeout_us = phy.sifs_us + phy.slot_us + phy.preamble_us
        self._ack_us = phy.duration_us(ACK_BYTES)
        self._medium = medium
        self._random = rng.random
        self._config = config
        self._on_received = on_received
        self._on_done = on_done
        self._cw_min = phy.cw_min if config.cw_min is None else config.cw_min
        self._stations = [Station(number, self._cw_min) for number in range(nodes)]
        self._nav_entries: deque[tuple[int, int]] = deque()
        """NAV entries: the end of a reservation, and the stations that decoded it (bit set)."""
        self._ended_transmissions: deque[Transmission] = deque()
        """The transmissions that ended within the last EIFS."""
        self._in_backoff = 0
        """The stations in back-off, counting down or frozen, as a bit set."""
        self.counters = RadioCounters(nodes, phy.duration_us)

    def send(self, source: int, to: int, payload_bytes: int, token: object) -> None:
        """Queues a frame; `on_done` gets its outcome: sent, exceeded, full, stale or off."""
        if not BROADCAST <= to < len(self._stations):
            raise IndexError(f"there is no node {to}")
        station = self._stations[source]
        frame = QueuedFrame(station, to, payload_bytes, self._kernel.now_us, token)
        queue = station.queue
        if len(queue) >= self._config.queue_max:
            self._on_done(frame, "full")
            return
        queue.append(frame)
        if len(queue) == 1 and not station.sending:
            self._contend(station)

    def set_power(self, number: int, *, on: bool) -> None:
        """Switches a node's radio on or off; switching it off drops its queued frames."""
        bit = 1 << number
        if on:
            self._medium.off &= ~bit
            return
        self._medium.off |= bit
        self._in_backoff &= ~bit
        station = self._stations[number]
        lost, station.queue = station.queue, deque()
        self._stations[number] = Station(number, self._cw_min)
        station.generation += 1
        station.off = True
        for frame in lost:
            self._on_done(frame, "off")

    # Back-off

    def _contend(self, station: Station) -> None:
        """Starts the access procedure for the first frame in an empty queue."""
        now_us = self._kernel.now_us
        bit = station.bit
        if self._in_backoff & bit:
            if station.countdown_from_us is None:
                return  # the medium is busy; the countdown resumes when it is idle
            ends_us = station.countdown_from_us + station.backoff_slots * self._slot_us
            if ends_us > now_us:
                self._schedule_transmit(station, ends_us)
                return
        else:
            self._in_backoff |= bit
        if self._medium.busy & bit:
            station.backoff_slots = self._draw_slots(station)
            station.countdown_from_us = None
            return
        idle_us = now_us
        station.backoff_slots = 0
        if self._nav_entries:
            nav_us = self._nav_until_us(bit)
            if nav_us > now_us:
                station.backoff_slots = self._draw_slots(station)
                idle_us = nav_us
        self._start_countdown(station, idle_us + self._difs_us)

    def _draw_slots(self, station: Station) -> int:
        return int(self._random() * (station.cw + 1))

    def _nav_until_us(self, bit: int) -> int:
        """The end of the reservation that a station has decoded (its NAV); 0 for none."""
        reservations = self._nav_entries
        now_us = self._kernel.now_us
        while reservations and reservations[0][0] <= now_us:
            reservations.popleft()
        latest_us = 0
        for until_us, stations in reservations:
            if until_us > latest_us and stations & bit:
                latest_us = until_us
        return latest_us if latest_us > now_us else 0

    def _eifs_until_us(self, bit: int) -> int:
        """The end of the EIFS of a station whose last received frame could not be decoded; 0 if
        it was decoded. Another station may have decoded it and may be about to answer."""
        for tx in reversed(self._ended_transmissions):
            if (tx.locked | tx.maybe_locked) & bit and self._medium.was_locked(tx, bit):
                return 0 if tx.decoded & bit else tx.end_us + self._eifs_us
        return 0

    def _schedule_transmit(self, station: Station, at_us: int) -> None:
        station.generation = generation = station.generation + 1
        station.transmit_at_us = at_us
        self._kernel.schedule(at_us, self._on_backoff_end, (station, generation))

    def _freeze_backoff(self, waiting: int) -> None:
        """Freezes the back-off of stations that sense a new frame, except of those that will send
        before they can detect it."""
        now_us = self._kernel.now_us
        slot_us, blind_us = self._slot_us, now_us + self._preamble_detection_us
        while waiting:
            number = waiting.bit_length() - 1
            bit = 1 << number
            waiting ^= bit
            station = self._stations[number]
            from_us, asks_at_us = station.countdown_from_us, station.transmit_at_us
            if from_us is None or (asks_at_us is not None and asks_at_us <= blind_us):
                continue
            passed = (now_us - from_us) // slot_us
            if passed > 0:
                station.backoff_slots = (
                    station.backoff_slots - passed if passed < station.backoff_slots else 0
                )
            if not station.backoff_slots and not station.queue:
                self._in_backoff ^= bit  # the queue is empty and the back-off is over
            station.countdown_from_us = None
            station.transmit_at_us = None
            station.generation += 1

    def _resume_backoff(self, tx: Transmission) -> None:
        """Resumes the back-off of stations for which the medium is idle after a frame."""
        now_us, receptions = self._kernel.now_us, self._ended_transmissions
        oldest_us = now_us - self._eifs_us
        while receptions and receptions[0].end_us < oldest_us:
            receptions.popleft()
        receptions.append(tx)
        waiting = tx.sensing & self._in_backoff & ~self._medium.busy
        backoffs: list[tuple[int, int, Station, int]] = []
        while waiting:
            bit = waiting & -waiting
            waiting ^= bit
            station = self._stations[bit.bit_length() - 1]
            if station.countdown_from_us is not None:
                continue
            station.countdown_from_us = from_us = self._countdown_from_us(tx, bit)
            if station.queue and not station.sending:
                station.generation = generation = station.generation + 1
                station.transmit_at_us = at_us = from_us + station.backoff_slots * self._slot_us
                backoffs.append((at_us, station.number, station, generation))
        if backoffs:
            backoffs.sort(reverse=True)
            self._kernel.schedule(backoffs[-1][0], self._on_group_backoff_end, backoffs)

    def _countdown_from_us(self, tx: Transmission, bit: int) -> int:
        """The instant from which a station counts down after a frame that has just ended."""
        from_us = now_us = self._kernel.now_us
        if self._nav_entries:
            from_us = max(from_us, self._nav_until_us(bit))
        from_us += self._difs_us
        if tx.decoded & bit:
            return from_us
        if tx.locked & bit:
            return max(from_us, now_us + self._eifs_us)
        return max(from_us, self._eifs_until_us(bit))

    def _on_group_backoff_end(self, backoffs: list[tuple[int, int, Station, int]]) -> None:
        """Ends the back-off of the first stations of a group that resumed together. The group
        shares an event, because usually one station sends and the others freeze."""
        now_us = self._kernel.now_us
        while backoffs and backoffs[-1][0] <= now_us:
            _, _, station, generation = backoffs.pop()
            if generation == station.generation:
                self._on_backoff_end((station, generation))
        while backoffs and backoffs[-1][3] != backoffs[-1][2].generation:
            backoffs.pop()
        if backoffs:
            self._kernel.schedule(backoffs[-1][0], self._on_group_backoff_end, backoffs)

    def _start_countdown(self, station: Station, from_us: int) -> None:
        """Starts the countdown; with a frame in the queue, schedules its transmission."""
        if self._ended_transmissions:
            eifs_us = self._eifs_until_us(station.bit)
            if eifs_us > from_us:
                from_us = eifs_us
        station.countdown_from_us = from_us
        if station.queue and not station.sending:
            self._schedule_transmit(station, from_us + station.backoff_slots * self._slot_us)

    def _start_backoff(self, station: Station, from_us: int) -> None:
        """Draws a new back-off after a transmission, whether or not a frame is waiting."""
        station.sending = False
        station.backoff_slots = int(self._random() * (station.cw + 1))
        station.transmit_at_us = None
        self._in_backoff |= station.bit
        if self._medium.busy & station.bit:
            station.countdown_from_us = None
        else:
            self._start_countdown(station, from_us)

    # Transmissions

    def _on_backoff_end(self, argument: tuple[Station, int]) -> None:
        """Sends a station's first frame at the end of its back-off, unless the event is stale."""
        station, generation = argument
        if generation != station.generation or station.transmit_at_us is None:
            return
        station.transmit_at_us = None
        station.sending = True  # so that a send meanwhile does not contend for the medium
        frame = station.queue[0]
        if frame.queued_us < self._kernel.now_us - self._config.lifetime_us:
            fresh = self._first_fresh_frame(station)
            if fresh is None:
                station.sending = False
                return
            frame = fresh
        if self._in_backoff & station.bit:
            self._in_backoff ^= station.bit
        frame.transmissions += 1
        if frame.transmissions > 1:
            self.counters.count_retransmission(station.number)
        if frame.to == BROADCAST:
            self._start_transmission(
                station.number, frame.bytes, "broadcast", frame, self._on_data_end
            )
        elif frame.bytes > self._config.rts_over_bytes:
            self._start_transmission(station.number, RTS_BYTES, "rts", frame, self._on_rts_end)
        else:
            self._send_unicast(frame)

    def _send_unicast(self, frame: QueuedFrame) -> None:
        self._start_transmission(
            frame.station.number, frame.bytes, "unicast", frame, self._on_data_end
        )

    def _on_rts_end(self, tx: Transmission) -> None:
        """Ends an RTS: the receiver answers with a CTS if it decoded it and its NAV is 0."""
        frame, decoded = self._end_transmission(tx)
        rest_us = (
            3 * self._sifs_us + self._phy.duration_us(CTS_BYTES) + self._data_and_ack_us(frame)
        )
        self._set_nav(rest_us, decoded & ~(1 << frame.to))
        self._resume_backoff(tx)
        if decoded >> frame.to & 1 and not self._nav_until_us(1 << frame.to):
            self._kernel.schedule(self._kernel.now_us + self._sifs_us, self._send_cts, frame)
        else:
            self._kernel.schedule(
                self._kernel.now_us + self._ack_timeout_us, self._on_missing_response, frame.station
            )

    def _send_cts(self, frame: QueuedFrame) -> None:
        if self._medium.off >> frame.to & 1:
            self._on_missing_response(frame.station)
        else:
            self._start_transmission(frame.to, CTS_BYTES, "cts", frame, self._on_cts_end)

    def _on_cts_end(self, tx: Transmission) -> None:
        frame, decoded = self._end_transmission(tx)
        station = frame.station
        rest_us = 2 * self._sifs_us + self._data_and_ack_us(frame)
        self._set_nav(rest_us, decoded & ~(1 << station.number))
        self._resume_backoff(tx)
        if decoded >> station.number & 1 and not station.off:
            self._kernel.schedule(self._kernel.now_us + self._sifs_us, self._send_unicast, frame)
        else:
            self._on_missing_response(station)

    def _data_and_ack_us(self, frame: QueuedFrame) -> int:
        """The air time of a frame and of its acknowledgement."""
        return self._phy.duration_us(frame.bytes) + self._ack_us

    def _end_transmission(self, tx: Transmission) -> tuple[QueuedFrame, int]:
        """Ends a transmission; returns its frame and the stations that decoded it."""
        decoded = self._medium.end_transmission(tx)
        self.counters.count_received(
            tx.locked | tx.maybe_locked & tx.clear.header_likely, tx.end_us - tx.start_us
        )
        frame: QueuedFrame = tx.token
        return frame, decoded

    def _set_nav(self, for_us: int, stations: int) -> None:
        """Sets the NAV of the stations that decoded a frame."""
        self._nav_entries.append((self._kernel.now_us + for_us, stations))

    def _first_fresh_frame(self, station: Station) -> QueuedFrame | None:
        """The first frame in the queue that is not stale; drops the stale ones before it."""
        oldest_us = self._kernel.now_us - self._config.lifetime_us
        while station.queue and station.queue[0].queued_us < oldest_us:
            self._on_done(station.queue.popleft(), "stale")
        return station.queue[0] if station.queue else None

    def _start_transmission(
        self,
        source: int,
        size: int,
        kind: str,
        frame: QueuedFrame,
        on_end: Callable[[Transmission], None],
    ) -> None:
        now_us = self._kernel.now_us
        tx = self._medium.start_transmission(source, size, now_us, frame)
        self.counters.count_sent(source, kind, size)
        waiting = tx.sensing & self._in_backoff
        if waiting:
            self._freeze_backoff(waiting)
        if not self._medium.can_defer_locks:
            self._kernel.schedule(tx.payload_start_us, self._on_header_end, tx)
        self._kernel.schedule(tx.end_us, on_end, tx)

    def _on_header_end(self, tx: Transmission) -> None:
        """Resumes the back-off of stations that lost the header and sense no other frame."""
        for number in members_of(self._medium.end_header(tx) & self._in_backoff):
            station = self._stations[number]
            if station.countdown_from_us is None:
                self._start_countdown(station, self._countdown_from_us(tx, station.bit))

    def _on_data_end(self, tx: Transmission) -> None:
        frame, decoded = self._end_transmission(tx)
        now_us = self._kernel.now_us
        if frame.to == BROADCAST:
            self._resume_backoff(tx)
            self._on_received(frame, decoded, now_us)
            self._finish_frame(frame.station, "sent")
            return
        bit = 1 << frame.to
        self._set_nav(self._sifs_us + self._ack_us, decoded & ~bit)
        self._resume_backoff(tx)
        if decoded & bit:
            self._on_received(frame, bit, now_us)
            self._kernel.schedule(now_us + self._sifs_us, self._send_ack, frame)
        else:
            self._kernel.schedule(
                now_us + self._ack_timeout_us, self._on_missing_response, frame.station
            )

    def _send_ack(self, frame: QueuedFrame) -> None:
        if self._medium.off >> frame.to & 1:
            self._on_missing_response(frame.station)
            return
        self._start_transmission(frame.to, ACK_BYTES, "ack", frame, self._on_ack_end)

    def _on_ack_end(self, tx: Transmission) -> None:
        frame, decoded = self._end_transmission(tx)
        self._resume_backoff(tx)
        station = frame.station
        if decoded >> station.number & 1:
            self._finish_frame(station, "sent")
        else:
            self._on_missing_response(station)

    def _on_missing_response(self, station: Station) -> None:
        """Handles a missing CTS or ACK: sends again with a larger window, or gives the frame up."""
        if station.off:
            return
        self._grow_cw(station)
        if station.queue[0].transmissions >= self._config.transmissions_max:
            self._finish_frame(station, "exceeded")
        else:
            self._start_backoff(station, self._kernel.now_us + self._difs_us)

    def _grow_cw(self, station: Station) -> None:
        """Grows the contention window after a failure. Failures count for the station, not for one
        frame: when a frame is given up, the window keeps its size until a frame succeeds or the
        next one fails, too."""
        if station.failures < self._config.transmissions_max:
            station.failures += 1
            station.cw = min(2 * station.cw + 1, _CW_MAX)
        else:
            station.failures = 0
            station.cw = self._cw_min

    def _finish_frame(self, station: Station, outcome: str) -> None:
        if station.off:
            return
        frame = station.queue.popleft()
        if outcome == "sent":
            station.failures = 0
            station.cw = self._cw_min
        self._start_backoff(station, self._kernel.now_us + self._difs_us)
        self._on_done(frame, outcome)
