"""Subscription comparison: neighbours find out which subscriptions one of them lacks.

Entry point: `SubscriptionComparison`. A flood may miss a node, and a node may be away. So
neighbours broadcast a digest of their active subscriptions now and then (`digest_timing`). Of two
that differ, the one that knows of fewer starts a comparison by ranges
(`thyme.protocol.range_reconciliation`), and only the subscriptions and cancellations that one of
them lacks are sent. Nothing is repeated: what is lost is found by the next digest.
Clauses: L2, L5, B5. Decision: docs/decisions/0073-compared-subscriptions.md.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from random import Random

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.errors import ThymeError
from thyme.model.ids import Key, NodeId, SubscriptionId, subscription_started_us
from thyme.model.signed_records import RecordSigner, UnsubscribeRecord
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import SignedInstant, TombstoneRecord
from thyme.protocol.messages.subscription_sets import (
    RANGES_MAX,
    WANTED_MAX,
    CompareSubscriptions,
    MissingSubscriptions,
    SubscriptionDigest,
)
from thyme.protocol.outbox import Outbox
from thyme.protocol.range_reconciliation import (
    Item,
    compare_ranges,
    fingerprint_of,
    open_recent_ranges,
    short_id,
)
from thyme.substrates.common.broker import Broker
from thyme.substrates.ls.digest_timing import DigestTiming
from thyme.substrates.ls.subscription_fetch import split_by_bytes

_MESSAGE_BYTES_MAX = 1_200
_RECORDS_MAX = 1_000
"""Maximum number of subscriptions sent in reply to one comparison; the next one brings more."""
_BURST = 10.0
_PER_S = 2.0
"""How many comparisons one node may ask for at once, and per second (B5)."""
_NODES_MAX = 1_000
_FRUITLESS_MAX = 8
"""After this number of comparisons of the same digests the wait grows no more."""
CANCELLED = "cancelled"


class ComparisonConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the comparison of subscriptions."""

    shortest_us: int = 2 * SECOND_US
    longest_us: int = 32 * SECOND_US
    """The interval between two digests while something changes, and while nothing does."""
    redundant: int = 3
    """With this number of equal digests of neighbours in an interval, a node sends none."""


class ComparisonTimer(msgspec.Struct, frozen=True):
    """Timer at which a comparison starts, unless a flood has brought what was missing."""


