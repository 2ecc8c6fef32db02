"""Subscriptions and what they bring: conjunctions, the subscription itself, notifications.

A conjunction is the unit that brokers store and match. The formula that conjunctions come from is
the business of `thyme.query`.
Clauses: M7, M10, M11, M16, M28, B5.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from thyme.model.errors import QueryError, shortened, shown
from thyme.model.frames import TimeFrame
from thyme.model.ids import Key, NodeId, SubscriptionId, as_node_id, as_subscription_id
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag, as_tag

LITERALS_MAX = 256
CONJUNCTIONS_MAX_ANYWHERE = 1_024
"""What no node accepts from another; what a node makes itself is bounded more tightly (M8)."""


class Conjunction(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Tags that must be there and tags that must not; at least one of the first (M7)."""

    positive: tuple[Tag, ...]
    negative: tuple[Tag, ...] = ()

    def __post_init__(self) -> None:
        if len(self.positive) + len(self.negative) > LITERALS_MAX:
            raise QueryError(f"a conjunction has at most {LITERALS_MAX} tags")
        if not self.positive:
            raise QueryError(f"a conjunction needs a tag without '!': {shortened(str(self))}")
        for side in (self.positive, self.negative):
            if tuple(sorted({as_tag(tag) for tag in side})) != side:
                raise QueryError(f"tags must be normalised, sorted and distinct: {shown(side)}")
        if not set(self.positive).isdisjoint(self.negative):
            raise QueryError(f"a conjunction contradicts itself: {shortened(str(self))}")

    def matches(self, tags: Collection[str]) -> bool:
        """Whether an object with these (normalised) tags satisfies the conjunction."""
        return all(tag in tags for tag in self.positive) and not any(
            tag in tags for tag in self.negative
        )

    def __str__(self) -> str:
        return " & ".join([*self.positive, *(f"!{tag}" for tag in self.negative)])


def check_conjunctions(conjunctions: tuple[Conjunction, ...]) -> None:
    """Refuses a query without conjunctions, or with more than anybody should have to match."""
    if not 1 <= len(conjunctions) <= CONJUNCTIONS_MAX_ANYWHERE:
        raise QueryError(
            f"a query has at least one conjunction and at most {CONJUNCTIONS_MAX_ANYWHERE}, "
            f"not {len(conjunctions)}"
        )


class SubscriptionKey(msgspec.Struct, frozen=True, array_like=True, order=True, cache_hash=True):
    """The system-wide key ⟨sid, nid⟩ of a subscription."""

    sid: SubscriptionId
    subscriber: NodeId

    def __post_init__(self) -> None:
        as_subscription_id(self.sid)
        as_node_id(self.subscriber)

    def __str__(self) -> str:
        return f"{self.sid}@{self.subscriber.hex()}"


class SignedTerms(msgspec.Struct, frozen=True, rename={"conjunctions": "c", "proof": "p"}):
    """Conjunctions with the subscriber's proof that it asks for them (B5).

    The proof also has a mark of each conjunction that was signed: some of them may travel, and be
    kept, without the others.
    """

    conjunctions: tuple[Conjunction, ...]
    proof: bytes


class Subscription(msgspec.Struct, frozen=True, array_like=True):
    """The tuple ⟨sid, q, ts_s, ts_e, nid⟩, its query as conjunctions (M10)."""

    key: SubscriptionKey
    terms: tuple[Conjunction, ...] | SignedTerms
    frame: TimeFrame

    def __post_init__(self) -> None:
        check_conjunctions(self.conjunctions)

    @property
    def conjunctions(self) -> tuple[Conjunction, ...]:
        """The query: any of these."""
        terms = self.terms
        return terms if isinstance(terms, tuple) else terms.conjunctions

    @property
    def proof(self) -> bytes:
        """The subscriber's proof; empty where nodes have no keys (B5)."""
        return b"" if isinstance(self.terms, tuple) else self.terms.proof

    def with_conjunctions(self, some: tuple[Conjunction, ...]) -> Subscription:
        """The same subscription with others of its conjunctions."""
        if isinstance(self.terms, tuple):
            return Subscription(self.key, some, self.frame)
        return Subscription(self.key, SignedTerms(some, self.terms.proof), self.frame)

    def wants(self, metadata: Metadata) -> bool:
        """Whether an object matches: its tags the query, its publication the frame (M11)."""
        return self.frame.contains(metadata.published_us) and any(
            conjunction.matches(metadata.tags) for conjunction in self.conjunctions
        )


class Notification(msgspec.Struct, frozen=True):
    """A subscriber's news of one matching object: its metadata, never the object (M16).

    `published_us` inside the metadata is the publisher's stamp; `arrived_us` is when this node
    heard of it, kept apart for measurement (M28). `past` tells a stored object from a new one.
    """

    sid: SubscriptionId
    metadata: Metadata
    arrived_us: int
    past: bool

    @property
    def key(self) -> Key:
        """The key of the object this is about."""
        return self.metadata.key

    @property
    def tags(self) -> tuple[Tag, ...]:
        """The object's tags."""
        return self.metadata.tags

    @property
    def summary(self) -> bytes:
        """The object's summary."""
        return self.metadata.summary

    @property
    def published_us(self) -> int:
        """The publisher's stamp."""
        return self.metadata.published_us
