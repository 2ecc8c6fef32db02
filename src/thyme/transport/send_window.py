"""Send window: congestion-controlled, reliable sending of fragmented messages to one neighbour.

The window limits the number of fragments in flight. It grows with each acknowledged fragment and
halves after a loss. Without queueing delay a loss is taken for a radio error, and the window stays
at or above its initial size. A fragment without an ack is retransmitted; a message fails once one
of its fragments was sent too often. Large messages are paced, since a neighbour drops what exceeds
its rate limit (`link_config.RateLimit`).
Entry points: `SendWindow.enqueue`, `due_fragments`, `on_ack`. The receiving side is `reassembly`.
Clauses: M25, D10.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from thyme.transport.datagrams import FRAGMENT_BYTES_MAX, SELECTIVE_ACK_BITS, Fragment, FragmentAck

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


class _OutgoingMessage:
    """A message that is not acknowledged yet."""

    __slots__ = (
        "acked_below",
        "body",
        "fragment_count",
        "in_flight",
        "next_index",
        "number",
        "token",
        "unacked_count",
    )

    def __init__(self, number: int, body: bytes, token: object) -> None:
        self.number = number
        self.body = body
        self.token = token
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
        selective = [
            ack.received_below + offset
            for offset in range(SELECTIVE_ACK_BITS)
            if ack.received_bits >> offset & 1
        ]
        indexes = [*range(self.acked_below, below), *selective]
        self.acked_below = below
        acked = [self.in_flight.pop(index) for index in indexes if index in self.in_flight]
        self.unacked_count -= len(acked)
        return acked


class _InFlightFragment:
    """A fragment that was sent and is not acknowledged."""

    __slots__ = ("index", "message", "send_order", "sent_us", "tries")

    def __init__(self, message: _OutgoingMessage, index: int) -> None:
        self.message = message
        self.index = index
        self.tries = 0
        self.send_order = 0
        """Serial number of the latest transmission, over all messages."""
        self.sent_us = 0


class SendWindow:
    """Sends messages to one neighbour."""

    def __init__(self) -> None:
        self._next_number = 0
        self._next_send_order = 0
        self._messages: dict[int, _OutgoingMessage] = {}
        self._unsent: deque[_OutgoingMessage] = deque()
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
        return bool(self._messages)

    def enqueue(self, body: bytes, token: object) -> bool:
        """Queues a message; returns False if too many are pending."""
        if len(self._messages) >= MESSAGES_MAX:
            return False
        message = _OutgoingMessage(self._next_number, body, token)
        self._next_number += 1
        self._messages[message.number] = message
        self._unsent.append(message)
        return True

    def due_fragments(self, now_us: int) -> list[Fragment]:
        """The fragments to send now: lost ones first."""
        self._detect_timeouts(now_us)
        fragments: list[Fragment] = []
        if not self._may_send(now_us):
            return fragments
        window_for_lost = self._window_size
        if not self._is_queueing():
            window_for_lost += _RETRANSMISSIONS_MIN
        while self._lost and len(self._in_flight) < window_for_lost and self._pace_bytes > 0:
            fragment = self._lost.popleft()
            if fragment.message.in_flight.get(fragment.index) is fragment:
                fragments.append(self._mark_sent(fragment, now_us))
        while self._unsent and len(self._in_flight) < self._window_size and self._pace_bytes > 0:
            message = self._unsent[0]
            fragment = message.in_flight[message.next_index] = _InFlightFragment(
                message, message.next_index
            )
            fragments.append(self._mark_sent(fragment, now_us))
            message.next_index += 1
            if message.next_index == message.fragment_count:
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
        message = self._messages.get(ack.message_number)
        if message is None:
            return
        acked = message.apply_ack(ack)
        latest = -1
        for fragment in acked:
            in_flight = self._in_flight.pop(fragment.send_order, None) is not None
            # The ack may belong to an earlier transmission, which says nothing about those between.
            if in_flight and fragment.tries == 1:
                latest = max(latest, fragment.send_order)
            self._on_acked(fragment, now_us)
        if not message.unacked_count:
            del self._messages[message.number]
        self._detect_gaps(latest, now_us)

    def drain_failures(self) -> list[object]:
        """Returns and clears the tokens of the messages that failed."""
        failed, self._failed = self._failed, []
        return failed

    def fail_all(self) -> None:
        """Fails all pending messages, since the neighbour is gone."""
        for message in list(self._messages.values()):
            self._fail(message)

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
        sent = fragment.message.make_fragment(fragment.index)
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
                continue  # its message failed because of another fragment
            if fragment.tries >= _TRIES_MAX:
                self._fail(fragment.message)
            else:
                self._lost.append(fragment)
        self._shrink_window(now_us)

    def _fail(self, message: _OutgoingMessage) -> None:
        del self._messages[message.number]
        if message.next_index < message.fragment_count:
            self._unsent.remove(message)
        for fragment in message.in_flight.values():
            self._in_flight.pop(fragment.send_order, None)
        message.in_flight.clear()
        self._failed.append(message.token)

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
