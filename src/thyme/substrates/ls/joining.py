"""Joining: a starting node requests the active subscriptions from its neighbours.

Entry point: `LsJoining`. Each receiver of a `JoinRequest` replies with a probability such that a
few replies are expected, after a random delay. The subscriptions are sent in messages of bounded
size. A request without a complete reply is repeated; after the last try the node assumes that it is
alone. Inserts and subscriptions do not wait for the join: a subscription received later is matched
against the node's objects when it arrives.
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
    """Settings of join requests and replies."""

    wait_us: int = SECOND_US
    tries_max: int = 3
    ask_jitter_us_max: int = SECOND_US // 5
    """Maximum random delay before each request, because many nodes may start at once."""
    answers_expected: float = 3.0
    """Number of neighbours that should reply. Each neighbour counts its own neighbours, and replies
    with the probability that gives this number; with a higher one at each retry."""
    answer_delay_us_max: int = SECOND_US // 2
    reply_bytes_max: int = 1_200
    """Maximum bytes of subscriptions in one reply; a larger subscription is sent alone."""
    again_us: int | None = None
    """Time after which a joined node sends another request, for subscriptions that floods did not
    deliver; None for never."""
    answer_later: bool = False
    """Whether a node that is joining itself replies after its join: of two nodes that return at the
    same time, each may have subscriptions that the other missed."""
    neighbour_us: int = 300 * SECOND_US
    """How long a node counts as a neighbour after its last message."""
    neighbours_max: int = 1_000


class Phase(Enum):
    """Progress of a node's join."""

    JOINING = "joining"
    JOINED = "joined"
    ALONE = "alone"


class JoinTimer(msgspec.Struct, frozen=True):
    """Timer of the next join request: the first, a retry, or a repeated join."""


class AnswerTimer(msgspec.Struct, frozen=True):
    """Timer of the reply to a neighbour's join request."""

    to: NodeId
    request: RequestNumber


class Neighbours:
    """Nodes from which a message was received recently."""

    def __init__(self, config: JoiningConfig) -> None:
        self._config = config
        self._heard_us: dict[NodeId, int] = {}

    def hear(self, node_id: NodeId, now_us: int) -> None:
        """Records a message from a neighbour."""
        self._heard_us.pop(node_id, None)
        self._heard_us[node_id] = now_us
        if len(self._heard_us) > self._config.neighbours_max:
            del self._heard_us[next(iter(self._heard_us))]

    def count(self, now_us: int) -> int:
        """The number of recent neighbours."""
        since_us = now_us - self._config.neighbour_us
        while self._heard_us:
            oldest, heard_us = next(iter(self._heard_us.items()))
            if heard_us >= since_us:
                break
            del self._heard_us[oldest]
        return len(self._heard_us)


class Joining:
    """Both sides of the join protocol of Thyme-LS."""

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
        """Starts to join after a random delay."""
        self._wait(0, now_us)

    def on_timer(self, now_us: int) -> None:
        """Sends a join request, or ends the join after the last try."""
        if self._attempt == 0:
            self._request += 1
        if self._attempt < self._config.tries_max:
            self._attempt += 1
            self._outbox.broadcast(JoinRequest(self._request, self._attempt))
            self._wait(self._config.wait_us, now_us)
        else:
            # A repeated join without a reply does not make a joined node alone.
            self._end(Phase.ALONE if self.phase is Phase.JOINING else self.phase, now_us)

    def on_request(self, sender: NodeId, request: JoinRequest, now_us: int) -> None:
        """Schedules a reply with some probability, after a random delay."""
        if self.phase is Phase.JOINING:
            # A joining node may know no more than the requester.
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
        """Sends all active subscriptions to the requester."""
        self._answering.discard(timer)
        bundles = bundled(self._held(), self._config.reply_bytes_max)
        for part, bundle in enumerate(bundles):
            self._outbox.send(timer.to, JoinReply(timer.request, part, len(bundles), bundle))

    def on_reply(self, sender: NodeId, reply: JoinReply, now_us: int) -> None:
        """Adds the subscriptions of a reply; a complete reply ends the join.

        Later replies are used, too.
        """
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
        """Asserts the invariants that hold between inputs."""
        assert len(self._parts) <= self._config.neighbours_max
        assert len(self._answering) <= self._config.neighbours_max
        assert len(self._asked_early) <= self._config.neighbours_max


def bundled(
    subscriptions: Iterable[Subscription], bytes_max: int
) -> list[tuple[Subscription, ...]]:
    """Splits subscriptions into bundles of bounded size, at least one bundle; keeps the order."""
    bundles: list[list[Subscription]] = [[]]
    free_bytes = bytes_max
    for subscription in subscriptions:
        size = len(msgspec.msgpack.encode(subscription))
        if bundles[-1] and size > free_bytes:
            bundles.append([])
            free_bytes = bytes_max
        bundles[-1].append(subscription)
        free_bytes -= size
    return [tuple(bundle) for bundle in bundles]
