"""Radio: a simulated 802.11 ad-hoc network of numbered nodes that send frames to each other.

Entry points: `Radio.send` and `Radio.set_power`. Combines the link table, the medium and the MAC
(`link_table`, `medium`, `mac`), or uses their twin in C (`native`), with the same results;
`networks.wireless_network` adds messages and nodes. Receptions and
back-off use separate random generators, so that a change in one does not change the other.
Clauses: S1–S5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from thyme.model.rng import derive_rng
from thyme.sim import native
from thyme.sim.engine.kernel import Kernel
from thyme.sim.radio.link_model import LinkModel
from thyme.sim.radio.link_table import LinkTable
from thyme.sim.radio.mac import Dcf
from thyme.sim.radio.mac_config import MacConfig
from thyme.sim.radio.medium import Medium
from thyme.sim.radio.phy import ACK_BYTES, CTS_BYTES, OVERHEAD_BYTES, RTS_BYTES, Phy
from thyme.sim.radio.station import BROADCAST, Frame
from thyme.sim.radio.unit_disk import UnitDisk, UnitDiskLinkTable

__all__ = ["BROADCAST", "Frame", "Links", "Radio", "RadioActivity", "RadioConfig"]

NATIVE_NODES_MAX = 65_535
"""The radio in C counts receivers in 16 bits."""


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
        core = _make_core(kernel, positions, seed, config, on_received, on_done)
        self.links: Links = core.links
        self._set_power = core.set_power
        self._counters = core.counters
        self.send = core.send
        """Queues a frame at a node's MAC: `send(source, to, payload_bytes, token)`; `to` may be
        `BROADCAST`."""

    def set_power(self, number: int, *, on: bool) -> None:
        """Switches a node's radio on or off; switching it off drops its queued frames."""
        self._set_power(number, on=on)

    @property
    def frames(self) -> int:
        """Frames sent by all nodes, of every kind, retransmissions included."""
        return sum(self._counters.frames_by_node())

    @property
    def frames_by_kind(self) -> dict[str, int]:
        """Frames sent by all nodes, by kind: broadcast, unicast, ack, rts, cts."""
        return dict(self._counters.frames_by_kind())

    @property
    def bytes_sent(self) -> int:
        """Bytes sent by all nodes, MAC headers included."""
        return sum(self._counters.bytes_by_node())

    @property
    def retransmissions(self) -> int:
        """Frames sent again because no acknowledgement or CTS was received."""
        return sum(self._counters.retransmissions_by_node())

    def activity_by_node(self) -> list[RadioActivity]:
        """The counters of each node's radio, by node number."""
        counters = self._counters
        by_node = zip(
            counters.frames_by_node(),
            counters.bytes_by_node(),
            counters.retransmissions_by_node(),
            counters.sending_us_by_node(),
            counters.receiving_us_by_node(),
            strict=True,
        )
        return [RadioActivity(*counts) for counts in by_node]


class Links(Protocol):
    """The link table, as the layers above the radio see it."""

    def __len__(self) -> int: ...

    def position_of(self, number: int, /) -> tuple[float, float]:
        """The position of a node."""
        ...

    def move(self, number: int, position: tuple[float, float], /) -> None:
        """Moves a node."""
        ...


class _Counters(Protocol):
    """The counters of a radio, as `RadioCounters` describes them."""

    def frames_by_kind(self) -> dict[str, int]: ...
    def frames_by_node(self) -> list[int]: ...
    def bytes_by_node(self) -> list[int]: ...
    def sending_us_by_node(self) -> list[int]: ...
    def receiving_us_by_node(self) -> list[int]: ...
    def retransmissions_by_node(self) -> list[int]: ...


class _Core(NamedTuple):
    """The parts of a radio, in C or in Python."""

    links: Links
    counters: _Counters
    send: Callable[[int, int, int, object], None]
    set_power: Callable[..., None]


def _make_core(
    kernel: Kernel,
    positions: Sequence[tuple[float, float]],
    seed: int,
    config: RadioConfig,
    on_received: Callable[[Frame, int, int], None],
    on_done: Callable[[Frame, str], None],
) -> _Core:
    """Makes a radio in C if the kernel is in C, too, and the radio's twin in Python otherwise."""
    phy, mac = config.phy, config.mac
    reception, backoff = (derive_rng(seed, "radio", use) for use in ("reception", "back-off"))
    if native.AVAILABLE and config.unit_disk is None and len(positions) <= NATIVE_NODES_MAX:
        from thyme.sim.native.radio_core import NativeKernel, NativeRadio

        if isinstance(kernel, NativeKernel):
            radio = NativeRadio(
                kernel,
                positions,
                LinkModel(phy),
                phy.duration_us,
                reception.getstate()[1],
                backoff.getstate()[1],
                _native_settings(phy, mac),
                on_received,
                on_done,
            )
            return _Core(radio, radio, radio.send, radio.set_power)
    links = (
        LinkTable(phy, positions)
        if config.unit_disk is None
        else UnitDiskLinkTable(config.unit_disk, positions)
    )
    medium = Medium(phy, links, reception)
    dcf = Dcf(kernel, phy, medium, len(positions), backoff, mac, on_received, on_done)
    return _Core(links, dcf.counters, dcf.send, dcf.set_power)


def _native_settings(phy: Phy, mac: MacConfig) -> dict[str, float]:
    """The settings of a radio in C, by name."""
    return {
        "bits_per_us": phy.bits_per_us,
        "slot_us": phy.slot_us,
        "difs_us": phy.difs_us,
        "sifs_us": phy.sifs_us,
        "eifs_us": phy.eifs_us,
        "preamble_us": phy.preamble_us,
        "preamble_detection_us": phy.preamble_detection_us,
        "signal_extension_us": phy.signal_extension_us,
        "can_defer_locks": phy.carrier_sense_dbm <= phy.preamble_detection_dbm,
        "cw_min": phy.cw_min if mac.cw_min is None else mac.cw_min,
        "transmissions_max": mac.transmissions_max,
        "queue_max": mac.queue_max,
        "lifetime_us": mac.lifetime_us,
        "rts_over_bytes": mac.rts_over_bytes,
        "overhead_bytes": OVERHEAD_BYTES,
        "ack_bytes": ACK_BYTES,
        "rts_bytes": RTS_BYTES,
        "cts_bytes": CTS_BYTES,
    }
