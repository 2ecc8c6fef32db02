"""Reassembly: joins the fragments from one neighbour to messages.

Each message is returned once, even if its fragments arrive several times. Incomplete messages are
limited in number and size, and dropped after a while without a new fragment; `link` limits the
bytes of all neighbours together.
Entry point: `Reassembler.on_fragment`. The sending side is `send_window`.
Clauses: M25.
"""

from __future__ import annotations

from typing import Final

from thyme.model.bounded import BoundedDict
from thyme.transport.datagrams import FRAGMENT_BYTES_MAX, SELECTIVE_ACK_BITS, Fragment, FragmentAck
from thyme.transport.link_config import ReassemblyLimits

_COMPLETED_MAX: Final = 4_096
"""Number of completed messages remembered, so that none is delivered twice."""
_FRAGMENT_OVERHEAD_BYTES: Final = 150
"""Memory of a stored fragment beyond its body."""
_ACK_EVERY: Final = 4
"""An ack is sent for every n-th fragment, for any fragment out of order, and for the last one."""


class _PartialMessage:
    """The fragments received so far of one message."""

    __slots__ = ("fragment_count", "fragments", "received_below", "updated_us")

    def __init__(self, fragment_count: int) -> None:
        self.fragment_count = fragment_count
        self.fragments: dict[int, bytes] = {}
        self.received_below = 0
        """All fragments below this index were received."""
        self.updated_us = 0

    def add_fragment(self, fragment: Fragment) -> bool:
        """Stores a fragment; returns whether it was the next in order."""
        in_order = fragment.index == self.received_below
        self.fragments[fragment.index] = fragment.body
        while self.received_below in self.fragments:
            self.received_below += 1
        return in_order

    def make_ack(self, message_number: int) -> FragmentAck:
        bits = 0
        if len(self.fragments) > self.received_below:  # some arrived before an earlier one
            for offset in range(SELECTIVE_ACK_BITS):
                if self.received_below + offset in self.fragments:
                    bits |= 1 << offset
        return FragmentAck(message_number, self.received_below, bits)


class Reassembler:
    """Reassembles the messages of one neighbour."""

    def __init__(self, limits: ReassemblyLimits) -> None:
        self._limits = limits
        self._partial_messages: dict[int, _PartialMessage] = {}
        self._completed: BoundedDict[int, int] = BoundedDict(_COMPLETED_MAX)
        """Number of fragments of each completed message, by message number."""
        self.stored_bytes = 0
        """Bytes of the incomplete messages, with what a fragment costs besides."""
        self.completed_count = 0
        self.refused = 0
        """Fragments refused: over the limits, or inconsistent with earlier fragments."""

    def on_fragment(
        self, fragment: Fragment, now_us: int
    ) -> tuple[bytes | None, FragmentAck | None]:
        """Stores a fragment; returns the message, once complete, and the ack to send, if any."""
        fragment_count = self._completed.get(fragment.message_number)
        if fragment_count is not None:
            return None, FragmentAck(fragment.message_number, fragment_count)
        message = self._partial_messages.get(fragment.message_number)
        if message is None:
            message = self._start_message(fragment)
        if (
            message is None
            or message.fragment_count != fragment.count
            or len(fragment.body) > FRAGMENT_BYTES_MAX
        ):
            self.refused += 1
            return None, None
        message.updated_us = now_us
        if fragment.index in message.fragments:
            return None, message.make_ack(fragment.message_number)
        in_order = message.add_fragment(fragment)
        self.stored_bytes += len(fragment.body) + _FRAGMENT_OVERHEAD_BYTES
        if message.received_below == message.fragment_count:
            return self._complete_message(fragment.message_number, message), FragmentAck(
                fragment.message_number, message.fragment_count
            )
        ack_due = not in_order or not len(message.fragments) % _ACK_EVERY
        return None, message.make_ack(fragment.message_number) if ack_due else None

    def drop_idle(self, now_us: int) -> None:
        """Drops incomplete messages without a new fragment for `idle_us`."""
        for number, message in list(self._partial_messages.items()):
            if message.updated_us + self._limits.idle_us <= now_us:
                self._drop(number)

    def drop_all(self) -> None:
        """Drops all incomplete messages."""
        for number in list(self._partial_messages):
            self._drop(number)

    def _drop(self, number: int) -> None:
        self.stored_bytes -= _stored_bytes(self._partial_messages.pop(number))

    def _start_message(self, fragment: Fragment) -> _PartialMessage | None:
        too_long = (fragment.count - 1) * FRAGMENT_BYTES_MAX > self._limits.message_bytes_max
        if too_long or len(self._partial_messages) >= self._limits.messages_max:
            return None
        message = self._partial_messages[fragment.message_number] = _PartialMessage(fragment.count)
        return message

    def _complete_message(self, number: int, message: _PartialMessage) -> bytes:
        self._drop(number)
        self.completed_count += 1
        self._completed[number] = message.fragment_count
        return b"".join(message.fragments[index] for index in range(message.fragment_count))


def _stored_bytes(message: _PartialMessage) -> int:
    bodies = sum(map(len, message.fragments.values()))
    return bodies + len(message.fragments) * _FRAGMENT_OVERHEAD_BYTES
