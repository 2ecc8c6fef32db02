"""Joining: a starting node requests the active subscriptions from its neighbours.

Entry point: `LsJoining`. Each receiver of a `JoinRequest` replies with a probability such that a
few replies are expected, after a random delay. The subscriptions are sent in messages of bounded
size. A request without a complete reply is repeated; after the last try the node assumes that it is
alone. Inserts and subscriptions do not wait for the join: a subscription received later is matched
against the node's objects when it arrives.
Clauses: L5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from random import Random

import msgspec

from thyme.model.bounded import BoundedDict, drop_before
from thyme.model.ids import NodeId, RequestId
from thyme.model.subscriptions import SubscriptionRecord
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.replies import JoinReply
from thyme.protocol.messages.requests import JoinRequest
from thyme.protocol.outbox import Outbox

_WAIT_US = SECOND_US
"""How long to wait for a complete reply before the request is repeated."""
_REPLY_DELAY_US_MAX = SECOND_US // 2
_REPLIES_EXPECTED = 3.0
"""Number of neighbours that should reply. Each neighbour counts its own neighbours, and replies
with the probability that gives this number; with a higher one at each retry."""
_REPLY_BYTES_MAX = 1_200
"""Maximum bytes of subscriptions in one reply; a larger subscription is sent alone."""


class LsJoiningConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of join requests and replies."""

    tries_max: int = 3
    request_jitter_us_max: int = SECOND_US // 5
    """Maximum random delay before each request, because many nodes may start at once."""
    reply_later: bool = False
    """Whether a node that is joining itself replies after its join: of two nodes that return at the
    same time, each may have subscriptions that the other missed."""
    neighbour_timeout_us: int = 300 * SECOND_US
    """How long a node counts as a neighbour after its last message."""
    neighbours_max: int = 1_000


class LsJoinPhase(Enum):
    """Progress of a node's join."""

    JOINING = "joining"
    JOINED = "joined"
    ALONE = "alone"


class LsJoinTimer(msgspec.Struct, frozen=True):
    """Timer of the next join request: the first, or a retry."""


class JoinReplyTimer(msgspec.Struct, frozen=True):
    """Timer of the reply to a neighbour's join request."""

    to: NodeId
    request: RequestId


class RecentNeighbours:
    """Nodes from which a message was received recently."""

    def __init__(self, config: LsJoiningConfig) -> None:
        self._config = config
        self._last_seen_us: BoundedDict[NodeId, int] = BoundedDict(config.neighbours_max)

    def record_message(self, node_id: NodeId, now_us: int) -> bool:
        """Records a message from a neighbour; returns whether it was not a neighbour before."""
        since_us = now_us - self._config.neighbour_timeout_us
        is_new = self._last_seen_us.get(node_id, since_us - 1) < since_us
        self._last_seen_us.refresh(node_id, now_us)
        return is_new

    def recent(self, now_us: int) -> Collection[NodeId]:
        """The recent neighbours."""
        drop_before(self._last_seen_us, now_us - self._config.neighbour_timeout_us)
        return self._last_seen_us.keys()

    def count_recent(self, now_us: int) -> int:
        """The number of recent neighbours."""
        return len(self.recent(now_us))


