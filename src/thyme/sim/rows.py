"""Rows: what one node's frames do to the others, as sets of nodes.

Most receptions are certain one way or the other; those are kept as sets, handled all at once, and
only the doubtful ones are listed with their probability. `thyme.sim.links` makes and keeps them.
Clauses: S2, S5.
"""

from __future__ import annotations

import math

from thyme.sim.steps import CERTAIN

Doubtful = tuple[int, float, float]
"""A receiver's bit, its chance to get the header, and its chance to get the whole frame."""


class Clean:
    """How one node's frames of about one size fare on a silent medium; `fit` says it for one size
    exactly."""

    __slots__ = ("_got", "_unsure", "bits", "chances", "doubtful", "far", "got", "likely", "locked",
                 "possible")  # fmt: skip

    def __init__(self) -> None:
        self.locked = 0
        """Those who surely get the header."""
        self.possible = 0
        """Those who may get all of it."""
        self._got = 0
        self._unsure: dict[int, tuple[int, float, float]] = {}
        # By number: its bit, the header's chance, the logarithm of one bit's chance.
        self.bits = 0
        """The size that the following is about."""
        self.got = 0
        """Those who surely get all of it."""
        self.doubtful: list[Doubtful] = []
        """Those who may get all of it, or may not."""
        self.far = 0
        """Those who may get the header, and surely no more."""
        self.chances: dict[int, float] = {}
        """Theirs to get it, by number."""
        self.likely = 0
        """Those of them who get it more often than not."""

    def fit(self, bits: int) -> None:
        """Works out what there is for frames of so many bits."""
        self.bits = bits
        self.got, self.far, self.likely = self._got, 0, 0
        self.doubtful = []
        self.chances = {}
        for number, (bit, header, log_bit) in self._unsure.items():
            whole = header * math.exp(bits * log_bit)
            if whole > 1 - CERTAIN:
                self.got |= bit
            elif whole > CERTAIN:
                self.doubtful.append((bit, header, whole))
            elif header < 1.0:
                self.far |= bit
                self.chances[number] = header
                if header >= 0.5:
                    self.likely |= bit

    def place(self, number: int, sort: tuple[bool, bool, float, float] | None) -> None:
        """Files a receiver under what awaits it: see `Links._sort`; None is out of reach."""
        bit = 1 << number
        self.bits = 0
        self._unsure.pop(number, None)
        self.locked &= ~bit
        self._got &= ~bit
        self.possible &= ~bit
        if sort is None:
            return
        locked, got, header, log_bit = sort
        if locked:
            self.locked |= bit
        if log_bit > -math.inf:
            self.possible |= bit
        if got:
            self._got |= bit
        elif header < 1.0 or log_bit > -math.inf:
            self._unsure[number] = bit, header, log_bit

    def place_near(self, nodes: int) -> None:
        """Files nodes that surely get everything."""
        self.locked |= nodes
        self.possible |= nodes
        self._got |= nodes


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
