"""Reception: for one sender, the nodes that receive its frames, and how well.

Entry points: `ReceptionRow` and `ClearReception`. Sets of nodes are bit sets. Most receptions are
certain, one way or the other: these are kept as sets; the uncertain ones are listed with their
probabilities. `link_table` and `unit_disk` make the rows.
Clauses: S2, S5.
"""

from __future__ import annotations

import math

UncertainReceiver = tuple[int, float, float]
"""A receiver's bit, its probability of the header, and the log-probability of a payload bit."""


class ClearReception:
    """The reception of one sender's frames of about one size, without interference."""

    __slots__ = (
        "header_likely",
        "header_only",
        "header_probability",
        "header_sure",
        "possible",
        "sure",
        "uncertain",
    )

    def __init__(self, sure: int = 0) -> None:
        self.header_sure = sure
        """Receivers that certainly decode the header (bit set)."""
        self.possible = sure
        """Receivers that may decode the whole frame (bit set)."""
        self.sure = sure
        """Receivers that certainly decode the whole frame (bit set)."""
        self.uncertain: dict[int, UncertainReceiver] = {}
        """Receivers that may or may not decode the whole frame, by node number."""
        self.header_only = 0
        """Receivers that may decode the header, but not the payload (bit set)."""
        self.header_likely = 0
        """Receivers of `header_only` with a header probability of at least 0.5 (bit set)."""
        self.header_probability: dict[int, float] = {}
        """The header probability of the receivers of `header_only`, by node number."""

    def add(self, number: int, header_probability: float, log_bit: float) -> None:
        """Adds a receiver, with its header probability and log-probability of a payload bit."""
        bit = 1 << number
        if header_probability == 1.0:
            self.header_sure |= bit
        if log_bit > -math.inf:
            self.possible |= bit
            if header_probability == 1.0 and log_bit == 0.0:
                self.sure |= bit
            else:
                self.uncertain[number] = bit, header_probability, log_bit
        elif header_probability < 1.0:
            self.header_only |= bit
            self.header_probability[number] = header_probability
            if header_probability >= 0.5:
                self.header_likely |= bit

    def remove(self, number: int) -> None:
        """Removes a receiver, which has moved."""
        others = ~(1 << number)
        self.header_sure &= others
        self.possible &= others
        self.sure &= others
        self.header_only &= others
        self.header_likely &= others
        self.uncertain.pop(number, None)
        self.header_probability.pop(number, None)


class ReceptionRow:
    """The reception of one sender's frames at all other nodes."""

    __slots__ = (
        "clear",
        "detecting",
        "in_reach",
        "in_reach_or_self",
        "levels",
        "number",
        "power_mw",
        "sensing",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.power_mw: dict[int, float] = {}
        """Received power in mW by node number, where it is above the receiver sensitivity."""
        self.detecting = 0
        """The nodes that detect its preamble and may lock on to its frames (bit set)."""
        self.sensing = 0
        """The nodes that sense the medium as busy during its frames (bit set)."""
        self.in_reach = 0
        """The nodes in reach: it may interfere with their receptions (bit set)."""
        self.in_reach_or_self = 1 << number
        """The nodes in reach, and the sender itself (bit set)."""
        self.levels: list[int] = []
        """For each power level, the nodes that receive it with at least that power (bit sets)."""
        self.clear: dict[int, ClearReception] = {}
