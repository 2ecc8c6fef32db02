"""Subscriptions: conjunctions, subscriptions and notifications.

A conjunction is the unit that brokers store and match. `thyme.query` turns formulas into
conjunctions.
Clauses: M7, M10, M11, M16, M28, B5.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from thyme.model.errors import QueryError, safe_repr, truncate
from thyme.model.ids import Key, NodeId, SubscriptionId, as_node_id, as_subscription_id
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag, as_tag
from thyme.model.time_frames import TimeFrame

LITERALS_MAX = 256
CONJUNCTIONS_ACCEPTED_MAX = 1_024
"""Limit for queries received from other nodes; a node's own queries have a lower limit (M8)."""


class Conjunction(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Required tags, at least one, and excluded tags (M7)."""

    positive: tuple[Tag, ...]
    negative: tuple[Tag, ...] = ()

    def __post_init__(self) -> None:
        if len(self.positive) + len(self.negative) > LITERALS_MAX:
            raise QueryError(f"a conjunction has at most {LITERALS_MAX} tags")
        if not self.positive:
            raise QueryError(f"a conjunction needs a tag without '!': {truncate(str(self))}")
        for side in (self.positive, self.negative):
            if tuple(sorted({as_tag(tag) for tag in side})) != side:
                raise QueryError(f"tags must be normalised, sorted and distinct: {safe_repr(side)}")
        if not set(self.positive).isdisjoint(self.negative):
            raise QueryError(f"a conjunction contradicts itself: {truncate(str(self))}")

    def matches(self, tags: Collection[str]) -> bool:
        """Whether an object with these (normalised) tags satisfies the conjunction."""
        return all(tag in tags for tag in self.positive) and not any(
            tag in tags for tag in self.negative
        )

    def __str__(self) -> str:
        return " & ".join([*self.positive, *(f"!{tag}" for tag in self.negative)])


def conjoin(one: Conjunction, other: Conjunction) -> Conjunction | None:
    """The conjunction of two conjunctions; None if nothing satisfies both."""
    positive = {*one.positive, *other.positive}
    negative = {*one.negative, *other.negative}
    if positive & negative or len(positive) + len(negative) > LITERALS_MAX:
        return None
    return Conjunction(tuple(sorted(positive)), tuple(sorted(negative)))


def check_conjunctions(conjunctions: tuple[Conjunction, ...]) -> None:
    """Raises `QueryError` for a query with no or with too many conjunctions."""
    if not 1 <= len(conjunctions) <= CONJUNCTIONS_ACCEPTED_MAX:
        raise QueryError(
            f"a query has at least one conjunction and at most {CONJUNCTIONS_ACCEPTED_MAX}, "
            f"not {len(conjunctions)}"
        )


class SubscriptionKey(
    msgspec.Struct, frozen=True, gc=False, array_like=True, order=True, cache_hash=True
):
    """The system-wide key ⟨sid, nid⟩ of a subscription."""

    sid: SubscriptionId
    subscriber: NodeId

    def __post_init__(self) -> None:
        as_subscription_id(self.sid)
        as_node_id(self.subscriber)

    def __str__(self) -> str:
        return f"{self.sid}@{self.subscriber.hex()}"


class SignedConjunctions(msgspec.Struct, frozen=True, rename={"conjunctions": "c", "proof": "p"}):
    """Conjunctions with the subscriber's proof (B5).

    The proof contains the digest of every signed conjunction, so that a node can verify some
    conjunctions without the others.
    """

    conjunctions: tuple[Conjunction, ...]
    proof: bytes


class SubscriptionRecord(msgspec.Struct, frozen=True, array_like=True):
    """The tuple ⟨sid, q, ts_s, ts_e, nid⟩, its query as conjunctions (M10)."""

    key: SubscriptionKey
    query_terms: tuple[Conjunction, ...] | SignedConjunctions
    frame: TimeFrame

    def __post_init__(self) -> None:
        check_conjunctions(self.conjunctions)

    @property
    def conjunctions(self) -> tuple[Conjunction, ...]:
        """The conjunctions of the query; an object matches if it satisfies any of them."""
        query_terms = self.query_terms
        return query_terms if isinstance(query_terms, tuple) else query_terms.conjunctions

    @property
    def proof(self) -> bytes:
        """The subscriber's proof; empty in worlds without node keys (B5)."""
        return b"" if isinstance(self.query_terms, tuple) else self.query_terms.proof

    def with_conjunctions(self, conjunctions: tuple[Conjunction, ...]) -> SubscriptionRecord:
        """Returns the subscription reduced to some of its conjunctions."""
        if isinstance(self.query_terms, tuple):
            return SubscriptionRecord(self.key, conjunctions, self.frame)
        return SubscriptionRecord(
            self.key, SignedConjunctions(conjunctions, self.query_terms.proof), self.frame
        )

    def matches(self, metadata: Metadata) -> bool:
        """Whether tags and publication time of an object match query and time frame (M11)."""
        return matches_object(self.conjunctions, self.frame, metadata)


def matches_object(
    conjunctions: tuple[Conjunction, ...], frame: TimeFrame, metadata: Metadata
) -> bool:
    """Whether an object satisfies one of the conjunctions and lies inside the frame (M11)."""
    return frame.contains(metadata.published_us) and any(
        conjunction.matches(metadata.tags) for conjunction in conjunctions
    )


class Notification(msgspec.Struct, frozen=True, gc=False, rename={"from_history": "past"}):
    """The metadata of one object that matches a subscription, without the object's bytes (M16).

    `published_us` in the metadata is the publisher's time stamp; `arrived_us` is the time at which
    the notification reached this node (M28). `from_history` marks objects published earlier.
    """

    sid: SubscriptionId
    metadata: Metadata
    arrived_us: int
    from_history: bool

    @property
    def key(self) -> Key:
        """The key of the object."""
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
        """The publisher's time stamp."""
        return self.metadata.published_us
