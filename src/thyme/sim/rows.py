"""Rows: what one node's frames do to the others, as sets of nodes.

Most receptions are certain one way or the other; those are kept as sets, handled all at once, and
only the doubtful ones are listed with their probability. `thyme.sim.links` makes and keeps them.
Clauses: S2, S5.
"""

from __future__ import annotations

import math

Doubtful = tuple[int, float, float]
"""A receiver's bit, its chance to get the header, and the logarithm of a payload bit's chance."""


class Clean:
    """How one node's frames of about one size fare on a silent medium."""

    __slots__ = ("chances", "doubtful", "far", "got", "likely", "locked", "possible")

    def __init__(self, near: int = 0) -> None:
        self.locked = near
        """Those who surely get the header."""
        self.possible = near
        """Those who may get all of it."""
        self.got = near
        """Those who surely do."""
        self.doubtful: dict[int, Doubtful] = {}
        """By number: those who may get all of it, or may not."""
        self.far = 0
        """Those who may get the header, and surely no more."""
        self.likely = 0
        """Those of them who get it more often than not."""
        self.chances: dict[int, float] = {}
        """Theirs to get it, by number."""

    def place(self, number: int, header: float, log_bit: float) -> None:
        """Files a receiver under what awaits it."""
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
        """Takes a receiver out: it is elsewhere now."""
        others = ~(1 << number)
        self.locked &= others
        self.possible &= others
        self.got &= others
        self.far &= others
        self.likely &= others
        self.doubtful.pop(number, None)
        self.chances.pop(number, None)


class Row:
    """What one node's frames do to the others."""

    __slots__ = ("clean", "levels", "lock", "notice", "number", "power", "reach", "sense")

    def __init__(self, number: int) -> None:
        self.number = number
        self.power: dict[int, float] = {}
        """Received power by node number, for those that notice it."""
        self.lock = 0
        """The nodes that could listen to it."""
        self.sense = 0
        """The nodes that know the medium to be busy."""
        self.notice = 0
        """The nodes that it may disturb."""
        self.reach = 1 << number
        """The same, and the node itself."""
        self.levels: list[int] = []
        """The nodes that receive it with at least each level's power."""
        self.clean: dict[int, Clean] = {}
