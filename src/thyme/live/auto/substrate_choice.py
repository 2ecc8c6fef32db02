"""Substrate choice: decides which substrate suits the situation of a device. Pure.

A server in reach makes ES the best choice, a crowd DCS; a device with few others, or none, uses LS.
A new situation must last before the choice changes. Leaving a server that is gone is prompt; each
change to ES or DCS within ten minutes doubles the time before the next one, so that an unsteady
neighbour cannot make a device change to and fro.
Entry point: `SubstrateChoice.observe`. Measuring the situation is up to `thyme.live.auto.node`.
Clauses: B7.
"""

from __future__ import annotations

from collections import deque

import msgspec

from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US

LS, ES, DCS = "ls", "es", "dcs"


class ChoiceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How long situations must last, and how many nodes are a crowd."""

    server_found_us: int = 3 * SECOND_US
    server_gone_us: int = 4 * SECOND_US
    """In addition to the time after which a silent server is out of reach."""
    crowd_formed_us: int = 20 * SECOND_US
    crowd_gone_us: int = 60 * SECOND_US
    distrust_us: int = 300 * SECOND_US
    """After a server was gone, only its own hellos count for so long, not those of its clients."""
    crowd_nodes: int = 12
    """Nodes in range, this one included, that are a crowd."""
    crowd_nodes_reading: int = 8
    """The same if there are more searches and subscriptions than inserts: LS floods them."""
    crowd_nodes_unsteady: int = 24
    """The same if nodes come and go: cells hand over their state each time."""
    changes_unsteady: int = 6
    """Nodes that came or went within a minute, from which on a crowd is unsteady."""
    penalty_us: int = 600 * SECOND_US
    """For how long a change to ES or DCS delays the next."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What a device measures."""

    server: bool = False
    """Whether a server is in reach: its hellos arrive, or there is a route to it."""
    clients: bool = False
    """Whether hellos of nodes that use a server arrive."""
    nodes: frozenset[NodeId] = frozenset()
    """The other nodes in range, whatever substrate they use."""
    in_cells: int = 0
    """How many of them use DCS."""
    reads: int = 0
    """Searches and subscriptions of this device so far."""
    inserts: int = 0


class SubstrateChoice:
    """The substrate in use, from the situations observed."""

    def __init__(self, config: ChoiceConfig | None = None, *, cells: bool = False) -> None:
        """`cells`: whether the device knows an area with cells, so that DCS is possible."""
        self._config = config or ChoiceConfig()
        self._cells = cells
        self.current = LS
        self._wanted = LS
        self._wanted_since_us = 0
        self._distrust_until_us = 0
        self._entered_us: deque[int] = deque(maxlen=16)
        self._nodes: frozenset[NodeId] = frozenset()
        self._changed_us: deque[int] = deque(maxlen=64)

    def observe(self, situation: Situation, now_us: int) -> str:
        """Takes note of a situation; returns the substrate to use from now on."""
        self._changed_us.extend([now_us] * len(situation.nodes ^ self._nodes))
        self._nodes = situation.nodes
        wanted = self._best(situation, now_us)
        if wanted != self._wanted:
            self._wanted, self._wanted_since_us = wanted, now_us
        if wanted != self.current and now_us - self._wanted_since_us >= self._delay_us(now_us):
            if self.current == ES:
                self._distrust_until_us = now_us + self._config.distrust_us
            if wanted != LS:
                self._entered_us.append(now_us)
            self.current = wanted
        return self.current

    def _best(self, situation: Situation, now_us: int) -> str:
        trusted = self.current != ES and now_us >= self._distrust_until_us
        if situation.server or (trusted and situation.clients):
            return ES
        return DCS if self._cells and self._is_crowd(situation, now_us) else LS

    def _is_crowd(self, situation: Situation, now_us: int) -> bool:
        """A crowd stays one until half of it is gone; a device follows others that use DCS."""
        config = self._config
        unsteady = sum(at_us > now_us - 60 * SECOND_US for at_us in self._changed_us)
        crowd = config.crowd_nodes
        if self.current != DCS and unsteady >= config.changes_unsteady:
            crowd = config.crowd_nodes_unsteady
        elif situation.reads > situation.inserts:
            crowd = config.crowd_nodes_reading
        nodes = 1 + len(situation.nodes)
        follows = self.current == DCS or 2 * situation.in_cells > nodes
        return nodes >= (crowd // 2 if follows else crowd)

    def _delay_us(self, now_us: int) -> int:
        config = self._config
        if self._wanted == LS:
            return config.server_gone_us if self.current == ES else config.crowd_gone_us
        delay_us = config.server_found_us if self._wanted == ES else config.crowd_formed_us
        recent = sum(at_us > now_us - config.penalty_us for at_us in self._entered_us)
        return min(delay_us << recent, config.penalty_us)
