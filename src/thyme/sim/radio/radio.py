"""Radio: a simulated 802.11 ad-hoc network of numbered nodes that send frames to each other.

Entry points: `Radio.send` and `Radio.set_power`. Combines the link table, the medium and the MAC
(`link_table`, `medium`, `mac`); `engine.wireless_network` adds messages and nodes. Receptions and
back-off use separate random generators, so that a change in one does not change the other.
Clauses: S1–S5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from thyme.model.rng import derive_rng
from thyme.sim.engine.kernel import Kernel
from thyme.sim.radio.link_table import LinkTable
from thyme.sim.radio.mac import Dcf
from thyme.sim.radio.mac_config import MacConfig
from thyme.sim.radio.medium import Medium
from thyme.sim.radio.phy import Phy
from thyme.sim.radio.station import BROADCAST, Frame
from thyme.sim.radio.unit_disk import UnitDisk, UnitDiskLinkTable

__all__ = ["BROADCAST", "Frame", "Radio", "RadioActivity", "RadioConfig"]


class RadioConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the radio; the default is the profile of the ns-3 reference measurements."""

    phy: Phy = Phy()
    mac: MacConfig = MacConfig()
    unit_disk: UnitDisk | None = None
    """If given, unit-disk propagation replaces log-distance propagation."""


class RadioActivity(msgspec.Struct, frozen=True):
    """Counters of one node's radio."""

    frames: int
    """Frames sent, of every kind, retransmissions included."""
    bytes: int
    """Bytes sent, MAC headers included."""
    retransmissions: int
    sending_us: int
    receiving_us: int
    """Time spent receiving frames, decoded or not."""


class Radio:
    """A wireless network of numbered nodes.

    `on_received(frame, receivers, now_us)` is called for every received frame; `receivers` is the
    bit set of the nodes that decoded it (see `members_of`). `on_done(frame, outcome)` is called
    when the sender is done with a frame. Outcomes: `sent` (a unicast was also acknowledged),
    `exceeded` (the retry limit), `full` (the queue was full), `stale` (too long in the queue) and
    `off` (the radio was switched off).
    """

    def __init__(
        self,
        kernel: Kernel,
        positions: Sequence[tuple[float, float]],
        *,
        seed: int,
        config: RadioConfig,
        on_received: Callable[[Frame, int, int], None],
        on_done: Callable[[Frame, str], None],
    ) -> None:
        self.links = (
            LinkTable(config.phy, positions)
            if config.unit_disk is None
            else UnitDiskLinkTable(config.unit_disk, positions)
        )
        medium = Medium(config.phy, self.links, derive_rng(seed, "radio", "reception"))
        self._dcf = Dcf(
            kernel,
            config.phy,
            medium,
            len(positions),
            derive_rng(seed, "radio", "back-off"),
            config.mac,
            on_received,
            on_done,
        )
        self._counters = self._dcf.counters
        self.send = self._dcf.send
        """Queues a frame at a node's MAC: `send(source, to, payload_bytes, token)`; `to` may be
        `BROADCAST`."""

    def set_power(self, number: int, *, on: bool) -> None:
        """Switches a node's radio on or off; switching it off drops its queued frames."""
        self._dcf.set_power(number, on=on)

    @property
    def frames(self) -> int:
        """Frames sent by all nodes, of every kind, retransmissions included."""
        return self._counters.frames_by_node().total()

    @property
    def frames_by_kind(self) -> dict[str, int]:
        """Frames sent by all nodes, by kind: broadcast, unicast, ack, rts, cts."""
        return dict(self._counters.frames_by_kind())

    @property
    def bytes_sent(self) -> int:
        """Bytes sent by all nodes, MAC headers included."""
        return self._counters.bytes_by_node().total()

    @property
    def retransmissions(self) -> int:
        """Frames sent again because no acknowledgement or CTS was received."""
        return self._counters.retransmissions.total()

    def activity_by_node(self) -> list[RadioActivity]:
        """The counters of each node's radio, by node number."""
        frames, size, sending = (
            self._counters.frames_by_node(),
            self._counters.bytes_by_node(),
            self._counters.sending_us_by_node(),
        )
        receiving = self._counters.receiving_us_by_node(len(self.links))
        return [
            RadioActivity(
                frames[number],
                size[number],
                self._counters.retransmissions[number],
                sending[number],
                receiving[number],
            )
            for number in range(len(self.links))
        ]
