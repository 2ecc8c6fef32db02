"""Posts to trace: makes the trace of the most active users from the posts of an event.

Posts become inserts; subscriptions, deletes and unsubscribes are drawn at exponential intervals,
from random generators that depend on seed, user and purpose only. So the operations of a user are a
function of its posts and the candidate tags (`user_operations`), and users can be processed in
parallel (`pipeline.traces`). Entry point: `trace_from_posts`, for a single process.
Clauses: P3, S7, S10, C21.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from random import Random
from typing import NamedTuple
from zlib import crc32

import msgspec

from thyme.model.errors import InputError
from thyme.model.rng import derive_rng
from thyme.model.sampling import check_share, sample_nodes
from thyme.model.tags import Tag
from thyme.model.time_frames import ALWAYS, SECOND_US, TimeFrame
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    Operation,
    SubscribeOperation,
    UnsubscribeOperation,
)
from thyme.traces.posts import CANDIDATE_SHARE, Post, tag_popularity, top_users
from thyme.traces.query_tags import QueryCandidates, QueryTags, RankDraw, choose_candidates
from thyme.traces.timetable import FINAL_2016, Timetable
from thyme.traces.trace import Trace, merge_users

HOUR_US = 3_600 * SECOND_US
RATE_MAX = 10_000


class UserRole(Enum):
    """Whether a user publishes, subscribes, or both."""

    BOTH = "both"
    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"


class TraceRules(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of Thyme (journal article), section 9.2; rates per user and hour of the event."""

    timetable: Timetable = FINAL_2016
    lasts_us: int = 600 * SECOND_US
    """Duration to which the hours of the event are compressed."""
    candidate_share: float = CANDIDATE_SHARE
    query_tags: QueryTags = QueryTags.DISTINCT
    """The reading of `candidate_share`."""
    subscribes_early: float = 3.0
    """Rate of subscribes until the end of the first half; `subscribes_late`: after it."""
    subscribes_late: float = 1.0
    always_share: float = 0.6
    """Share of subscriptions with the frame ⊥..⊥; the others have now..⊥."""
    boolean_share: float = 0.0
    """Share of queries that are formulas of two or three tags; the others are one tag."""
    deletes: float = 0.5
    """Rate in the second half only; likewise `unsubscribes`."""
    unsubscribes: float = 0.2
    summary_size: int = 0
    one_in: int = 1
    """One in so many posts of the chosen users is inserted; which ones depends on their ids."""

    def __post_init__(self) -> None:
        for what in ("subscribes_early", "subscribes_late", "deletes", "unsubscribes"):
            if not 0 <= getattr(self, what) <= RATE_MAX:
                raise InputError(
                    f"a rate is 0 to {RATE_MAX:,} per user and hour: {what} is "
                    f"{getattr(self, what)}"
                )
        if not 0.0 < self.candidate_share <= 1.0:
            raise InputError(
                "the share of candidate tags must be above 0 and at most 1, not "
                f"{self.candidate_share}"
            )
        for what in ("always_share", "boolean_share"):
            check_share(getattr(self, what), what)
        for what in ("lasts_us", "one_in"):
            if getattr(self, what) < 1:
                raise InputError(f"{what} must be at least 1, not {getattr(self, what)}")

    def compress_us(self, at_us: int) -> int:
        """Converts an instant since the start of the match to an instant of the trace."""
        return at_us * self.lasts_us // self.timetable.length_us


JOURNAL_RULES = TraceRules()
RateSpan = tuple[int, int, float]
"""Start and end instants, and a rate per hour."""


class QueryDraw(NamedTuple):
    """A query before its tags are known: a format, and the ranks of the tags to fill in."""

    shape: str
    ranks: tuple[int, ...]

    def fill(self, candidates: Sequence[Tag]) -> str:
        return self.shape.format(*(candidates[rank] for rank in self.ranks))


class SubscriptionDraw(NamedTuple):
    """A subscribe before its tags are known."""

    at_us: int
    sid: str
    query: QueryDraw
    frame: TimeFrame


