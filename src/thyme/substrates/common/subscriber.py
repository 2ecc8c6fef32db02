"""Subscriber: the state of a node's own subscriptions, and their notifications.

Entry point: `Subscriber`. Drops duplicate notifications (M16), buffers notifications until the
application knows the subscription, stores which notifications the application consumed so that it
can resume after a restart (M27), and ends each subscription when its time frame ends (M18).
Requests to brokers are sent by `client` and `history_reader`.
Clauses: M12, M16, M18, M27, M34.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.signed_records import RecordSigner, sign_subscription
from thyme.model.subscriptions import Notification, SubscriptionKey, SubscriptionRecord
from thyme.protocol.app_interface import (
    CaughtUp,
    NotificationEvent,
    SubscriptionEnded,
    SubscriptionInfo,
)
from thyme.protocol.outbox import Outbox
from thyme.protocol.results import Failure, Result
from thyme.query.cursor import Cursor
from thyme.storage.store import RecordTable, Store
from thyme.substrates.common.client_interfaces import BrokerId, MissedSource
from thyme.substrates.common.resume_points import ResumePoints

_SUBSCRIPTIONS_MAX = 10_000
_ENDED_MAX = 1_000
"""Maximum number of ended subscriptions kept for reading their stored matches."""
_SEEN_MAX = 100_000
"""Maximum number of emitted objects that a subscription remembers, against duplicates."""
_BROKERS_MAX = 10_000
"""Maximum number of brokers whose read position a subscription keeps."""


class SubscriberConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a subscriber."""

    skew_us: int = 0
    """Maximum difference between clocks (M12): a subscription stays active this much longer."""