class SubscriptionSet:
    """The identifiers of the active subscriptions, sorted, and their fingerprint."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.keys: dict[bytes, SubscriptionKey] = {}
        self._total = 0

    def change(self, key: SubscriptionKey, *, is_active: bool) -> None:
        """Adds or removes a subscription."""
        name = short_id(key)
        item = subscription_started_us(key.sid), name
        if is_active and name not in self.keys:
            self.keys[name] = key
            insort(self.items, item)
            self._total += int.from_bytes(name, "big")
        elif not is_active and self.keys.get(name) == key:
            del self.keys[name]
            del self.items[bisect_left(self.items, item)]
            self._total -= int.from_bytes(name, "big")

    def fingerprint(self) -> bytes:
        """The digest of the whole set."""
        return fingerprint_of(len(self.items), self._total)


class SubscriptionComparison:
    """Both sides of the comparison, on one node."""

    def __init__(
        self,
        node_id: NodeId,
        outbox: Outbox,
        rng: Random,
        config: ComparisonConfig,
        broker: Broker,
        add_subscription: Callable[[SubscriptionRecord, NodeId, int], None],
        signer: RecordSigner | None,
    ) -> None:
        self._node_id = node_id
        self._outbox = outbox
        self._rng = rng
        self._config = config
        self._broker = broker
        self._add_subscription = add_subscription
        self._signer = signer
        self.known = SubscriptionSet()
        for subscription in broker.active_subscriptions():
            self.known.change(subscription.key, is_active=True)
        broker.on_active = self._on_active
        self._timing = DigestTiming(
            outbox, rng, config.shortest_us, config.longest_us, config.redundant
        )
        self._is_started = False
        self._changed = False
        self._candidate: tuple[NodeId, SubscriptionDigest] | None = None
        """The neighbour with which this node is about to compare its subscriptions."""
        self._fruitless: BoundedDict[NodeId, tuple[bytes, int, int]] = BoundedDict(_NODES_MAX)
        """Digests of both sides at the last comparison with a neighbour, how many there were with
        these, and when there may be another one."""
        self._budgets: BoundedDict[NodeId, tuple[float, int]] = BoundedDict(_NODES_MAX)
        self.compared = 0
        """Number of comparisons that this node started."""

    # Digests

    def start(self, now_us: int) -> None:
        """Starts once the node has joined."""
        if not self._is_started:
            self._is_started = True
            self._timing.start(now_us)

    def on_neighbours_changed(self, now_us: int) -> None:
        """Compares soon with a new neighbour."""
        if self._is_started:
            self._timing.shorten(now_us)

    def after_input(self, now_us: int) -> None:
        """Compares soon if the subscriptions have changed; to be called after each input."""
        if self._changed and self._is_started:
            self._timing.shorten(now_us)
        self._changed = False

    def on_digest_timer(self, now_us: int) -> None:
        """Broadcasts the digest if too few neighbours did."""
        if self._timing.on_timer(now_us):
            self._outbox.broadcast(self._digest())

    def on_digest(self, sender: NodeId, digest: SubscriptionDigest, now_us: int) -> None:
        """Prepares a comparison with a neighbour that knows of as many subscriptions or more."""
        if not self._is_started:
            return
        if digest.fingerprint == self.known.fingerprint():
            self._timing.count_equal()
            return
        fruitless = self._fruitless.get(sender)
        if fruitless is not None and fruitless[0] == self._pair(digest) and now_us < fruitless[2]:
            return
        self._timing.shorten(now_us)
        if self._candidate is None and self._is_behind(digest):
            self._candidate = sender, digest
            wait_us = self._config.shortest_us // 8
            at_us = now_us + wait_us + self._rng.randrange(1 + wait_us)
            self._outbox.set_timer(ComparisonTimer(), at_us)

    def on_comparison_timer(self, now_us: int) -> None:
        """Starts the comparison, unless this node has received what it lacked meanwhile."""
        candidate, self._candidate = self._candidate, None
        if candidate is None or not self._is_behind(candidate[1]):
            return
        sender, digest = candidate
        pair = self._pair(digest)
        before, times, _ = self._fruitless.get(sender, (b"", 0, 0))
        times = min(times + 1, _FRUITLESS_MAX) if before == pair else 0
        until_us = now_us + (self._config.shortest_us << times) // 2
        self._fruitless.refresh(sender, (pair, times, until_us))
        self.compared += 1
        self._outbox.send(sender, CompareSubscriptions(open_recent_ranges(self.known.items), ()))

    def _is_behind(self, digest: SubscriptionDigest) -> bool:
        """Whether this node differs from a neighbour that knows at least as many."""
        own = self._digest()
        return own.fingerprint != digest.fingerprint and own.known <= digest.known

    def _digest(self) -> SubscriptionDigest:
        count = len(self.known.items) + self._broker.tombstone_count
        return SubscriptionDigest(count, self.known.fingerprint())

    def _pair(self, digest: SubscriptionDigest) -> bytes:
        return self.known.fingerprint() + digest.fingerprint

    def _on_active(self, key: SubscriptionKey, is_active: bool) -> None:
        self.known.change(key, is_active=is_active)
        self._changed = True

    # Comparisons

    def on_compare(self, sender: NodeId, message: CompareSubscriptions, now_us: int) -> None:
        """Sends what the other node lacks, and asks for what this one lacks."""
        if not self._is_started or not self._is_admitted(sender, now_us):
            return
        if self._candidate is not None and self._candidate[0] == sender:
            self._candidate = None
        found = compare_ranges(self.known.items, message.ranges)
        names = [name for _, name in found.only_here]
        names += [name for name in message.wanted if name in self.known.keys]
        self._send_subscriptions(sender, names)
        ranges, wanted = found.answer[:RANGES_MAX], found.only_there[:WANTED_MAX]
        if ranges or wanted:
            self._outbox.send(sender, CompareSubscriptions(tuple(ranges), tuple(wanted)))

    def on_missing(self, sender: NodeId, message: MissingSubscriptions, now_us: int) -> None:
        """Adds subscriptions and cancellations of a neighbour; returns cancellations that it
        lacks."""
        if not self._is_started:
            return
        for record in message.tombstones:
            self._cancel(record)
        cancelled: list[SubscriptionKey] = []
        for subscription in message.subscriptions:
            if self._broker.is_cancelled(subscription.key):
                cancelled.append(subscription.key)
            else:
                self._add_subscription(subscription, sender, now_us)
        found = [self._tombstone(key) for key in cancelled]
        tombstones = [record for record in found if record is not None]
        for index in range(0, len(tombstones), 8):
            self._send_missing(sender, (), tombstones[index : index + 8])

    def _send_subscriptions(self, to: NodeId, names: Iterable[bytes]) -> None:
        keys = [self.known.keys[name] for name in dict.fromkeys(names)][:_RECORDS_MAX]
        records = [record for key in keys if (record := self._broker.get_active(key)) is not None]
        if records:
            for bundle in split_by_bytes(records, _MESSAGE_BYTES_MAX):
                self._send_missing(to, bundle, ())

    def _send_missing(
        self,
        to: NodeId,
        subscriptions: Sequence[SubscriptionRecord],
        tombstones: Sequence[TombstoneRecord],
    ) -> None:
        self._outbox.send(to, MissingSubscriptions(tuple(subscriptions), tuple(tombstones)))

    def _tombstone(self, key: SubscriptionKey) -> TombstoneRecord | None:
        """The cancellation of a subscription; None if this node cannot prove it (B5)."""
        tombstone = self._broker.tombstone_of(key)
        if tombstone is None:
            return None
        proof = tombstone.proof
        if self._signer is not None and key.subscriber == self._node_id:
            proof = self._signer.sign(UnsubscribeRecord(key))
        if not proof:
            removed_us = tombstone.removed_us
            unproven = TombstoneRecord(str(key), CANCELLED, removed_us)
            return unproven if self._signer is None else None
        return TombstoneRecord(str(key), CANCELLED, SignedInstant(tombstone.removed_us, proof))

    def _cancel(self, record: TombstoneRecord) -> None:
        """Removes a subscription of another node that was cancelled."""
        try:
            parsed = Key.parse(record.key)
        except ThymeError:
            return
        key = SubscriptionKey(SubscriptionId(parsed.oid), parsed.owner)
        if key.subscriber != self._node_id:
            removed = record.removed
            proof = removed.proof if isinstance(removed, SignedInstant) else b""
            self._broker.remove_with_tombstone(key, CANCELLED, record.removed_us, proof)

    def _is_admitted(self, sender: NodeId, now_us: int) -> bool:
        """Charges a comparison to the node that asks for it (B5)."""
        left, at_us = self._budgets.get(sender, (_BURST, now_us))
        left = min(_BURST, left + _PER_S * max(0, now_us - at_us) / SECOND_US)
        self._budgets.refresh(sender, (left - 1 if left >= 1 else left, now_us))
        return left >= 1

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert len(self.known.items) == len(self.known.keys) == self._broker.subscription_count
