"""The MAC: how nodes take turns on the medium (802.11 DCF).

A node with a frame waits until the medium has been idle for a while, plus a random number of slots
that it counts down only while the medium is idle; it acknowledges what was sent to it, and sends
again, ever more patiently, what was not acknowledged. The count is not kept slot by slot: it is
worked out when the medium's state changes for a node that is waiting.
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
    """The MACs of all nodes on one medium."""

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
        """Until when the medium is reserved, and who heard so."""
        self._receptions: deque[Air] = deque()
        """The last frames to end."""
        self._counting = 0
        """The nodes that count slots, or would if the medium were idle."""
        self.tally = Tally(phy.duration_us)

    def send(self, source: int, to: int, payload_bytes: int, token: object) -> None:
        """Queues a frame; `on_done` says how it ended: sent, exceeded, full or stale."""
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
        """Switches a node's radio on or off; what it had queued is lost with the latter."""
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

    # Waiting for a turn

    def _contend(self, station: Station) -> None:
        """A frame is there where none was: finds out when it may be sent."""
        now_us = self._kernel.now_us
        bit = station.bit
        if self._counting & bit:
            if station.count_from_us is None:
                return  # the medium is busy; the count goes on when it is idle
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
        """How long others may keep the medium, as a node has heard (the NAV)."""
        reservations = self._reservations
        now_us = self._kernel.now_us
        while reservations and reservations[0][0] <= now_us:
            reservations.popleft()
        latest_us = 0
        for until_us, heard in reservations:
            if until_us > latest_us and heard & bit:
                latest_us = until_us
        return latest_us if latest_us > now_us else 0

    def _wary_until_us(self, bit: int) -> int:
        """How long a node whose last frame was garbled leaves the medium to others, who may have
        understood it and be about to answer (EIFS)."""
        for air in reversed(self._receptions):
            if (air.locked | air.maybe) & bit and self._medium.listened(air, bit):
                return 0 if air.got & bit else air.end_us + self._eifs_us
        return 0

    def _take_turn(self, station: Station, at_us: int) -> None:
        station.turn = turn = station.turn + 1
        station.asks_at_us = at_us
        self._kernel.at(at_us, self._on_turn, (station, turn))

    def _freeze(self, waiting: int) -> None:
        """A frame starts: those who sense it stop counting, except those who are so close to their
        turn that they cannot know of it yet."""
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
                self._counting ^= bit  # it had nothing to send, and waited long enough
            station.count_from_us = None
            station.asks_at_us = None
            station.turn += 1

    def _thaw(self, air: Air) -> None:
        """A frame has ended: those for whom the medium is idle now count on."""
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
        """From when on a node may count after a frame that has just ended."""
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
        """The first of the stations that began to count together have come to the end. Mostly one
        of them sends, and the others stop counting; so they share an event."""
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
        """Starts to count down; with a frame waiting, its turn comes at the end."""
        if self._receptions:
            wary_us = self._wary_until_us(station.bit)
            if wary_us > from_us:
                from_us = wary_us
        station.count_from_us = from_us
        if station.queue and not station.sending:
            self._take_turn(station, from_us + station.slots * self._slot_us)

    def _back_off(self, station: Station, from_us: int) -> None:
        """After a transmission: a new random wait, with or without a next frame."""
        station.sending = False
        station.slots = int(self._random() * (station.window + 1))
        station.asks_at_us = None
        self._counting |= station.bit
        if self._medium.busy & station.bit:
            station.count_from_us = None
        else:
            self._count(station, from_us)

    # On the air

    def _on_turn(self, argument: tuple[Station, int]) -> None:
        """A station's count has ended, if nothing came before: it sends."""
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
        """The medium was asked for: the receiver grants it, if it understood and hears nobody."""
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
        """How long a frame and its acknowledgement are on the air."""
        return self._phy.duration_us(frame.bytes) + self._ack_us

    def _taken_off(self, air: Air) -> tuple[Frame, int]:
        """Ends a frame on the air; returns what it was about and who decoded it."""
        decoded = self._medium.end(air)
        self.tally.heard(air.locked | air.maybe & air.clean.likely, air.end_us - air.start_us)
        frame: Frame = air.payload
        return frame, decoded

    def _reserve(self, for_us: int, heard: int) -> None:
        """Those who decoded a frame leave the medium to the answers it calls for (NAV)."""
        self._reservations.append((self._kernel.now_us + for_us, heard))

    def _fresh_frame(self, station: Station) -> Frame | None:
        """The first frame in the queue that is not too old."""
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
        """Those who lost the header, and sense nothing else, count on."""
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
        """No acknowledgement: again, with a wider window, or never."""
        if station.off:
            return
        self._widen(station)
        if station.queue[0].transmissions >= self._config.transmissions_max:
            self._finish(station, "exceeded")
        else:
            self._back_off(station, self._kernel.now_us + self._difs_us)

    def _widen(self, station: Station) -> None:
        """The failures that widen the window are the station's, not one frame's: it stays wide when
        a frame is given up, until something gets through or the next one fails, too."""
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
