"""Reception: for one sender, the nodes that receive its frames, and how well.

Entry points: `ReceptionRow` and `ClearReception`. Sets of nodes are bit sets. Most receptions are
certain, one way or the other: these are kept as sets; the uncertain ones are listed with their
probabilities. `link_table` and `unit_disk` make the rows.
Clauses: S2, S5.
"""

from __future__ import annotations

import math

Doubtful = tuple[int, float, float]
"""A receiver's bit, its probability of the header, and the log-probability of a payload bit."""


class Clean:
    """The reception of one sender's frames of about one size, without interference."""

    __slots__ = ("chances", "doubtful", "far", "got", "likely", "locked", "possible")

    def __init__(self, near: int = 0) -> None:
        self.locked = near
        """Receivers that certainly decode the header (bit set)."""
        self.possible = near
        """Receivers that may decode the whole frame (bit set)."""
        self.got = near
        """Receivers that certainly decode the whole frame (bit set)."""
        self.doubtful: dict[int, Doubtful] = {}
        """Receivers that may or may not decode the whole frame, by node number."""
        self.far = 0
        """Receivers that may decode the header, but not the payload (bit set)."""
        self.likely = 0
        """Receivers of `header_only` with a header probability of at least 0.5 (bit set)."""
        self.chances: dict[int, float] = {}
        """The header probability of the receivers of `header_only`, by node number."""

    def place(self, number: int, header: float, log_bit: float) -> None:
        """Adds a receiver, with its header probability and log-probability of a payload bit."""
        bit = 1 << number
        if header == 1.0:
            self.locked |= bit
        if log_bit > -math.inf:
            self.possible |= bit
            if header == 1.0 and log_bit == 0.0:
                self.got |= bit
            else:
                self.doubtful[number] = bit, header, log_bit
        elif header < 1.0:
            self.far |= bit
            self.chances[number] = header
            if header >= 0.5:
                self.likely |= bit

    def remove(self, number: int) -> None:
        """Removes a receiver, which has moved."""
        others = ~(1 << number)
        self.locked &= others
        self.possible &= others
        self.got &= others
        self.far &= others
        self.likely &= others
        self.doubtful.pop(number, None)
        self.chances.pop(number, None)


class Row:
    """The reception of one sender's frames at all other nodes."""

    __slots__ = ("clean", "levels", "lock", "notice", "number", "power", "reach", "sense")

    def __init__(self, number: int) -> None:
        self.number = number
        self.power: dict[int, float] = {}
        """Received power in mW by node number, where it is above the receiver sensitivity."""
        self.lock = 0
        """The nodes that detect its preamble and may lock on to its frames (bit set)."""
        self.sense = 0
        """The nodes that sense the medium as busy during its frames (bit set)."""
        self.notice = 0
        """The nodes in reach: it may interfere with their receptions (bit set)."""
        self.reach = 1 << number
        """The nodes in reach, and the sender itself (bit set)."""
        self.levels: list[int] = []
        """For each power level, the nodes that receive it with at least that power (bit sets)."""
        self.clean: dict[int, Clean] = {}
