"""Station links: the radio links and the wires of a station, as one link of its host.

Entry point: `StationLinks`, a `HostLink`. Messages to stations of the list go over their wires, all
others to mobile nodes.
"""

from __future__ import annotations

from thyme.live.station.wires import StationWires
from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message
from thyme.transport.link_config import Address, LinkEvent, SendDatagram
from thyme.transport.world_links import WorldLinks


class StationLinks:
    """The links of one station."""

    def __init__(self, mobiles: WorldLinks, wires: StationWires) -> None:
        self.mobiles = mobiles
        self.wires = wires

    @property
    def has_pending(self) -> bool:
        return self.mobiles.has_pending

    def send(self, to: NodeId, message: Message, now_us: int) -> None:
        """Queues a message for a station or a mobile node."""
        if to in self.wires:
            self.wires.send(to, message)
        else:
            self.mobiles.send(to, message, now_us)

    def broadcast(self, message: Message, now_us: int) -> None:
        self.mobiles.broadcast(message, now_us)

    def receive_datagram(self, datagram: bytes, address: Address, now_us: int) -> bool:
        return self.mobiles.receive_datagram(datagram, address, now_us)

    def tick(self, now_us: int) -> None:
        self.mobiles.tick(now_us)

    def next_tick_us(self) -> int:
        return self.mobiles.next_tick_us()

    def drain_events(self) -> list[LinkEvent]:
        return [*self.mobiles.drain_events(), *self.wires.drain_events()]

    def drain_datagrams(self) -> list[SendDatagram]:
        return self.mobiles.drain_datagrams()
