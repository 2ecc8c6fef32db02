"""Joining: a node that comes asks its neighbours which subscriptions there are.

Only some of those who hear the question answer, chosen by a toss of a coin such that a few answers
are to be expected; each waits a random time first. What they hold comes in messages of bounded
size. A question without a whole answer is repeated; after the last try the node takes itself to be
alone. Nothing waits for the end of it: inserts and subscriptions need no one's leave, and what is
learnt late is matched against the node's objects then.
Clauses: L5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from random import Random

import msgspec

from thyme.model.frames import SECOND_US
from thyme.model.ids import NodeId, RequestNumber
from thyme.model.subscriptions import Subscription
from thyme.protocol.messages import JoinReply, JoinRequest
from thyme.protocol.outbox import Outbox


class JoiningConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How to ask, and how to answer."""

    wait_us: int = SECOND_US
    tries_max: int = 3
    ask_jitter_us_max: int = SECOND_US // 5
    """The longest a node waits before each question: many may come up at once."""
    answers_expected: float = 3.0
    """How many neighbours should answer. Each knows how many it has heard itself, and answers with
    the probability that makes so many of them; more readily when it is asked again."""
    answer_delay_us_max: int = SECOND_US // 2
    reply_bytes_max: int = 1_200
    """How many bytes of subscriptions one message brings; a larger subscription comes alone."""
    again_us: int | None = None
    """How long after joining to ask once more, for what floods did not bring; None for never."""
    answer_later: bool = False
    """Whether who is asked while it is joining itself answers when it is done: of two that come
    back together, each may hold what the other has missed."""
    neighbour_us: int = 300 * SECOND_US
    """For how long one that was heard counts as a neighbour."""
    neighbours_max: int = 1_000


class Phase(Enum):
    """How far a node has come."""

    JOINING = "joining"
    JOINED = "joined"
    ALONE = "alone"


class JoinTimer(msgspec.Struct, frozen=True):
    """Time to ask: for the first time, again, or once more after a while."""


class AnswerTimer(msgspec.Struct, frozen=True):
    """Time to answer a neighbour's question."""

    to: NodeId
    request: RequestNumber


class Neighbours:
    """Who was heard lately."""

    def __init__(self, config: JoiningConfig) -> None:
        self._config = config
        self._heard_us: dict[NodeId, int] = {}

    def hear(self, node_id: NodeId, now_us: int) -> None:
        """Notes that a neighbour spoke."""
        self._heard_us.pop(node_id, None)
        self._heard_us[node_id] = now_us
        if len(self._heard_us) > self._config.neighbours_max:
            del self._heard_us[next(iter(self._heard_us))]

    def count(self, now_us: int) -> int:
        """How many there are."""
        since_us = now_us - self._config.neighbour_us
        while self._heard_us:
            oldest, heard_us = next(iter(self._heard_us.items()))
            if heard_us >= since_us:
                break
            del self._heard_us[oldest]
        return len(self._heard_us)


class Joining:
    """Both sides of the join protocol."""

    def __init__(
        self,
        outbox: Outbox,
        rng: Random,
        config: JoiningConfig,
        held: Callable[[], Iterable[Subscription]],
        learn: Callable[[Subscription, NodeId, int], None],
    ) -> None:
        self._outbox = outbox
        self._rng = rng
        self._config = config
        self._held = held
        self._learn = learn
        self.neighbours = Neighbours(config)
        self.phase = Phase.JOINING
        self._request = rng.getrandbits(48)
        self._attempt = 0
        self._parts: dict[NodeId, set[int]] = {}
        self._answering: set[AnswerTimer] = set()
        self._asked_early: dict[NodeId, JoinRequest] = {}

    def start(self, now_us: int) -> None:
        """Begins to ask, in a moment."""
        self._wait(0, now_us)

    def on_timer(self, now_us: int) -> None:
        """Asks, or asks again; or takes it that nobody is there."""
        if self._attempt == 0:
            self._request += 1
        if self._attempt < self._config.tries_max:
            self._attempt += 1
            self._outbox.broadcast(JoinRequest(self._request, self._attempt))
            self._wait(self._config.wait_us, now_us)
        else:
            # One that was among others and asks again has not become alone by a lost answer.
            self._end(Phase.ALONE if self.phase is Phase.JOINING else self.phase, now_us)

    def on_request(self, sender: NodeId, request: JoinRequest, now_us: int) -> None:
        """Tosses the coin; if it says so, answers after a random time."""
        if self.phase is Phase.JOINING:
            # It knows no more than the one who asks, as far as it knows.
            if self._config.answer_later and len(self._asked_early) < self._config.neighbours_max:
                self._asked_early[sender] = request
            return
        expected = self._config.answers_expected * max(1, request.attempt)
        if self._rng.random() * max(1, self.neighbours.count(now_us)) >= expected:
            return
        timer = AnswerTimer(sender, request.request)
        if timer not in self._answering and len(self._answering) < self._config.neighbours_max:
            self._answering.add(timer)
            delay_us = self._rng.randint(0, self._config.answer_delay_us_max)
            self._outbox.set_timer(timer, now_us + delay_us)

    def on_answer_timer(self, timer: AnswerTimer) -> None:
        """Sends all subscriptions held here."""
        self._answering.discard(timer)
        bundles = bundled(self._held(), self._config.reply_bytes_max)
        for part, bundle in enumerate(bundles):
            self._outbox.send(timer.to, JoinReply(timer.request, part, len(bundles), bundle))

    def on_reply(self, sender: NodeId, reply: JoinReply, now_us: int) -> None:
        """Learns; a whole answer ends the joining. Answers that follow are as welcome."""
        if reply.request != self._request:
            return
        for subscription in reply.subscriptions:
            self._learn(subscription, sender, now_us)
        if self._attempt > 0 and len(self._parts) < self._config.neighbours_max:
            parts = self._parts.setdefault(sender, set())
            parts.add(reply.part)
            if len(parts) >= reply.parts:
                self._end(Phase.JOINED, now_us)

    def _wait(self, wait_us: int, now_us: int) -> None:
        jitter_us = self._rng.randint(0, self._config.ask_jitter_us_max)
        self._outbox.set_timer(JoinTimer(), now_us + wait_us + jitter_us)

    def _end(self, phase: Phase, now_us: int) -> None:
        self.phase = phase
        self._attempt = 0
        self._parts.clear()
        if self._config.again_us is None:
            self._outbox.cancel_timer(JoinTimer())
        else:
            self._wait(self._config.again_us, now_us)
        early, self._asked_early = self._asked_early, {}
        if early and any(True for _ in self._held()):
            for sender, request in early.items():
                self.on_request(sender, request, now_us)

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        assert len(self._parts) <= self._config.neighbours_max
        assert len(self._answering) <= self._config.neighbours_max
        assert len(self._asked_early) <= self._config.neighbours_max


def bundled(
    subscriptions: Iterable[Subscription], bytes_max: int
) -> list[tuple[Subscription, ...]]:
    """Subscriptions in bundles of bounded size, at least one bundle; order is kept."""
    bundles: list[list[Subscription]] = [[]]
    room = bytes_max
    for subscription in subscriptions:
        size = len(msgspec.msgpack.encode(subscription))
        if bundles[-1] and size > room:
            bundles.append([])
            room = bytes_max
        bundles[-1].append(subscription)
        room -= size
    return [tuple(bundle) for bundle in bundles]