def trace_from_posts(
    seed: int,
    posts: Iterable[Post],
    users: int,
    rules: TraceRules = JOURNAL_RULES,
    publishers_share: float | None = None,
) -> Trace:
    """Makes the trace of the most active users; user 0 is the most active.

    With `publishers_share`, that share of users only publishes; the others only subscribe (S7).
    """
    seen = [post for post in posts if is_insertable(post, rules)]
    names = top_users(Counter(post.user for post in seen), users)
    posts_by_user: dict[str, list[Post]] = defaultdict(list)
    for post in seen:
        if is_chosen(post.post_id, rules):
            posts_by_user[post.user].append(post)
    user_roles = assign_roles(seed, users, publishers_share)
    inserting = (
        posts_by_user[name]
        for name, role in zip(names, user_roles, strict=True)
        if can_publish(role)
    )
    popularity = tag_popularity(post for some in inserting for post in some)
    candidates = choose_candidates(popularity, rules.query_tags, rules.candidate_share)
    operations = (
        operation
        for user, (name, role) in enumerate(zip(names, user_roles, strict=True))
        for operation in user_operations(seed, user, posts_by_user[name], candidates, rules, role)
    )
    return merge_users(users, operations)


def is_insertable(post: Post, rules: TraceRules = JOURNAL_RULES) -> bool:
    """Whether a post can be an insert: published in the observed hours, with a tag (M2)."""
    return bool(post.tags) and rules.timetable.contains(post.at_us)


def is_chosen(post_id: str, rules: TraceRules) -> bool:
    """Whether a post belongs to the share of posts that are inserted."""
    return rules.one_in == 1 or crc32(post_id.encode()) % rules.one_in == 0


def can_publish(role: UserRole) -> bool:
    """Whether users with this role insert and delete."""
    return role is not UserRole.SUBSCRIBER


def assign_roles(seed: int, users: int, publishers_share: float | None) -> list[UserRole]:
    """The role of each user; BOTH for all without a share of publishers."""
    if publishers_share is None:
        return [UserRole.BOTH] * users
    publishing = set(sample_nodes(seed, "publisher", range(users), publishers_share))
    return [
        UserRole.PUBLISHER if user in publishing else UserRole.SUBSCRIBER for user in range(users)
    ]


def user_operations(
    seed: int,
    user: int,
    posts: Iterable[Post],
    candidates: QueryCandidates,
    rules: TraceRules = JOURNAL_RULES,
    role: UserRole = UserRole.BOTH,
) -> list[Operation]:
    """The operations of one user, in order."""
    operations: list[Operation] = []
    if can_publish(role):
        inserts = make_inserts(user, posts, rules)
        operations += [*inserts, *draw_deletes(seed, user, inserts, rules)]
    if role is not UserRole.PUBLISHER:
        subscribes = draw_subscribes(seed, user, candidates, rules)
        operations += [*subscribes, *draw_unsubscribes(seed, user, subscribes, rules)]
    # A stable sort: at equal instants, an insert stays before its delete.
    return sorted(operations, key=lambda operation: operation.at_us)


def make_inserts(
    user: int, posts: Iterable[Post], rules: TraceRules = JOURNAL_RULES
) -> list[InsertOperation]:
    """The inserts of a user, in order, with id and tags of the post and its text as object."""
    return [
        InsertOperation(
            rules.compress_us(post.at_us - rules.timetable.starts_us),
            user,
            post.post_id,
            post.tags,
            len(post.text.encode()),
            rules.summary_size,
            post.text,
        )
        for post in sorted(posts, key=lambda post: (post.at_us, post.post_id))
        if is_insertable(post, rules)
    ]


def draw_subscribes(
    seed: int, user: int, candidates: QueryCandidates, rules: TraceRules = JOURNAL_RULES
) -> list[SubscribeOperation]:
    """The subscribes of a user, in order."""
    return [
        SubscribeOperation(each.at_us, user, each.sid, each.query.fill(candidates.tags), each.frame)
        for each in draw_subscriptions(seed, user, candidates.ranks, rules)
    ]


