"""The radio: nodes at places, frames between them.

Puts the medium and the MACs together behind one door. Randomness comes from two streams of the
seed, one for receptions and one for back-off, so that neither moves the other.
Clauses: S1–S5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from thyme.model.streams import stream
from thyme.sim.disk import Disk, DiskLinks
from thyme.sim.kernel import Kernel
from thyme.sim.links import Links
from thyme.sim.mac import Dcf
from thyme.sim.mac_config import MacConfig
from thyme.sim.medium import Medium
from thyme.sim.phy import Phy
from thyme.sim.stations import BROADCAST, Frame

__all__ = ["BROADCAST", "Activity", "Frame", "Radio", "RadioConfig"]


class RadioConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The radio's settings: the default is the profile of the reference measurements."""

    phy: Phy = Phy()
    mac: MacConfig = MacConfig()
    disk: Disk | None = None
    """Disks in place of fading signals."""


class Activity(msgspec.Struct, frozen=True):
    """What one node's radio has done."""

    frames: int
    """Put on the air, of every kind, repetitions included."""
    bytes: int
    """Theirs, MAC headers included."""
    retransmissions: int
    sending_us: int
    receiving_us: int
    """Listening to frames, whether it could decode them or not."""


class Radio:
    """A wireless network of numbered nodes.

    `on_received(frame, receivers, now_us)` hears of every frame that arrived, with the set of
    nodes that decoded it as a bit mask (see `numbers`). `on_done(frame, how)` hears what became of
    a frame at its sender: `sent` (and acknowledged, if it was for one node), `exceeded` (the retry
    limit), `full` (the queue), `stale` (too long in the queue) or `off` (switched off).
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
            Links(config.phy, positions)
            if config.disk is None
            else DiskLinks(config.disk, positions)
        )
        medium = Medium(config.phy, self.links, stream(seed, "radio", "reception"))
        self._dcf = Dcf(
            kernel,
            config.phy,
            medium,
            len(positions),
            stream(seed, "radio", "back-off"),
            config.mac,
            on_received,
            on_done,
        )
        self._tally = self._dcf.tally
        self.send = self._dcf.send
        """Hands a frame to a node's MAC: `send(source, to, payload_bytes, token)`; `to` may be
        `BROADCAST`."""

    def switch(self, number: int, *, on: bool) -> None:
        """Switches a node's radio on or off: off, it hears nothing and loses what it had queued."""
        self._dcf.switch(number, on=on)

    @property
    def frames(self) -> int:
        """Frames put on the air, of every kind, repetitions included."""
        return self._tally.frames().total()

    @property
    def frames_by_kind(self) -> dict[str, int]:
        """The same by kind: broadcast, unicast, ack, rts, cts."""
        return dict(self._tally.kinds())

    @property
    def bytes_sent(self) -> int:
        """Bytes put on the air, MAC headers included."""
        return self._tally.bytes().total()

    @property
    def retransmissions(self) -> int:
        """Frames that were sent again for want of an acknowledgement."""
        return self._tally.retransmissions.total()

    def activity(self) -> list[Activity]:
        """What each node's radio has done so far."""
        frames, size, sending = self._tally.frames(), self._tally.bytes(), self._tally.sending_us()
        receiving = self._tally.receiving_us(len(self.links))
        return [
            Activity(
                frames[number],
                size[number],
                self._tally.retransmissions[number],
                sending[number],
                receiving[number],
            )
            for number in range(len(self.links))
        ]
