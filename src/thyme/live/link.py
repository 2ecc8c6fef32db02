"""Link: sends and receives messages over one hop, on datagrams that may be lost.

Unicast messages are retransmitted until they are acknowledged or fail, as in a radio's MAC layer;
broadcast messages are sent once. A neighbour is a node from which datagrams arrive. Pure: the host
passes in datagrams and the time, and drains the link's events and datagrams.
Entry point: `Link`. Fragments are up to `send_window` and `reassembly`, encryption to `encryption`.
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

if TYPE_CHECKING:  # without keys and secrets, the link needs no cryptography at run time
    from thyme.live.identity import Passport
    from thyme.live.seal import Seal


class Neighbour:
    """State of the link to one node in range."""

    def __init__(self, address: Address, life: bytes, config: LinkConfig) -> None:
        self.address = address
        self.life = life
        self.born_us = 0
        self.heard_us = 0
        self.outgoing = Outgoing(config.pace)
        self.incoming = Incoming(config.bounds)


class Link:
    """Exchanges messages between one node and its neighbours in one world."""

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
        """`incarnation` is a new random id for each start of the node. A closed world needs a
        cipher; with an authenticator, only neighbours with a valid identity proof are accepted
        (B5)."""
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
        """Open worlds from received hellos, by world id."""
        self.closed_worlds: dict[str, WorldInfo] = {}
        """Closed worlds from received hellos, by world id; only their names are known."""
        self.dropped: Counter[str] = Counter()
        """Number of dropped datagrams and messages, by reason."""

    @property
    def neighbours(self) -> list[NodeId]:
        """The nodes in range, oldest neighbour first."""
        return list(self._neighbours)

    @property
    def hint(self) -> str | None:
        """Advice for the user if no datagram of this world can be decrypted (B5)."""
        return None if self._seal is None else self._seal.hint

    def acquaintances(self) -> list[tuple[NodeId, Address, int]]:
        """Node id, address and last receive time of each neighbour."""
        known = self._neighbours.items()
        return [(name, neighbour.address, neighbour.heard_us) for name, neighbour in known]

    @property
    def busy(self) -> bool:
        """Whether a message to a neighbour is not acknowledged yet."""
        return any(neighbour.outgoing.busy for neighbour in self._neighbours.values())

    def take(self) -> list[Effect]:
        """Returns and clears the received and undelivered messages, in order."""
        effects, self._effects = self._effects, []
        return effects

    def transmits(self) -> list[Transmit]:
        """Returns and clears the datagrams to send; contents queued together share datagrams."""
        ready, self._ready = self._ready, []
        unsent, self._unsent = self._unsent, {}
        for to, contents in unsent.items():
            ready += [Transmit(to, self._datagram(content)) for content in bound(contents)]
        return ready

    def send(self, to: NodeId, message: Message, now_us: int) -> None:
        """Queues a message for a neighbour."""
        neighbour = self._neighbours.get(to)
        if neighbour is None or not neighbour.outgoing.put(wire.encode(message), message):
            self._effects.append(GaveUp(to, message))
        else:
            self._pump(to, neighbour, now_us)

    def broadcast(self, message: Message, now_us: int) -> None:
        """Queues a message for all nodes in range; a long one goes to each neighbour by unicast."""
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
        """Processes a received datagram."""
        config = self._config
        if not self._within(self._budgets, config.rate, address, len(datagram), now_us):
            self.dropped["too much"] += 1
            return
        try:
            self._read(datagram, address, now_us)
        except DecodeError as error:
            self.dropped[error.reason] += 1

    def tick(self, now_us: int) -> None:
        """Sends the periodic hello, retransmits, and removes silent neighbours."""
        if now_us >= self._hello_us:
            self._hello_us = now_us + self._config.hello_every_us
            self._greet(None)
            self._forget(now_us)
        for node_id, neighbour in list(self._neighbours.items()):
            self._pump(node_id, neighbour, now_us)

    def next_us(self) -> int:
        """The time at which `tick` must be called next."""
        waits = [neighbour.outgoing.next_us() for neighbour in self._neighbours.values()]
        return min([self._hello_us, *(at_us for at_us in waits if at_us is not None)])

    def _read(self, datagram: bytes, address: Address, now_us: int) -> None:
        """Decrypts a datagram, if it is encrypted, and dispatches it."""
        if not datagram.startswith(SEALED_MAGIC):
            self._take_in(decode(datagram), address, now_us, sealed=False)
        elif self._seal is None:
            raise DecodeError("another world", "encrypted datagram of a closed world")
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
                raise DecodeError("our name", "another node uses our node id")
            return
        ours = envelope.world_tag == self._tag
        if isinstance(content, Hello) and (content.closed or not ours):
            self._note_world(content)
            if content.closed:
                return
        if not ours:
            raise DecodeError("another world", "world digest differs")
        if sealed != (self._seal is not None):
            raise DecodeError("not sealed", "a closed world accepts only encrypted datagrams")
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
                raise DecodeError("too much", "rate limit exceeded within a bundle")
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
                unsent.pop()  # the later ack covers the earlier one
        unsent.append(content)

    def _datagram(self, content: Content) -> bytes:
        datagram = encode(self._tag, self._life, self._node_id, content)
        return datagram if self._seal is None else self._seal.close(datagram)

    def _greet(self, to: Address | None) -> None:
        """Queues a hello. A broadcast hello of a closed world is preceded by an unencrypted one
        with the world's name, so that a node with the secret can decrypt the second."""
        if self._seal is not None and to is None:
            notice = Hello(WorldInfo(self._world.name, self._world.wid), closed=True)
            datagram = encode(self._tag, bytes(LIFE_BYTES), NOBODY, notice)
            self._ready.append(Transmit(None, datagram))
        introduction = None if self._passport is None else self._passport.introduction
        self._transmit(to, Hello(self._world, introduction=introduction))

    def _meet(
        self, envelope: Envelope, known: Neighbour | None, address: Address, now_us: int
    ) -> Neighbour:
        """Adds a new node, or a new incarnation of one, and sends it a hello at once."""
        sender, born_us = envelope.sender, 0
        if self._passport is not None:
            born_us = self._look_at(envelope, known, address, now_us)
        if known is not None:
            self._part_from(sender, known)
        elif len(self._neighbours) >= self._config.neighbours_max:
            raise DecodeError("too many neighbours", f"{len(self._neighbours)} is the maximum")
        neighbour = self._neighbours[sender] = Neighbour(address, envelope.life, self._config)
        neighbour.born_us = born_us
        self._greet(address)
        return neighbour

    def _look_at(
        self, envelope: Envelope, known: Neighbour | None, address: Address, now_us: int
    ) -> int:
        """Verifies the identity proof of a sender; returns the start time of its incarnation."""
        assert self._passport is not None
        introduction = _introduction(envelope.content)
        if introduction is None:
            raise DecodeError("not introduced", "no identity proof yet; the next hello has one")
        if known is not None and introduction.born_us <= known.born_us:
            raise DecodeError("old life", "a later incarnation is known")
        if not self._within(self._introductions, self._config.introductions, address, 0, now_us):
            raise DecodeError("too much", "rate limit of identity proofs exceeded")
        if not self._passport.believes(envelope.sender, envelope.life, introduction):
            raise DecodeError("forged", "wrong key or invalid signature")
        return introduction.born_us

    def _part_from(self, node_id: NodeId, neighbour: Neighbour) -> None:
        """Removes a neighbour that is gone or has restarted; its pending messages fail."""
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