class ConsumedNotification(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A notification that the application consumed."""

    sid: SubscriptionId
    key: Key
    published_us: int


class FrameEndTimer(msgspec.Struct, frozen=True):
    """Timer at the end of a subscription's time frame."""

    sid: SubscriptionId


OWN_SUBSCRIPTIONS = RecordTable("own subscription", SubscriptionInfo)
CONSUMED = RecordTable("taken", ConsumedNotification)


class ReadPosition(msgspec.Struct, frozen=True):
    """How far back the history of one broker has been read, and whether it has older items."""

    before: Cursor | None
    more: bool


class SeenObject(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An object that was emitted: when it was published, and which broker sent it; None if it is
    from the pages of several brokers."""

    published_us: int
    source: MissedSource | None = None


@dataclass(slots=True)
class OwnSubscription:
    """State of one subscription of this node."""

    subscription: SubscriptionRecord
    batch: int
    attached: bool
    """Whether the application receives its events; False after a restart until resumed."""
    seen: BoundedDict[Key, SeenObject]
    """The emitted objects, by key."""
    started: bool = False
    reads_active: int = 0
    positions: dict[BrokerId, ReadPosition] | None = None
    """Read position of each broker; None until the first pages were read."""
    after_first_pages: list[Callable[[int], None]] = field(default_factory=list)
    """Functions to call once the first pages were read."""
    newest_consumed_us: int | None = None
    rewound_us: int | None = None
    """Publication time of the oldest notification that was consumed and must be emitted again."""
    paused: bool = False
    missed_us: int | None = None
    """Publication time of the oldest stored match not emitted because of a pause."""
    dropped: dict[MissedSource, Cursor] = field(default_factory=dict)
    """For each broker with notifications not emitted because of a pause, a position before them."""
    after_gaps: list[Callable[[int], None]] = field(default_factory=list)
    """Functions to call once no read of missed objects can continue (`gap_reader`)."""
    before_start: list[Metadata] = field(default_factory=list)
    live_since_us: int | None = None
    """When the subscription began, or the time back to which it was resumed after a restart."""

    @property
    def sid(self) -> SubscriptionId:
        return self.subscription.key.sid

    @property
    def due_since_us(self) -> int | None:
        """The publication time since which every match is due and duplicates are recognised."""
        since_us = self.live_since_us
        if since_us is None or len(self.seen) < _SEEN_MAX:
            return since_us
        return max(since_us, next(iter(self.seen.values())).published_us)


class Subscriber:
    """The own subscriptions of one node."""

    def __init__(
        self,
        node_id: NodeId,
        outbox: Outbox,
        store: Store,
        config: SubscriberConfig,
        signer: RecordSigner | None = None,
        *,
        matches: Callable[[SubscriptionRecord, Metadata], bool] = SubscriptionRecord.matches,
    ) -> None:
        """`matches`: whether an object matches a subscription, in substrates with derived tags."""
        self._node_id = node_id
        self._matches = matches
        self._signer = signer
        self._outbox = outbox
        self._store = store
        self._config = config
        self._active: dict[SubscriptionId, OwnSubscription] = {}
        self._ended: BoundedDict[SubscriptionId, OwnSubscription] = BoundedDict(_ENDED_MAX)
        self._resume_points = ResumePoints(store)
        self.duplicates = 0
        self.spurious = 0
        self._load()

    def __len__(self) -> int:
        return len(self._active)

    def get(self, sid: SubscriptionId) -> OwnSubscription | None:
        """A subscription of this node, active or ended but still readable; None if unknown."""
        return self._active.get(sid) or self._ended.get(sid)

    def is_full(self) -> bool:
        """Whether the maximum number of subscriptions is reached."""
        return len(self._active) >= _SUBSCRIPTIONS_MAX

    def active_subscriptions(self) -> tuple[SubscriptionInfo, ...]:
        """The active subscriptions of this node."""
        return tuple(_subscription_info(own) for own in self._active.values())

    def open(self, subscription: SubscriptionRecord, batch: int) -> OwnSubscription:
        """Adds and signs a subscription before it is sent to brokers."""
        signed = sign_subscription(subscription, self._signer)
        own = self._make_own(signed, batch, attached=True)
        self._active[own.sid] = own
        return own

    def mark_started(self, own: OwnSubscription, now_us: int) -> None:
        """Stores a subscription that brokers have activated, and emits buffered notifications."""
        own.started = own.attached = True
        if own.live_since_us is None:
            own.live_since_us = self.resume_since_us(own) or now_us - self._config.skew_us
        end_us = own.subscription.frame.end_us
        if end_us is None or end_us + self._config.skew_us >= now_us:
            self._store.put(OWN_SUBSCRIPTIONS, own.sid, _subscription_info(own))
        self.set_frame_end_timer(own)
        before_start, own.before_start = own.before_start, []
        for metadata in before_start:
            self._emit(own, metadata, now_us, None, from_history=False)

    def set_frame_end_timer(self, own: OwnSubscription) -> None:
        """Sets the timer at the end of a subscription's time frame."""
        end_us = own.subscription.frame.end_us
        if end_us is not None:
            self._outbox.set_timer(FrameEndTimer(own.sid), end_us + self._config.skew_us + 1)

    def set_frame_end_timers(self) -> None:
        """Sets the timers of all stored subscriptions, after a start."""
        for own in self._active.values():
            self.set_frame_end_timer(own)

    def on_notify(
        self,
        sid: SubscriptionId,
        metadata: Metadata,
        now_us: int,
        source: MissedSource | None = None,
    ) -> bool:
        """Handles a notification from a broker; returns False if the subscription is unknown."""
        own = self._active.get(sid)
        if own is None:
            return sid in self._ended
        if own.attached:
            if own.started:
                self._emit(own, metadata, now_us, source, from_history=False)
            elif len(own.before_start) < _SEEN_MAX:
                own.before_start.append(metadata)
        return True

    def active_records(self) -> Iterator[SubscriptionRecord]:
        """The active subscriptions of this node, as brokers store them."""
        return (own.subscription for own in self._active.values())

    def notify_matching(self, metadata: Metadata, now_us: int) -> None:
        """Handles an object that arrived at this node, for all subscriptions that it matches."""
        for own in list(self._active.values()):
            if metadata.key in own.seen:
                self.duplicates += 1
            elif self._matches(own.subscription, metadata):
                self.on_notify(own.sid, metadata, now_us)

    def emit_past(self, own: OwnSubscription, items: Sequence[Metadata], now_us: int) -> int:
        """Emits stored matches; returns how many of them were new."""
        point_us = self._resume_points.since_us(own.sid)
        count = 0
        for metadata in items:
            if self._emit(own, metadata, now_us, None, from_history=True):
                count += 1
                if point_us is not None and metadata.published_us >= point_us:
                    self._resume_points.add(own.sid, metadata.key, metadata.published_us)
        return count

    def emit_missed(
        self, own: OwnSubscription, metadata: Metadata, source: MissedSource, now_us: int
    ) -> None:
        """Emits an object that the subscriber missed when it was published."""
        if self._emit(own, metadata, now_us, source, from_history=False):
            self._resume_points.add(own.sid, metadata.key, metadata.published_us)

    def save_positions(
        self, own: OwnSubscription, positions: Mapping[BrokerId, ReadPosition]
    ) -> None:
        """Saves the read positions of a subscription, if they are further back than before."""
        own.positions = {} if own.positions is None else own.positions
        for broker_id, position in positions.items():
            known = own.positions.get(broker_id)
            if known is None and len(own.positions) >= _BROKERS_MAX:
                continue
            if known is None or not position.more or _is_as_far_back(position, known):
                own.positions[broker_id] = position

    def consume(self, sid: SubscriptionId, key: Key) -> None:
        """Records that the application consumed a notification."""
        own = self._active.get(sid)
        if own is None or key not in own.seen:
            return
        published_us = own.seen[key].published_us
        self._store.put(
            CONSUMED, _consumed_key(sid, key), ConsumedNotification(sid, key, published_us)
        )
        own.newest_consumed_us = max(published_us, own.newest_consumed_us or published_us)
        self._resume_points.discard(sid, key)

    def resume_since_us(self, own: OwnSubscription) -> int | None:
        """The time back to which a resumed subscription reads. Includes the clock skew: an object
        with a slightly earlier timestamp than the last consumed one may have arrived later."""
        points = (own.newest_consumed_us, own.rewound_us, self._resume_points.since_us(own.sid))
        since_us = min((at_us for at_us in points if at_us is not None), default=None)
        return None if since_us is None else since_us - self._config.skew_us

    def rewind(self, own: OwnSubscription, last: Key) -> None:
        """Takes back that notifications were consumed after another one, so that a resumed
        subscription emits them again."""
        consumed = [record for _, record in self._store.load(CONSUMED) if record.sid == own.sid]
        keys = [record.key for record in consumed]
        if last not in keys:
            return
        for record in consumed[keys.index(last) + 1 :]:
            self._unmark_consumed(own, record.key)
            own.rewound_us = min(record.published_us, own.rewound_us or record.published_us)

    def _unmark_consumed(self, own: OwnSubscription, key: Key) -> SeenObject | None:
        self._store.remove(CONSUMED, _consumed_key(own.sid, key))
        self._resume_points.discard(own.sid, key)
        return own.seen.pop(key, None)

    def carry_over(self, earlier: Subscriber, *, other_brokers: bool = False) -> None:
        """Takes over which objects an earlier incarnation in the process emitted. Other brokers may
        have older objects: then resumed subscriptions read back to their beginning (B7)."""
        for sid, own in self._active.items():
            if (before := earlier.get(sid)) is not None:
                own.seen, own.paused = before.seen, before.paused
                own.live_since_us = before.live_since_us
                if other_brokers:
                    own.rewound_us = before.due_since_us

    def pause(self, sid: SubscriptionId) -> None:
        """Stops emitting notifications, because the application's buffer is full."""
        if (own := self._active.get(sid)) is not None:
            own.paused = True

    def unpause(self, own: OwnSubscription, refused: tuple[Key, ...]) -> int | None:
        """Continues after a pause; returns how far back to read stored matches, None if none was
        dropped. Dropped notifications are in `drain_dropped`."""
        for key in refused:
            if (seen := self._unmark_consumed(own, key)) is not None:
                _note_dropped(own, seen.source, seen.published_us, key)
        missed_us, own.missed_us, own.paused = own.missed_us, None, False
        return missed_us

    def drain_dropped(self, own: OwnSubscription) -> dict[MissedSource, Cursor]:
        """Returns and clears the brokers with dropped notifications, and positions before them."""
        dropped, own.dropped = own.dropped, {}
        return dropped

    def emit_caught_up(
        self, own: OwnSubscription, total: int, result: Result[object], now_us: int
    ) -> None:
        """Emits `CaughtUp`: the requested stored matches were emitted, as far as available."""
        code = result.code if isinstance(result, Failure) else ""
        if not code:
            self._resume_points.remove_if_consumed(own.sid)
        self._outbox.emit(CaughtUp(own.sid, total, code))
        own.positions = {} if own.positions is None else own.positions
        callbacks, own.after_first_pages = own.after_first_pages, []
        for callback in callbacks:
            callback(now_us)

    def on_frame_end(self, sid: SubscriptionId, now_us: int) -> None:
        """Ends a subscription if its time frame has ended."""
        own = self.get(sid)
        if own is not None and own.subscription.frame.has_ended(now_us - self._config.skew_us):
            self.end(own, "its frame is over")

    def end(self, own: OwnSubscription, reason: str) -> None:
        """Ends a subscription; its read state is kept so that stored matches can still be read."""
        if own.reads_active or self._active.pop(own.sid, None) is None:
            return
        self._remove_stored(own)
        if own.attached:
            self._ended[own.sid] = own
            self._outbox.emit(SubscriptionEnded(own.sid, reason))

    def cancel(self, own: OwnSubscription, reason: str = "cancelled") -> None:
        """Ends a subscription at once, and removes its read state."""
        own.reads_active = 0
        self.end(own, reason)
        self._ended.pop(own.sid, None)
        self._outbox.cancel_timer(FrameEndTimer(own.sid))

    def end_all(self, reason: str) -> None:
        """Ends all subscriptions, because the world has ended."""
        for own in list(self._active.values()):
            self.cancel(own, reason)

    def _emit(
        self,
        own: OwnSubscription,
        metadata: Metadata,
        now_us: int,
        source: MissedSource | None,
        *,
        from_history: bool,
    ) -> bool:
        if metadata.key in own.seen:
            self.duplicates += 1
            return False
        if not self._matches(own.subscription, metadata):
            self.spurious += 1
            return False
        if own.paused:
            _note_dropped(own, source, metadata.published_us, metadata.key)
            return False
        self._mark_seen(own, metadata.key, SeenObject(metadata.published_us, source))
        self._outbox.emit(NotificationEvent(Notification(own.sid, metadata, now_us, from_history)))
        return True

    def _mark_seen(self, own: OwnSubscription, key: Key, seen: SeenObject) -> None:
        evicted = own.seen.put(key, seen)
        if evicted is not None:
            self._store.remove(CONSUMED, _consumed_key(own.sid, evicted))

    def _load(self) -> None:
        for _, info in self._store.load(OWN_SUBSCRIPTIONS):
            key = SubscriptionKey(info.sid, self._node_id)
            subscription = sign_subscription(
                SubscriptionRecord(key, info.conjunctions, info.frame), self._signer
            )
            self._active[info.sid] = self._make_own(subscription, info.batch, attached=False)
        for text, consumed in self._store.load(CONSUMED):
            own = self._active.get(consumed.sid)
            if own is None:
                self._store.remove(CONSUMED, text)
                continue
            self._mark_seen(own, consumed.key, SeenObject(consumed.published_us))
            own.newest_consumed_us = max(
                consumed.published_us, own.newest_consumed_us or consumed.published_us
            )

    def _make_own(
        self, subscription: SubscriptionRecord, batch: int, *, attached: bool
    ) -> OwnSubscription:
        seen: BoundedDict[Key, SeenObject] = BoundedDict(_SEEN_MAX)
        return OwnSubscription(subscription, batch, attached, seen)

    def _remove_stored(self, own: OwnSubscription) -> None:
        self._store.remove(OWN_SUBSCRIPTIONS, own.sid)
        self._resume_points.remove(own.sid)
        for key in own.seen:
            self._store.remove(CONSUMED, _consumed_key(own.sid, key))

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert len(self._active) <= _SUBSCRIPTIONS_MAX
        assert len(self._ended) <= _ENDED_MAX
        assert all(len(own.seen) <= _SEEN_MAX for own in self._active.values())


def _note_dropped(
    own: OwnSubscription, source: MissedSource | None, published_us: int, key: Key
) -> None:
    """Notes that an object was not emitted, or refused by the application, because of a pause."""
    if source is None:
        own.missed_us = min(published_us, own.missed_us or published_us)
    else:
        before = Cursor(published_us - 1, key)
        own.dropped[source] = min(before, own.dropped.get(source, before))


def _subscription_info(own: OwnSubscription) -> SubscriptionInfo:
    subscription = own.subscription
    return SubscriptionInfo(own.sid, subscription.conjunctions, subscription.frame, own.batch)


def _is_as_far_back(position: ReadPosition, known: ReadPosition) -> bool:
    """Whether a read position is as far back as the known one, or further."""
    return known.before is None or (position.before is not None and position.before <= known.before)


def _consumed_key(sid: SubscriptionId, key: Key) -> str:
    return f"{sid} {key}"
