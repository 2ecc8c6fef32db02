"""Small builders for tests: a test names only the values it is about; the rest are defaults."""

from __future__ import annotations

from collections.abc import Iterable

from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata, make_metadata
from thyme.model.subscriptions import Conjunction, SubscriptionKey, SubscriptionRecord
from thyme.model.time_frames import ALWAYS, TimeFrame
from thyme.query.query import Query

ALICE = NodeId(b"alice")
BOB = NodeId(b"bob")
CAROL = NodeId(b"carol")


def key(number: int = 1, by: NodeId = BOB) -> Key:
    """The key of photo `number`."""
    return Key(ObjectId(f"photo{number}"), by)


def photo(
    number: int = 1,
    *,
    tags: Iterable[str] = ("goal",),
    at_us: int = 0,
    by: NodeId = BOB,
    data: bytes = b"",
    summary: bytes = b"",
    expires_us: int | None = None,
) -> Metadata:
    """The metadata of photo `number`, published at `at_us`."""
    return make_metadata(key(number, by), data, tags, at_us, summary=summary, expires_us=expires_us)


def frame(start_us: int | None = None, end_us: int | None = None) -> TimeFrame:
    """The closed span between two instants; None leaves an end open."""
    return TimeFrame(start_us, end_us)


def conjunctions(query: str) -> tuple[Conjunction, ...]:
    """The conjunctions of a query given as text."""
    return Query(query).conjunctions


def conjunction(query: str) -> Conjunction:
    """The only conjunction of a query given as text."""
    [only] = conjunctions(query)
    return only


def subscribe(
    number: int = 1, query: str = "goal", within: TimeFrame = ALWAYS, *, by: NodeId = ALICE
) -> SubscriptionRecord:
    """Subscription `number` to a query given as text, for objects published inside a frame."""
    sid = SubscriptionId(f"sub{number}")
    return SubscriptionRecord(SubscriptionKey(sid, by), conjunctions(query), within)
