"""The link: one hop between this device and those in reach, over datagrams that may be lost.

Messages for one node are repeated until it says that it has them, or given up, as a radio's MAC
would; messages for everybody go out once. Who is in reach is known from what is heard. Pure: the
host brings datagrams and instants, and carries out what comes of them.
Clauses: M21, M25, D4, D10.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from thyme import wire
from thyme.live.budget import Budget
from thyme.live.datagrams import (
    BODY_BYTES_MAX,
    LIFE_BYTES,
    NOBODY,
    SEALED_MAGIC,
    Cast,
    Content,
    Envelope,
    Got,
    Hello,
    Introduction,
    Part,
    Sheaf,
    bound,
    decode,
    encode,
    tag_of,
)
from thyme.live.incoming import Incoming
from thyme.live.outgoing import Outgoing
from thyme.live.terms import Address, Came, Effect, GaveUp, LinkConfig, Rate, Transmit
from thyme.model.errors import DecodeError
from thyme.model.ids import NodeId
from thyme.model.worlds import WorldInfo
from thyme.protocol.messages import Message

if TYPE_CHECKING:  # an open world of nodes without keys needs neither
    from thyme.live.identity import Passport
    from thyme.live.seal import Seal


class Neighbour:
    """Somebody in reach."""

    def __init__(self, address: Address, life: bytes, config: LinkConfig) -> None:
        self.address = address
        self.life = life
        self.born_us = 0
        self.heard_us = 0
        self.outgoing = Outgoing(config.pace)
        self.incoming = Incoming(config.bounds)


class Link:
    """The neighbours of one node in one world, and what goes to and comes from them."""

    def __init__(
        self,
        node_id: NodeId,
        world: WorldInfo,
        life: bytes,
        config: LinkConfig,
        *,
        seal: Seal | None = None,
        passport: Passport | None = None,
    ) -> None:
        """`life` is drawn anew whenever the node comes up. A closed world has a seal; with a
        passport, only those are heard who have introduced themselves (B5)."""
        self._node_id = node_id
        self._seal = seal
        self._passport = passport
        self._world = world
        self._tag = tag_of(world)
        self._life = life
        self._config = config
        self._neighbours: dict[NodeId, Neighbour] = {}
        self._budgets: dict[Address, Budget] = {}
        self._introductions: dict[Address, Budget] = {}
        self._effects: list[Effect] = []
        self._ready: list[Transmit] = []
        self._unsent: dict[Address | None, list[Content]] = {}
        self._hello_us = 0
        self.worlds: dict[str, WorldInfo] = {}
        """The worlds that were heard of, by identifier."""
        self.closed_worlds: dict[str, WorldInfo] = {}
        """Those of which only the name is told, since they have a secret."""
        self.dropped: Counter[str] = Counter()
        """Datagrams that came to nothing, by cause."""

    @property
    def neighbours(self) -> list[NodeId]:
        """Who is in reach, in order of acquaintance."""
        return list(self._neighbours)

    @property
    def hint(self) -> str | None:
        """What the user should know, if nobody can be understood (B5)."""
        return None if self._seal is None else self._seal.hint

    def acquaintances(self) -> list[tuple[NodeId, Address, int]]:
        """Who is in reach, where, and when it was last heard."""
        known = self._neighbours.items()
        return [(name, neighbour.address, neighbour.heard_us) for name, neighbour in known]

    @property
    def busy(self) -> bool:
        """Whether something is on its way to a neighbour."""
        return any(neighbour.outgoing.busy for neighbour in self._neighbours.values())

    def take(self) -> list[Effect]:
        """What came, and what did not reach a neighbour, in order."""
        effects, self._effects = self._effects, []
        return effects

    def transmits(self) -> list[Transmit]:
        """What is to be sent; the later this is asked, the more travels as one."""
        ready, self._ready = self._ready, []
        unsent, self._unsent = self._unsent, {}
        for to, contents in unsent.items():
            ready += [Transmit(to, self._datagram(content)) for content in bound(contents)]
        return ready

    def send(self, to: NodeId, message: Message, now_us: int) -> None:
        """Sends a message to a neighbour."""
        neighbour = self._neighbours.get(to)
        if neighbour is None or not neighbour.outgoing.put(wire.encode(message), message):
            self._effects.append(GaveUp(to, message))
        else:
            self._pump(to, neighbour, now_us)

    def broadcast(self, message: Message, now_us: int) -> None:
        """Sends a message to everybody in reach: once, or if it is long, surely to those known."""
        body = wire.encode(message)
        if len(body) <= BODY_BYTES_MAX:
            self._transmit(None, Cast(body))
            return
        for node_id, neighbour in list(self._neighbours.items()):
            if neighbour.outgoing.put(body, None):
                self._pump(node_id, neighbour, now_us)
            else:
                self.dropped["no room"] += 1

    def hear(self, datagram: bytes, address: Address, now_us: int) -> None:
        """A datagram came."""
        config = self._config
        if not self._within(self._budgets, config.rate, address, len(datagram), now_us):
            self.dropped["too much"] += 1
            return
        try:
            self._read(datagram, address, now_us)
        except DecodeError as error:
            self.dropped[error.reason] += 1

    def tick(self, now_us: int) -> None:
        """Time has passed: says hello, sends again, forgets who is gone."""
        if now_us >= self._hello_us:
            self._hello_us = now_us + self._config.hello_every_us
            self._greet(None)
            self._forget(now_us)
        for node_id, neighbour in list(self._neighbours.items()):
            self._pump(node_id, neighbour, now_us)

    def next_us(self) -> int:
        """When `tick` has something to do unless something comes before."""
        waits = [neighbour.outgoing.next_us() for neighbour in self._neighbours.values()]
        return min([self._hello_us, *(at_us for at_us in waits if at_us is not None)])

    def _read(self, datagram: bytes, address: Address, now_us: int) -> None:
        """Opens a datagram, if it is sealed, and takes it in."""
        if not datagram.startswith(SEALED_MAGIC):
            self._take_in(decode(datagram), address, now_us, sealed=False)
        elif self._seal is None:
            raise DecodeError("another world", "a closed one")
        else:
            opened = self._seal.open(datagram)
            if opened.reply is not None:
                self._ready.append(Transmit(address, opened.reply))
            for plain in opened.datagrams:
                self._take_in(decode(plain), address, now_us, sealed=True)

    def _take_in(self, envelope: Envelope, address: Address, now_us: int, *, sealed: bool) -> None:
        sender, content = envelope.sender, envelope.content
        if sender == self._node_id:
            if envelope.life != self._life:
                raise DecodeError("our name", "somebody else has it")
            return
        ours = envelope.world_tag == self._tag
        if isinstance(content, Hello) and (content.closed or not ours):
            self._note_world(content)
            if content.closed:
                return
        if not ours:
            raise DecodeError("another world", "not ours")
        if sealed != (self._seal is not None):
            raise DecodeError("not sealed", "in a closed world everything is")
        neighbour = self._neighbours.get(sender)
        if neighbour is None or neighbour.life != envelope.life:
            neighbour = self._meet(envelope, neighbour, address, now_us)
        neighbour.address = address
        neighbour.heard_us = now_us
        if not isinstance(content, Sheaf):
            self._hear(sender, neighbour, content, now_us)
            return
        for item in content.items:
            if not self._within(self._budgets, self._config.rate, address, 0, now_us):
                raise DecodeError("too much", "in one datagram")
            self._hear(sender, neighbour, item, now_us)

    def _hear(
        self, sender: NodeId, neighbour: Neighbour, content: Hello | Cast | Part | Got, now_us: int
    ) -> None:
        match content:
            case Hello():
                self._note_world(content)
            case Cast():
                self._deliver(sender, content.body)
            case Part():
                body, got = neighbour.incoming.on_part(content, now_us)
                if got is not None:
                    self._transmit(neighbour.address, got)
                if body is not None:
                    self._deliver(sender, body)
            case Got():
                neighbour.outgoing.on_got(content, now_us)
                self._pump(sender, neighbour, now_us)

    def _deliver(self, sender: NodeId, body: bytes) -> None:
        try:
            message = wire.decode(body)
        except DecodeError as error:
            self.dropped[error.reason] += 1
            return
        self._effects.append(Came(sender, message))

    def _pump(self, node_id: NodeId, neighbour: Neighbour, now_us: int) -> None:
        for part in neighbour.outgoing.due(now_us):
            self._transmit(neighbour.address, part)
        for token in neighbour.outgoing.failures():
            if token is not None:
                assert isinstance(token, Message)
                self._effects.append(GaveUp(node_id, token))

    def _transmit(self, to: Address | None, content: Content) -> None:
        unsent = self._unsent.setdefault(to, [])
        if isinstance(content, Got) and unsent:
            earlier = unsent[-1]
            if isinstance(earlier, Got) and earlier.number == content.number:
                unsent.pop()  # the later one says all that it says
        unsent.append(content)

    def _datagram(self, content: Content) -> bytes:
        datagram = encode(self._tag, self._life, self._node_id, content)
        return datagram if self._seal is None else self._seal.close(datagram)

    def _greet(self, to: Address | None) -> None:
        """Says that we are here; of a closed world, others learn the name. That comes first: who
        knows the secret can then read the rest."""
        if self._seal is not None and to is None:
            notice = Hello(WorldInfo(self._world.name, self._world.wid), closed=True)
            datagram = encode(self._tag, bytes(LIFE_BYTES), NOBODY, notice)
            self._ready.append(Transmit(None, datagram))
        introduction = None if self._passport is None else self._passport.introduction
        self._transmit(to, Hello(self._world, introduction=introduction))

    def _meet(
        self, envelope: Envelope, known: Neighbour | None, address: Address, now_us: int
    ) -> Neighbour:
        """Somebody new, or in a new life; it is greeted, so that it need not wait to know us."""
        sender, born_us = envelope.sender, 0
        if self._passport is not None:
            born_us = self._look_at(envelope, known, address, now_us)
        if known is not None:
            self._part_from(sender, known)
        elif len(self._neighbours) >= self._config.neighbours_max:
            raise DecodeError("too many neighbours", f"{len(self._neighbours)} are enough")
        neighbour = self._neighbours[sender] = Neighbour(address, envelope.life, self._config)
        neighbour.born_us = born_us
        self._greet(address)
        return neighbour

    def _look_at(
        self, envelope: Envelope, known: Neighbour | None, address: Address, now_us: int
    ) -> int:
        """Makes sure that somebody is who it says, and returns when its life began."""
        assert self._passport is not None
        introduction = _introduction(envelope.content)
        if introduction is None:
            raise DecodeError("not introduced", "says who it is with its next greeting")
        if known is not None and introduction.born_us <= known.born_us:
            raise DecodeError("old life", "it has begun another since")
        if not self._within(self._introductions, self._config.introductions, address, 0, now_us):
            raise DecodeError("too much", "introductions")
        if not self._passport.believes(envelope.sender, envelope.life, introduction):
            raise DecodeError("forged", "not its key, or not its signature")
        return introduction.born_us

    def _part_from(self, node_id: NodeId, neighbour: Neighbour) -> None:
        """A neighbour is gone, or came back as another: what was for it did not arrive."""
        del self._neighbours[node_id]
        neighbour.outgoing.give_up()
        for token in neighbour.outgoing.failures():
            if token is not None:
                assert isinstance(token, Message)
                self._effects.append(GaveUp(node_id, token))

    def _forget(self, now_us: int) -> None:
        for node_id, neighbour in list(self._neighbours.items()):
            neighbour.incoming.expire(now_us)
            if neighbour.heard_us + self._config.silent_us_max < now_us:
                self._part_from(node_id, neighbour)
        for budgets in (self._budgets, self._introductions):
            for address, budget in list(budgets.items()):
                if budget.is_full(now_us):
                    del budgets[address]

    def _note_world(self, hello: Hello) -> None:
        worlds, world = self.closed_worlds if hello.closed else self.worlds, hello.world
        if world.wid in worlds or len(worlds) < self._config.worlds_max:
            worlds[world.wid] = world

    def _within(
        self, budgets: dict[Address, Budget], rate: Rate, address: Address, size: int, now_us: int
    ) -> bool:
        budget = budgets.get(address)
        if budget is None:
            budget = budgets[address] = Budget(rate, now_us)
        return budget.spend(size, now_us)


def _introduction(content: Content) -> Introduction | None:
    return content.introduction if isinstance(content, Hello) else None