def draw_subscriptions(
    seed: int, user: int, ranks: RankDraw, rules: TraceRules = JOURNAL_RULES
) -> list[SubscriptionDraw]:
    """The subscribes of a user, in order, with ranks of the candidate tags instead of tags."""
    if not ranks.candidates:
        return []
    rng = derive_rng(seed, "trace", user, "subscribe")
    turn_us = rules.timetable.first_half_s[1] * SECOND_US
    early = (0, turn_us, rules.subscribes_early)
    late = (turn_us, rules.timetable.length_us, rules.subscribes_late)
    made: list[SubscriptionDraw] = []
    for at_us in exponential_arrivals(rng, early, late):
        now_us = rules.compress_us(at_us)
        frame = ALWAYS if rng.random() < rules.always_share else TimeFrame(now_us)
        query = draw_query(rng, ranks, rules.boolean_share)
        made.append(SubscriptionDraw(now_us, f"s{user}-{len(made)}", query, frame))
    return made


def draw_deletes(
    seed: int, user: int, inserts: Sequence[InsertOperation], rules: TraceRules = JOURNAL_RULES
) -> list[DeleteOperation]:
    """The deletes of a user, in order; each deletes one of its existing objects, if any."""
    rng = derive_rng(seed, "trace", user, "delete")
    chosen = _draw_revocations(
        rng, [(each.at_us, each.oid) for each in inserts], rules, rules.deletes
    )
    return [DeleteOperation(at_us, user, oid) for at_us, oid in chosen]


def wants_to_delete(seed: int, user: int, rules: TraceRules = JOURNAL_RULES) -> bool:
    """Whether a user deletes an object if it has one in time; `draw_deletes` gives none if not."""
    rng = derive_rng(seed, "trace", user, "delete")
    return next(exponential_arrivals(rng, _second_half(rules, rules.deletes)), None) is not None


def draw_unsubscribes(
    seed: int,
    user: int,
    subscribes: Sequence[SubscribeOperation | SubscriptionDraw],
    rules: TraceRules = JOURNAL_RULES,
) -> list[UnsubscribeOperation]:
    """The unsubscribes of a user, in order; each revokes one active subscription, if any."""
    rng = derive_rng(seed, "trace", user, "unsubscribe")
    made = [(each.at_us, each.sid) for each in subscribes]
    chosen = _draw_revocations(rng, made, rules, rules.unsubscribes)
    return [UnsubscribeOperation(at_us, user, sid) for at_us, sid in chosen]


def exponential_arrivals(rng: Random, *spans: RateSpan) -> Iterator[int]:
    """Draws instants at exponential intervals over spans with rates per hour."""
    for from_us, to_us, rate in spans:
        at_us = float(from_us)
        # The exponential distribution is memoryless, so each span can start anew.
        while rate > 0 and (at_us := at_us + rng.expovariate(rate) * HOUR_US) < to_us:
            yield int(at_us)


def _second_half(rules: TraceRules, rate: float) -> RateSpan:
    begin_s, end_s = rules.timetable.second_half_s
    return begin_s * SECOND_US, end_s * SECOND_US, rate


def _draw_revocations(
    rng: Random, made: Sequence[tuple[int, str]], rules: TraceRules, rate: float
) -> Iterator[tuple[int, str]]:
    """Draws instants of the second half and, for each, one earlier item that is not revoked."""
    gone: set[str] = set()
    for at_us in exponential_arrivals(rng, _second_half(rules, rate)):
        now_us = rules.compress_us(at_us)
        there = [name for made_us, name in made if made_us <= now_us and name not in gone]
        if there:
            name = rng.choice(there)
            gone.add(name)
            yield now_us, name


_QUERY_SHAPES: tuple[tuple[int, str], ...] = (
    (2, "{} & {}"),
    (2, "{} | {}"),
    (2, "{} & !{}"),
    (3, "({} | {}) & !{}"),
    (3, "{} & ({} | {})"),
)


def draw_query(rng: Random, ranks: RankDraw, boolean_share: float) -> QueryDraw:
    """Draws a query over candidate tags: one tag, or a formula of two or three."""
    # Always drawn, so that `boolean_share` does not change the other queries.
    rank, lot, shape = ranks.draw(rng), rng.random(), rng.choice(_QUERY_SHAPES)
    inner = Random(rng.getrandbits(64))
    count, text = shape
    if lot >= boolean_share or ranks.candidates < count:
        return QueryDraw("{}", (rank,))
    return QueryDraw(text, (rank, *ranks.draw_others(inner, rank, count - 1)))
