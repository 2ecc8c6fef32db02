"""World links: the links of a station to the mobile nodes of several worlds.

A station is a neighbour of its mobile nodes in each of their worlds, so it has one link for each
world, on the same sockets. A link is made after the first hello of an open infra world; the worlds
that the station knows are announced even if no node is here. Only messages to stations are
passed on.
Entry point: `WorldLinks`, a `HostLink`. Pure, like `link`.
Clauses: I2, I3, I25, B5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from thyme.model.bounded import BoundedDict
from thyme.model.errors import DecodeError
from thyme.model.ids import NodeId
from thyme.model.worlds import INFRA, WorldInfo, named_world_id
from thyme.protocol.messages.common import Message, ToStation
from thyme.transport.datagrams import Hello, decode, digest_world, read_world_digest
from thyme.transport.link import Link
from thyme.transport.link_config import (
    Address,
    LinkEvent,
    MessageUndelivered,
    RateLimit,
    SendDatagram,
)
from thyme.transport.rate_limit import TokenBucket

WORLDS_MAX = 100
"""Maximum number of worlds with a link; a world without nodes here is replaced by another."""
_NODES_MAX = 100_000
_NEW_WORLDS = RateLimit(datagrams_per_second=10, datagrams_burst=WORLDS_MAX)

WorldNumberOf = Callable[[str], int]
"""The number of the world with a name, as messages to stations contain it."""


class _WorldLink:
    def __init__(self, world: WorldInfo, number: int, link: Link) -> None:
        self.world = world
        self.number = number
        self.link = link


class WorldLinks:
    """The links of one station to mobile nodes."""

    def __init__(
        self, make_link: Callable[[WorldInfo], Link], number_of: WorldNumberOf, now_us: int
    ) -> None:
        """`make_link` makes the link of the station in a world."""
        self._make_link = make_link
        self._number_of = number_of
        self._links: dict[bytes, _WorldLink] = {}
        self._link_of: BoundedDict[NodeId, _WorldLink] = BoundedDict(_NODES_MAX)
        """The link over which the latest message of a node came."""
        self._new_worlds = TokenBucket(_NEW_WORLDS, now_us)
        self._events: list[LinkEvent] = []
        self._dropped: Counter[str] = Counter()

    # Worlds

    def add_world(self, name: str) -> bool:
        """Makes the link of a world, if there is none; returns False if there are too many."""
        world = WorldInfo(name, named_world_id(INFRA, name), substrate=INFRA)
        digest = digest_world(world)
        if digest in self._links:
            return True
        if len(self._links) >= WORLDS_MAX and not self._remove_empty():
            return False
        self._links[digest] = _WorldLink(world, self._number_of(name), self._make_link(world))
        return True

    def _remove_empty(self) -> bool:
        for digest, known in self._links.items():
            if not known.link.neighbours:
                del self._links[digest]
                return True
        return False

    @property
    def worlds(self) -> list[WorldInfo]:
        """The worlds with a link."""
        return [known.world for known in self._links.values()]

    def neighbours_of(self, name: str) -> list[NodeId]:
        """The nodes in range that are in a world."""
        return [n for each in self._all() if each.world.name == name for n in each.link.neighbours]

    @property
    def neighbours(self) -> list[NodeId]:
        """The nodes in range, in any world."""
        return list(dict.fromkeys(n for each in self._all() for n in each.link.neighbours))

    @property
    def dropped(self) -> Counter[str]:
        """Number of dropped datagrams and messages, by reason."""
        return sum((each.link.dropped for each in self._all()), Counter(self._dropped))

    def _all(self) -> Iterator[_WorldLink]:
        return iter(list(self._links.values()))

    # The interface of a link

    @property
    def has_pending(self) -> bool:
        return any(each.link.has_pending for each in self._all())

    def send(self, to: NodeId, message: Message, now_us: int) -> None:
        """Queues a message for a node that has sent one before."""
        known = self._link_of.get(to)
        if known is None:
            self._events.append(MessageUndelivered(to, message))
            return
        known.link.send(to, message, now_us)
        self._collect(known)

    def broadcast(self, message: Message, now_us: int) -> None:
        for each in self._all():
            each.link.broadcast(message, now_us)

    def receive_datagram(self, datagram: bytes, address: Address, now_us: int) -> bool:
        """Passes a datagram to the link of its world, which is made for a new world."""
        digest = read_world_digest(datagram)
        known = self._links.get(digest)
        if known is None:
            known = self._meet_world(datagram, digest, now_us)
        if known is None or not known.link.receive_datagram(datagram, address, now_us):
            return False
        self._collect(known)
        return True

    def tick(self, now_us: int) -> None:
        for each in self._all():
            each.link.tick(now_us)
            self._collect(each)

    def next_tick_us(self) -> int:
        return min((each.link.next_tick_us() for each in self._all()), default=2**62)

    def drain_events(self) -> list[LinkEvent]:
        events, self._events = self._events, []
        return events

    def drain_datagrams(self) -> list[SendDatagram]:
        return [datagram for each in self._all() for datagram in each.link.drain_datagrams()]

    def _meet_world(self, datagram: bytes, digest: bytes, now_us: int) -> _WorldLink | None:
        """Makes the link of a world from the hello of one of its nodes."""
        try:
            content = decode(datagram).content
        except DecodeError as error:
            self._dropped[error.reason] += 1
            return None
        world = content.world if isinstance(content, Hello) and not content.closed else None
        if (
            world is None
            or world.substrate != INFRA
            or world.world_id != named_world_id(INFRA, world.name)
            or digest_world(world) != digest
        ):
            self._dropped["another world"] += 1
            return None
        if not self._new_worlds.consume(0, now_us) or not self.add_world(world.name):
            self._dropped["too many worlds"] += 1
            return None
        return self._links[digest]

    def _collect(self, known: _WorldLink) -> None:
        """Keeps the events of a link that concern a station."""
        for event in known.link.drain_events():
            if isinstance(event, MessageUndelivered):
                self._events.append(event)
            elif isinstance(event.message, ToStation):
                if event.message.world == known.number:
                    self._link_of.refresh(event.sender, known)
                    self._events.append(event)
                else:
                    self._dropped["wrong world"] += 1
