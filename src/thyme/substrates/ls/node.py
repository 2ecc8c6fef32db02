"""Node of Thyme-LS: broker of its own objects, for the subscriptions of all nodes.

Entry point: `LsNode.handle`. Inserts and deletes are local (L1). Subscriptions arrive by flooding
(`thyme.routing.flooding`) or by joining (`joining`); each is matched against the node's objects
when it arrives (L3), and every new object against all subscriptions. Unicast messages are sent as
if every node were a neighbour; `RoutedNode` forwards them over several hops (L4).
Clauses: L1–L7, M21, M24, B5.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import assert_never

import msgspec

from thyme.model.errors import OperationError
from thyme.model.frames import SECOND_US
from thyme.model.ids import NodeId
from thyme.model.metadata import Limits
from thyme.model.subscriptions import Subscription
from thyme.protocol import messages as wire
from thyme.protocol.letters import Letters, LetterTimer
from thyme.protocol.node import (
    Action,
    Asked,
    Input,
    Leaving,
    Moved,
    Received,
    SendFailed,
    Started,
    TimerFired,
)
from thyme.protocol.operations import Operations, RetryPolicy, RetryTimer
from thyme.protocol.outbox import Outbox
from thyme.protocol.warden import Warden, admitted
from thyme.routing.flooding import Flooding, FloodingConfig, ForgetFloods, Rebroadcast
from thyme.storage.store import Store
from thyme.substrates.broker import Broker, BrokerConfig
from thyme.substrates.brokers import AtHome
from thyme.substrates.client import Client, Guarantees
from thyme.substrates.desk import BrokerDue, Desk, as_reply, page_for, post_note
from thyme.substrates.lifespan import LifeSpan, WorldOver
from thyme.substrates.loopback import looped_back
from thyme.substrates.ls.joining import AnswerTimer, Joining, JoiningConfig, JoinTimer
from thyme.substrates.ls.owners import CollectingConfig, CollectionOver, EveryOwner
from thyme.substrates.subscriber import EndOfFrame, Subscriber, SubscriberConfig


class LsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a node of Thyme-LS; the defaults are the profile `PAPER`."""

    limits: Limits = Limits()
    retries: RetryPolicy = RetryPolicy()
    letters: RetryPolicy = RetryPolicy(tries_max=1)
    """Retries of notifications and pages until they are acknowledged; with 1 try there is no
    acknowledgement, and delivery is up to the link."""
    flooding: FloodingConfig = FloodingConfig()
    joining: JoiningConfig = JoiningConfig()
    collecting: CollectingConfig = CollectingConfig()
    broker: BrokerConfig = BrokerConfig()
    subscriber: SubscriberConfig = SubscriberConfig()
    world_ends_us: int | None = None
    late_batch: int = 20
    """Number of stored matches that a node sends for a subscription that it received by joining."""