class LsJoining:
    """Both sides of the join protocol of Thyme-LS."""

    def __init__(
        self,
        outbox: Outbox,
        rng: Random,
        config: LsJoiningConfig,
        active_subscriptions: Callable[[], Iterable[SubscriptionRecord]],
        add_subscription: Callable[[SubscriptionRecord, NodeId, int], None],
    ) -> None:
        self._outbox = outbox
        self._rng = rng
        self._config = config
        self._active_subscriptions = active_subscriptions
        self._add_subscription = add_subscription
        self.neighbours = RecentNeighbours(config)
        self.phase = LsJoinPhase.JOINING
        self._request_number = rng.getrandbits(48)
        self._attempt = 0
        self._parts_received: dict[NodeId, set[int]] = {}
        self._replies_pending: set[JoinReplyTimer] = set()
        self._deferred_requests: dict[NodeId, JoinRequest] = {}

    def start(self, now_us: int) -> None:
        """Starts to join after a random delay."""
        self._schedule_request(0, now_us)

    def on_join_timer(self, now_us: int) -> None:
        """Sends a join request, or ends the join after the last try."""
        if self._attempt == 0:
            self._request_number += 1
        if self._attempt < self._config.tries_max:
            self._attempt += 1
            self._outbox.broadcast(JoinRequest(self._request_number, self._attempt))
            self._schedule_request(_WAIT_US, now_us)
        else:
            self._finish(LsJoinPhase.ALONE, now_us)

    def on_request(self, sender: NodeId, request: JoinRequest, now_us: int) -> None:
        """Schedules a reply with some probability, after a random delay."""
        if self.phase is LsJoinPhase.JOINING:
            # A joining node may know no more than the requester.
            if (
                self._config.reply_later
                and len(self._deferred_requests) < self._config.neighbours_max
            ):
                self._deferred_requests[sender] = request
            return
        expected = _REPLIES_EXPECTED * max(1, request.attempt)
        if self._rng.random() * max(1, self.neighbours.count_recent(now_us)) >= expected:
            return
        timer = JoinReplyTimer(sender, request.request_id)
        if (
            timer not in self._replies_pending
            and len(self._replies_pending) < self._config.neighbours_max
        ):
            self._replies_pending.add(timer)
            delay_us = self._rng.randint(0, _REPLY_DELAY_US_MAX)
            self._outbox.set_timer(timer, now_us + delay_us)

    def on_reply_timer(self, timer: JoinReplyTimer) -> None:
        """Sends all active subscriptions to the requester."""
        self._replies_pending.discard(timer)
        bundles = split_by_bytes(self._active_subscriptions(), _REPLY_BYTES_MAX)
        for part, bundle in enumerate(bundles):
            self._outbox.send(timer.to, JoinReply(timer.request, part, len(bundles), bundle))

    def on_reply(self, sender: NodeId, reply: JoinReply, now_us: int) -> None:
        """Adds the subscriptions of a reply; a complete reply ends the join.

        Later replies are used, too.
        """
        if reply.request_id != self._request_number:
            return
        for subscription in reply.subscriptions:
            self._add_subscription(subscription, sender, now_us)
        if self._attempt > 0 and len(self._parts_received) < self._config.neighbours_max:
            parts = self._parts_received.setdefault(sender, set())
            parts.add(reply.part)
            if len(parts) >= reply.parts:
                self._finish(LsJoinPhase.JOINED, now_us)

    def _schedule_request(self, wait_us: int, now_us: int) -> None:
        jitter_us = self._rng.randint(0, self._config.request_jitter_us_max)
        self._outbox.set_timer(LsJoinTimer(), now_us + wait_us + jitter_us)

    def _finish(self, phase: LsJoinPhase, now_us: int) -> None:
        self.phase = phase
        self._attempt = 0
        self._parts_received.clear()
        self._outbox.cancel_timer(LsJoinTimer())
        deferred, self._deferred_requests = self._deferred_requests, {}
        if deferred and any(True for _ in self._active_subscriptions()):
            for sender, request in deferred.items():
                self.on_request(sender, request, now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert len(self._parts_received) <= self._config.neighbours_max
        assert len(self._replies_pending) <= self._config.neighbours_max
        assert len(self._deferred_requests) <= self._config.neighbours_max


def split_by_bytes(
    subscriptions: Iterable[SubscriptionRecord], bytes_max: int
) -> list[tuple[SubscriptionRecord, ...]]:
    """Splits subscriptions into bundles of bounded size, at least one bundle; keeps the order."""
    bundles: list[list[SubscriptionRecord]] = [[]]
    free_bytes = bytes_max
    for subscription in subscriptions:
        size = len(msgspec.msgpack.encode(subscription))
        if bundles[-1] and size > free_bytes:
            bundles.append([])
            free_bytes = bytes_max
        bundles[-1].append(subscription)
        free_bytes -= size
    return [tuple(bundle) for bundle in bundles]
