"""Send window: congestion-controlled, reliable sending of fragmented messages to one neighbour.

The window limits the number of fragments in flight. It grows with each acknowledged fragment and
halves after a loss. Without queueing delay a loss is taken for a radio error, and the window stays
at or above its initial size. A fragment without an ack is retransmitted; a message fails once one
of its fragments was sent too often. Large messages are paced, since a neighbour drops what exceeds
its rate limit (`link_config.RateLimit`). Short messages that wait together share a packet, if the
neighbour reads such packets: it is numbered, acknowledged and retransmitted as one.
Entry points: `SendWindow.enqueue`, `due_fragments`, `on_ack`. The receiving side is `reassembly`.
Clauses: M25, D10.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from thyme.transport.datagrams import FRAGMENT_BYTES_MAX, SELECTIVE_ACK_BITS, Fragment, FragmentAck
from thyme.wire import codec

_MS_US: Final = 1_000
_WINDOW_INITIAL: Final = 32
_WINDOW_MIN: Final = 4
_WINDOW_MAX: Final = 512
"""Number of fragments in flight; the minimum applies while the link is queueing."""
_QUEUEING_DELAY_US: Final = 10 * _MS_US
"""The link is queueing if a round trip takes this much longer than the shortest one; sending the
initial window takes about this long at 30 Mbit/s."""
_RTO_US_INITIAL: Final = 100 * _MS_US
_RTO_US_MIN: Final = 20 * _MS_US
_RTO_US_MAX: Final = 1_000 * _MS_US
"""Retransmission timeout, computed from measured round trips within these limits."""
_PACE_BYTES_PER_SECOND: Final = 20_000_000
_PACE_BURST_BYTES: Final = 2_000_000
"""Maximum rate of sending, on average and in one burst; below the rate limit of the receiver."""
_PACE_STEP_BYTES: Final = 40_000
"""After a burst, so many bytes are sent at once: every 2 ms."""
_TRIES_MAX: Final = 8
_RETRANSMISSIONS_MIN: Final = 8
"""So many lost fragments are sent even if the window is full. It may be full of fragments that were
received and cannot be acknowledged, being too far beyond a lost one."""
_REORDER_THRESHOLD: Final = 3
"""A fragment is lost once a fragment sent more than this many later was acknowledged."""
MESSAGES_MAX: Final = 1_000
"""Maximum number of unacknowledged messages to one neighbour."""


_JOINED_BYTES_MAX: Final = 4 * FRAGMENT_BYTES_MAX - 4
"""Messages of so many bytes together share a packet: four fragments, which have one ack."""


class _OutgoingPacket:
    """One or more messages that are not acknowledged yet."""

    __slots__ = (
        "acked_below",
        "body",
        "fragment_count",
        "in_flight",
        "next_index",
        "number",
        "tokens",
        "unacked_count",
    )

    def __init__(self, number: int, body: bytes, tokens: list[object]) -> None:
        self.number = number
        self.body = body
        self.tokens = tokens
        """One per message."""
        self.fragment_count = max(1, -(-len(body) // FRAGMENT_BYTES_MAX))
        self.next_index = 0
        """Index of the next fragment that was never sent."""
        self.unacked_count = self.fragment_count
        """Number of fragments that are not acknowledged."""
        self.acked_below = 0
        """All fragments below this index are acknowledged."""
        self.in_flight: dict[int, _InFlightFragment] = {}
        """Fragments that were sent and are not acknowledged, by index."""

    def make_fragment(self, index: int) -> Fragment:
        start = index * FRAGMENT_BYTES_MAX
        return Fragment(
            self.number, index, self.fragment_count, self.body[start : start + FRAGMENT_BYTES_MAX]
        )

    def apply_ack(self, ack: FragmentAck) -> list[_InFlightFragment]:
        """Removes and returns the fragments that an ack acknowledges."""
        below = max(self.acked_below, min(ack.received_below, self.fragment_count))
        indexes = list(range(self.acked_below, below))
        if ack.received_bits:
            indexes += [
                ack.received_below + offset
                for offset in range(SELECTIVE_ACK_BITS)
                if ack.received_bits >> offset & 1
            ]
        self.acked_below = below
        acked = [self.in_flight.pop(index) for index in indexes if index in self.in_flight]
        self.unacked_count -= len(acked)
        return acked


class _InFlightFragment:
    """A fragment that was sent and is not acknowledged."""

    __slots__ = ("index", "packet", "send_order", "sent_us", "tries")

    def __init__(self, packet: _OutgoingPacket, index: int) -> None:
        self.packet = packet
        self.index = index
        self.tries = 0
        self.send_order = 0
        """Serial number of the latest transmission, over all packets."""
        self.sent_us = 0


class SendWindow:
    """Sends messages to one neighbour."""

    def __init__(self, first_number: int = 0) -> None:
        """`first_number` is higher than the numbers of an earlier window to the same neighbour."""
        self.next_number = first_number
        """Number of the next packet."""
        self._next_send_order = 0
        self._message_count = 0
        """Number of messages that are not acknowledged."""
        self._bodies: list[bytes] = []
        self._tokens: list[object] = []
        """Encoded messages that are in no packet yet, and their tokens."""
        self._packets: dict[int, _OutgoingPacket] = {}
        self._unsent: deque[_OutgoingPacket] = deque()
        self._in_flight: dict[int, _InFlightFragment] = {}
        """Fragments in flight by send order, so the oldest transmission is first."""
        self._lost: deque[_InFlightFragment] = deque()
        self._window_size = float(_WINDOW_INITIAL)
        self._slow_start = True
        """Whether the window doubles with each round trip; ends with the first loss."""
        self._recovery_until_us = 0
        self._rtt_us: float | None = None
        self._rtt_us_min = _RTO_US_MAX
        self._rtt_variation_us = 0.0
        self._rto_us = _RTO_US_INITIAL
        self._backoff_until_us = 0
        self._failed: list[object] = []
        self._pace_bytes = float(_PACE_BURST_BYTES)
        """Number of bytes that may be sent at `_pace_us`."""
        self._pace_us = 0
        self._paced_until_us: int | None = None
        """When sending may go on, if it was stopped by the pace."""

    @property
    def has_pending(self) -> bool:
        """Whether a message is not acknowledged yet."""
        return self._message_count > 0

    def enqueue(self, body: bytes, token: object) -> bool:
        """Queues an encoded message; returns False if too many are pending."""
        if self._message_count >= MESSAGES_MAX:
            return False
        self._message_count += 1
        self._bodies.append(body)
        self._tokens.append(token)
        return True

    def due_fragments(self, now_us: int, version: int) -> list[Fragment]:
        """The fragments to send now: lost ones first. New packets have the given version."""
        if self._bodies:
            self._make_packets(version)
        self._detect_timeouts(now_us)
        fragments: list[Fragment] = []
        if not self._may_send(now_us):
            return fragments
        window_for_lost = self._window_size
        if not self._is_queueing():
            window_for_lost += _RETRANSMISSIONS_MIN
        while self._lost and len(self._in_flight) < window_for_lost and self._pace_bytes > 0:
            fragment = self._lost.popleft()
            if fragment.packet.in_flight.get(fragment.index) is fragment:
                fragments.append(self._mark_sent(fragment, now_us))
        while self._unsent and len(self._in_flight) < self._window_size and self._pace_bytes > 0:
            packet = self._unsent[0]
            fragment = packet.in_flight[packet.next_index] = _InFlightFragment(
                packet, packet.next_index
            )
            fragments.append(self._mark_sent(fragment, now_us))
            packet.next_index += 1
            if packet.next_index == packet.fragment_count:
                self._unsent.popleft()
        if self._pace_bytes <= 0:
            missing = _PACE_STEP_BYTES - self._pace_bytes
            self._paced_until_us = now_us + int(missing * 1_000_000 / _PACE_BYTES_PER_SECOND)
        return fragments

    def next_due_us(self) -> int | None:
        """When `due_fragments` has something to do: at the next retransmission timeout, or when the
        pace allows to send; None if nothing is pending."""
        timeout_us: int | None = None
        if self._in_flight:
            timeout_us = next(iter(self._in_flight.values())).sent_us + self._rto_us
        paced_us = self._paced_until_us if self._lost or self._unsent else None
        if timeout_us is None or paced_us is None:
            return paced_us if timeout_us is None else timeout_us
        return min(timeout_us, paced_us)

    def on_ack(self, ack: FragmentAck, now_us: int) -> None:
        """Processes an ack from the neighbour."""
        packet = self._packets.get(ack.message_number)
        if packet is None:
            return
        acked = packet.apply_ack(ack)
        latest = -1
        for fragment in acked:
            in_flight = self._in_flight.pop(fragment.send_order, None) is not None
            # The ack may belong to an earlier transmission, which says nothing about those between.
            if in_flight and fragment.tries == 1:
                latest = max(latest, fragment.send_order)
            self._on_acked(fragment, now_us)
        if not packet.unacked_count:
            self._remove(packet)
        self._detect_gaps(latest, now_us)

    def drain_failures(self) -> list[object]:
        """Returns and clears the tokens of the messages that failed."""
        failed, self._failed = self._failed, []
        return failed

    def fail_all(self) -> None:
        """Fails all pending messages, since the neighbour is gone."""
        for packet in list(self._packets.values()):
            self._fail(packet)
        self._failed += self._tokens
        self._message_count = 0
        self._bodies, self._tokens = [], []

    def _make_packets(self, version: int) -> None:
        """Makes packets of the queued messages, as few as allowed, in their order."""
        bodies, self._bodies = self._bodies, []
        tokens, self._tokens = self._tokens, []
        count_max = codec.MESSAGES_MAX if version >= codec.JOINING_VERSION else 1
        start = 0
        size = len(bodies[0])
        for index in range(1, len(bodies)):
            size += len(bodies[index])
            if size > _JOINED_BYTES_MAX or index - start >= count_max:
                self._add_packet(bodies[start:index], tokens[start:index], version)
                start, size = index, len(bodies[index])
        self._add_packet(bodies[start:], tokens[start:], version)

    def _add_packet(self, bodies: list[bytes], tokens: list[object], version: int) -> None:
        packet = _OutgoingPacket(self.next_number, codec.join(bodies, version), tokens)
        self.next_number += 1
        self._packets[packet.number] = packet
        self._unsent.append(packet)

    def _may_send(self, now_us: int) -> bool:
        """Whether the pace allows to send; counts the bytes that may be sent."""
        if self._paced_until_us is not None:
            if now_us < self._paced_until_us:
                return False
            self._paced_until_us = None
        earned = (now_us - self._pace_us) * _PACE_BYTES_PER_SECOND / 1_000_000
        self._pace_bytes = min(self._pace_bytes + earned, float(_PACE_BURST_BYTES))
        self._pace_us = now_us
        return True

    def _mark_sent(self, fragment: _InFlightFragment, now_us: int) -> Fragment:
        fragment.tries += 1
        fragment.sent_us = now_us
        fragment.send_order = self._next_send_order
        self._next_send_order += 1
        self._in_flight[fragment.send_order] = fragment
        sent = fragment.packet.make_fragment(fragment.index)
        self._pace_bytes -= len(sent.body)
        return sent

    def _detect_timeouts(self, now_us: int) -> None:
        """Marks fragments as lost whose retransmission timeout has passed."""
        timed_out = []
        for fragment in self._in_flight.values():
            if fragment.sent_us + self._rto_us > now_us:
                break
            timed_out.append(fragment)
        if timed_out:
            self._mark_lost(timed_out, now_us)
            if now_us >= self._backoff_until_us:  # once for all fragments that were sent together
                self._rto_us = min(2 * self._rto_us, _RTO_US_MAX)
                self._backoff_until_us = now_us + self._rto_us

    def _detect_gaps(self, send_order: int, now_us: int) -> None:
        """Marks fragments as lost that were sent well before an acknowledged one."""
        skipped = []
        for fragment in self._in_flight.values():
            if fragment.send_order + _REORDER_THRESHOLD >= send_order:
                break
            skipped.append(fragment)
        if skipped:
            self._mark_lost(skipped, now_us)

    def _mark_lost(self, fragments: list[_InFlightFragment], now_us: int) -> None:
        for fragment in fragments:
            if self._in_flight.pop(fragment.send_order, None) is None:
                continue  # its packet failed because of another fragment
            if fragment.tries >= _TRIES_MAX:
                self._fail(fragment.packet)
            else:
                self._lost.append(fragment)
        self._shrink_window(now_us)

    def _fail(self, packet: _OutgoingPacket) -> None:
        self._remove(packet)
        if packet.next_index < packet.fragment_count:
            self._unsent.remove(packet)
        for fragment in packet.in_flight.values():
            self._in_flight.pop(fragment.send_order, None)
        packet.in_flight.clear()
        self._failed += packet.tokens

    def _remove(self, packet: _OutgoingPacket) -> None:
        del self._packets[packet.number]
        self._message_count -= len(packet.tokens)

    def _on_acked(self, fragment: _InFlightFragment, now_us: int) -> None:
        """Grows the window and updates the round-trip time after a fragment was acknowledged."""
        self._window_size += 1.0 if self._slow_start else 1.0 / self._window_size
        self._window_size = min(self._window_size, _WINDOW_MAX)
        if fragment.tries > 1:
            return  # the ack may belong to an earlier transmission (Karn's algorithm)
        rtt_us = now_us - fragment.sent_us
        self._rtt_us_min = min(self._rtt_us_min, rtt_us)
        if self._rtt_us is None:
            self._rtt_us, self._rtt_variation_us = float(rtt_us), rtt_us / 2
        else:
            self._rtt_variation_us += (abs(rtt_us - self._rtt_us) - self._rtt_variation_us) / 4
            self._rtt_us += (rtt_us - self._rtt_us) / 8
        rto_us = round(self._rtt_us + 4 * self._rtt_variation_us)
        self._rto_us = max(_RTO_US_MIN, min(rto_us, _RTO_US_MAX))

    def _shrink_window(self, now_us: int) -> None:
        """Halves the window, at most once per round trip."""
        if now_us >= self._recovery_until_us:
            self._slow_start = False
            smallest = _WINDOW_MIN if self._is_queueing() else _WINDOW_INITIAL
            self._window_size = max(smallest, self._window_size / 2)
            self._recovery_until_us = now_us + round(self._rtt_us or self._rto_us)

    def _is_queueing(self) -> bool:
        """Whether fragments wait in queues on the path; assumed until a round trip was measured."""
        rtt_us = self._rtt_us
        return rtt_us is None or rtt_us > self._rtt_us_min + _QUEUEING_DELAY_US
