"""Wired links: messages between the base stations of a wireless network.

Entry point: `WiredLinks`. Each ordered pair of stations has a link with latency, bandwidth and
loss; messages on a link follow each other. `WirelessNetwork` sends over a wire if there is one
between sender and receiver.
Clauses: S1, I17.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from thyme.model.errors import InputError
from thyme.model.ids import NodeId
from thyme.model.rng import derive_rng


class WireConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of the wires between stations."""

    latency_us: int = 2_000
    bits_per_s: int = 100_000_000
    loss: float = 0.0

    def __post_init__(self) -> None:
        if self.latency_us < 0 or self.bits_per_s < 1 or not 0 <= self.loss < 1:
            raise InputError(
                "a wire has a latency of 0 or more, a bandwidth above 0 and a loss from 0 to 1"
            )


class WiredLinks:
    """The wires between some nodes, and the traffic on them."""

    def __init__(self, stations: Iterable[NodeId], config: WireConfig, seed: int) -> None:
        self._stations = frozenset(stations)
        self._config = config
        self._rng = derive_rng(seed, "wires")
        self._free_us: dict[tuple[NodeId, NodeId], int] = {}
        """When the last message on a link has been sent."""
        self.bytes_sent: dict[NodeId, int] = dict.fromkeys(sorted(self._stations), 0)
        self.messages_sent: dict[NodeId, int] = dict.fromkeys(sorted(self._stations), 0)
        self.lost = 0

    def joins(self, one: NodeId, other: NodeId) -> bool:
        """Whether there is a wire between two nodes."""
        return one in self._stations and other in self._stations

    def arrival_us(self, sender: NodeId, to: NodeId, size: int, now_us: int) -> int | None:
        """When a message sent now arrives; None if it is lost."""
        config, link = self._config, (sender, to)
        begins_us = max(now_us, self._free_us.get(link, 0))
        sent_us = begins_us + -(-8_000_000 * size // config.bits_per_s)
        self._free_us[link] = sent_us
        self.bytes_sent[sender] += size
        self.messages_sent[sender] += 1
        if config.loss and self._rng.random() < config.loss:
            self.lost += 1
            return None
        return sent_us + config.latency_us