PAPER = LsConfig()
"""As in the papers: floods are sent once, and delivery of notifications is up to the link."""
ROBUST = LsConfig(
    letters=RetryPolicy(tries_max=8, wait_us=SECOND_US // 4, backoff=1.25),
    flooding=FloodingConfig(repeats=6),
    joining=JoiningConfig(again_us=30 * SECOND_US, answer_later=True),
    collecting=CollectingConfig(merge_us=2 * SECOND_US, search_us=2 * SECOND_US),
)
"""For lossy networks: repeated floods, acknowledged notifications, and repeated joins."""


class LsNode:
    """A node of Thyme-LS; all nodes are equal."""

    def __init__(
        self,
        node_id: NodeId,
        store: Store,
        rng: Random,
        config: LsConfig,
        warden: Warden | None = None,
    ) -> None:
        self._node_id = node_id
        self._warden = warden
        notary = None if warden is None else warden.notary
        self._store = store
        self._rng = rng
        self._config = config
        self._outbox = outbox = Outbox()
        self._operations = Operations(outbox, config.retries, rng)
        self._letters = Letters(outbox, config.letters, rng)
        self._life_span = LifeSpan(outbox, config.world_ends_us)
        self.flooding = Flooding(node_id, outbox, rng, config.flooding, self._on_flood)
        # Expired records of an earlier incarnation are removed at `Started`, which has the time.
        self.broker = Broker(store, config.broker, now_us=0, own=node_id)
        self._desk = Desk(self.broker, outbox, self._notify)
        self.joining = Joining(outbox, rng, config.joining, self.broker.held, self._learn)
        self.subscriber = Subscriber(node_id, outbox, store, config.subscriber, notary)
        self._owners = EveryOwner(
            self._desk, node_id, outbox, self._operations, self.flooding, rng, config.collecting
        )
        self._client = Client(
            node_id,
            AtHome(lambda key: key.owner, self._operations),
            self._owners,
            outbox,
            self.subscriber,
            rng,
            config.limits,
            Guarantees(copies_max=1, durable=store.durable),
            notary,
        )
        self.dropped: Counter[str] = Counter() if warden is None else warden.dropped

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Processes one input; returns the resulting actions in order."""
        self._dispatch(event, now_us)
        actions = looped_back(
            self._outbox,
            self._node_id,
            lambda message: self._on_message(self._node_id, message, now_us),
        )
        self._desk.set_timer()
        actions = [*actions, *self._outbox.take()]
        return actions if self._warden is None else self._warden.signed(actions, now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        for part in (self.subscriber, self.broker, self.flooding, self.joining, self._letters):
            part.check()

    def _dispatch(self, event: Input, now_us: int) -> None:
        match event:
            case Started():
                self.broker.expire(now_us)
                self.subscriber.set_timers()
                self._life_span.set_timer()
                self.joining.start(now_us)
            case Asked():
                if not self._life_span.refuses(event.request, now_us):
                    self._client.on_asked(event.request, now_us)
            case Received():
                message = admitted(self._warden, event.sender, event.message)
                if message is not None:
                    self._on_message(event.sender, message, now_us)
            case TimerFired():
                self._on_timer(event, now_us)
            case SendFailed():
                self.dropped["unreachable"] += 1  # timers of requests and reliable sends try again
            case Moved():
                pass
            case Leaving():
                pass  # objects leave with their owner (L6); there is no state to transfer
            case _:
                assert_never(event)

    def _on_timer(self, event: TimerFired, now_us: int) -> None:
        match event.timer:
            case RetryTimer():
                self._operations.on_timer(event.timer, now_us)
            case LetterTimer():
                self._letters.on_timer(event.timer, now_us)
            case Rebroadcast():
                self.flooding.on_rebroadcast(event.timer, now_us)
            case ForgetFloods():
                self.flooding.on_forget(now_us)
            case CollectionOver():
                self._owners.on_collection_over(event.timer, now_us)
            case EndOfFrame():
                self.subscriber.on_end_of_frame(event.timer.sid, now_us)
            case BrokerDue():
                self._desk.on_due(now_us)
            case JoinTimer():
                self.joining.on_timer(now_us)
            case AnswerTimer():
                self.joining.on_answer_timer(event.timer)
            case WorldOver():
                self.subscriber.end_all("the life span of its world is over")

    def _on_message(self, sender: NodeId, message: wire.Message, now_us: int) -> None:
        match message:
            case wire.Flooded():
                self.joining.neighbours.hear(sender, now_us)
                self.flooding.on_flooded(message, now_us)
            case wire.JoinRequest():
                self.joining.neighbours.hear(sender, now_us)
                self.joining.on_request(sender, message, now_us)
            case wire.JoinReply():
                self.joining.on_reply(sender, message, now_us)
            case wire.Letter(message=wire.Notify() | wire.OwnerPage() | wire.Page()):
                self._on_message(sender, self._letters.on_letter(sender, message), now_us)
            case wire.Receipt():
                self._letters.on_receipt(sender, message)
            case wire.Notify() | wire.OwnerPage():
                self._on_news(sender, message, now_us)
            case wire.Page() if self._owners.on_page(sender, message):
                pass
            case (
                wire.Done() | wire.Refused() | wire.Page() | wire.ObjectData() | wire.ObjectStatus()
            ):
                self._operations.on_reply(sender, message, now_us)
            case wire.InsertObject() | wire.DeleteObject() if sender == self._node_id:
                self._desk.serve(sender, message, now_us)
            case (
                wire.StopSubscription() | wire.FetchPage() | wire.FetchObject() | wire.FetchStatus()
            ):
                self._desk.serve(sender, message, now_us)
            case _:
                self.dropped["not spoken here"] += 1

    def _on_news(self, sender: NodeId, news: wire.News, now_us: int) -> None:
        """Handles a notification or stored matches; only the owner of an object may send these."""
        objects = (news.metadata,) if isinstance(news, wire.Notify) else news.items
        if any(metadata.owner != sender for metadata in objects):
            self.dropped["news from a stranger"] += 1
        elif isinstance(news, wire.Notify):
            self._client.on_notify(sender, news, now_us)
        elif not self._owners.on_owner_page(sender, news):
            self._client.on_late_page(sender, news, now_us)

    # Subscriptions of other nodes

    def _on_flood(self, origin: NodeId, message: wire.Message, now_us: int) -> None:
        """Handles a flooded request; a node without matches does not reply."""
        try:
            match message:
                case wire.StartSubscription():
                    self.broker.take_up(message.subscription, origin, now_us)
                    self._show(message.subscription, message.batch, now_us)
                case wire.StopSubscription():
                    self.broker.unsubscribe(message.key, origin, now_us, wire.proof_in(message))
                case wire.FetchPage():
                    self._letters.post(origin, lambda now_us: self._found(message, now_us), now_us)
                case _:
                    self.dropped["not for everybody"] += 1
        except OperationError as error:
            self.dropped[error.code] += 1

    def _learn(self, subscription: Subscription, sender: NodeId, now_us: int) -> None:
        """Activates a subscription received from a neighbour while joining."""
        key = subscription.key
        if key.subscriber == self._node_id:
            self._client.stop_unless_own(key.sid, sender, now_us)
            return
        if self.broker.knows(key):
            return
        try:
            self.broker.take_up(subscription, key.subscriber, now_us)
        except OperationError as error:
            self.dropped[error.code] += 1
        else:
            self._show(subscription, self._config.late_batch, now_us)

    def _show(self, subscription: Subscription, batch: int, now_us: int) -> None:
        """Sends the matching objects of this node to a subscriber, if there are any."""
        key = subscription.key

        def write(now_us: int) -> wire.OwnerPage | None:
            page = self.broker.page(
                subscription.conjunctions, subscription.frame, batch, None, now_us
            )
            if page.total == 0 or self.broker.cancelled(key):
                return None
            return wire.OwnerPage(key.sid, page.total, page.items, page.more)

        self._letters.post(key.subscriber, write, now_us)

    def _found(self, request: wire.FetchPage, now_us: int) -> wire.Page | None:
        page = page_for(self.broker, request, now_us)
        return as_reply(request.request, page) if page.total else None

    def _notify(self, subscriber: NodeId, note: wire.Notify, now_us: int) -> None:
        if subscriber == self._node_id:
            self._outbox.send(subscriber, note)
        else:
            post_note(self.broker, self._letters, subscriber, note, now_us)
