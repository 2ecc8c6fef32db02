"""Rules: how the posts of a match become the trace of its most active users.

Their posts are the inserts; subscriptions, deletes and unsubscribes are drawn at exponential
intervals, from streams that depend on the seed, the user and the purpose alone. So each user's part
is a function of that user's posts and the candidate tags: `user_operations` may run anywhere.
`match_trace` does it all in one process.
Clauses: P3, S7, S10, C21.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from random import Random

import msgspec

from thyme.model.choice import check_share, choose
from thyme.model.errors import InputError
from thyme.model.frames import ALWAYS, SECOND_US, TimeFrame
from thyme.model.streams import stream
from thyme.model.tags import Tag
from thyme.traces.operations import Delete, Insert, Operation, Subscribe, Unsubscribe
from thyme.traces.posts import (
    CANDIDATE_SHARE,
    Post,
    candidate_tags,
    tag_popularity,
    top_users,
)
from thyme.traces.timetable import MATCH, Timetable
from thyme.traces.trace import Trace, merged

HOUR_US = 3_600 * SECOND_US


class Role(Enum):
    """What a user does."""

    BOTH = "both"
    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of F, 9.2; rates are per user and hour of the match."""

    timetable: Timetable = MATCH
    lasts_us: int = 600 * SECOND_US
    """Into how long the hours of the match are compressed."""
    candidate_share: float = CANDIDATE_SHARE
    subscribes_early: float = 3.0
    """Up to the end of the first half."""
    subscribes_late: float = 1.0
    always_share: float = 0.6
    """How many of the subscriptions are ⊥..⊥; the others are now..⊥."""
    boolean_share: float = 0.0
    """How many of the queries are formulas of two or three tags; the others are one tag."""
    deletes: float = 0.5
    """In the second half only, and so are unsubscribes."""
    unsubscribes: float = 0.2
    summary_size: int = 0

    def __post_init__(self) -> None:
        for what in ("subscribes_early", "subscribes_late", "deletes", "unsubscribes"):
            if getattr(self, what) < 0:
                raise InputError(f"a rate is not negative: {what} is {getattr(self, what)}")
        for what in ("always_share", "boolean_share"):
            check_share(getattr(self, what), what)
        if self.lasts_us < 1:
            raise InputError(f"operations last longer than 0 µs, not {self.lasts_us}")

    def compressed_us(self, at_us: int) -> int:
        """An instant of the match, from its start, as one of the trace."""
        return at_us * self.lasts_us // self.timetable.length_us


F_RULES = Rules()
Span = tuple[int, int, float]
"""From an instant to another, at a rate per hour."""


def match_trace(
    seed: int,
    posts: Iterable[Post],
    users: int,
    rules: Rules = F_RULES,
    publishers_share: float | None = None,
) -> Trace:
    """The trace of the most active users; user 0 is the most active.

    With a share of publishers, the others are subscribers and nobody is both (S7).
    """
    seen = [post for post in posts if insertable(post, rules)]
    names = top_users(Counter(post.user for post in seen), users)
    theirs: dict[str, list[Post]] = defaultdict(list)
    for post in seen:
        theirs[post.user].append(post)
    parts = roles(seed, users, publishers_share)
    inserting = (theirs[name] for name, role in zip(names, parts, strict=True) if publishes(role))
    popularity = tag_popularity(post for some in inserting for post in some)
    candidates = candidate_tags(popularity, rules.candidate_share)
    operations = (
        operation
        for user, (name, role) in enumerate(zip(names, parts, strict=True))
        for operation in user_operations(seed, user, theirs[name], candidates, rules, role)
    )
    return merged(users, operations)


def insertable(post: Post, rules: Rules = F_RULES) -> bool:
    """Whether a post can be an insert: written in the hours of the match, and with a tag (M2)."""
    return bool(post.tags) and rules.timetable.holds(post.at_us)


def publishes(role: Role) -> bool:
    """Whether a user of this role inserts and deletes."""
    return role is not Role.SUBSCRIBER


def roles(seed: int, users: int, publishers_share: float | None) -> list[Role]:
    """The role of each user; without a share of publishers, all are both."""
    if publishers_share is None:
        return [Role.BOTH] * users
    publishing = set(choose(seed, "publisher", range(users), publishers_share))
    return [Role.PUBLISHER if user in publishing else Role.SUBSCRIBER for user in range(users)]


def user_operations(
    seed: int,
    user: int,
    posts: Iterable[Post],
    candidates: Sequence[Tag],
    rules: Rules = F_RULES,
    role: Role = Role.BOTH,
) -> list[Operation]:
    """What one user does, in order."""
    operations: list[Operation] = []
    if publishes(role):
        inserts = inserts_of(user, posts, rules)
        operations += [*inserts, *deletes_of(seed, user, inserts, rules)]
    if role is not Role.PUBLISHER:
        subscribes = subscribes_of(seed, user, candidates, rules)
        operations += [*subscribes, *unsubscribes_of(seed, user, subscribes, rules)]
    # What was drawn first comes first where instants are equal: an insert before its delete.
    return sorted(operations, key=lambda operation: operation.at_us)


def inserts_of(user: int, posts: Iterable[Post], rules: Rules = F_RULES) -> list[Insert]:
    """A user's posts as inserts, in order: the post's id and tags, its text as the object."""
    return [
        Insert(
            rules.compressed_us(post.at_us - rules.timetable.starts_us),
            user,
            post.post_id,
            post.tags,
            len(post.text.encode()),
            rules.summary_size,
            post.text,
        )
        for post in sorted(posts, key=lambda post: (post.at_us, post.post_id))
        if insertable(post, rules)
    ]


def subscribes_of(
    seed: int, user: int, candidates: Sequence[Tag], rules: Rules = F_RULES
) -> list[Subscribe]:
    """A user's subscriptions, in order."""
    if not candidates:
        return []
    rng = stream(seed, "trace", user, "subscribe")
    turn_us = rules.timetable.first_half_s[1] * SECOND_US
    early = (0, turn_us, rules.subscribes_early)
    late = (turn_us, rules.timetable.length_us, rules.subscribes_late)
    made: list[Subscribe] = []
    for at_us in arrivals(rng, early, late):
        now_us = rules.compressed_us(at_us)
        frame = ALWAYS if rng.random() < rules.always_share else TimeFrame(now_us)
        query = drawn_query(rng, candidates, rules.boolean_share)
        made.append(Subscribe(now_us, user, f"s{user}-{len(made)}", query, frame))
    return made


def deletes_of(
    seed: int, user: int, inserts: Sequence[Insert], rules: Rules = F_RULES
) -> list[Delete]:
    """A user's deletes: each of an object of its own that is there, if there is one."""
    rng = stream(seed, "trace", user, "delete")
    chosen = _withdrawn(rng, [(each.at_us, each.oid) for each in inserts], rules, rules.deletes)
    return [Delete(at_us, user, oid) for at_us, oid in chosen]


def unsubscribes_of(
    seed: int, user: int, subscribes: Sequence[Subscribe], rules: Rules = F_RULES
) -> list[Unsubscribe]:
    """A user's unsubscribes: each of a subscription of its own that stands, if there is one."""
    rng = stream(seed, "trace", user, "unsubscribe")
    made = [(each.at_us, each.sid) for each in subscribes]
    chosen = _withdrawn(rng, made, rules, rules.unsubscribes)
    return [Unsubscribe(at_us, user, sid) for at_us, sid in chosen]


def arrivals(rng: Random, *spans: Span) -> Iterator[int]:
    """Instants at exponential intervals, over spans with rates per hour."""
    for from_us, to_us, rate in spans:
        at_us = float(from_us)
        # Exponential intervals have no memory, so each span may begin anew.
        while rate > 0 and (at_us := at_us + rng.expovariate(rate) * HOUR_US) < to_us:
            yield int(at_us)


def _withdrawn(
    rng: Random, made: Sequence[tuple[int, str]], rules: Rules, rate: float
) -> Iterator[tuple[int, str]]:
    """Instants of the second half, and what is taken back then of what was made until then."""
    begin_s, end_s = rules.timetable.second_half_s
    gone: set[str] = set()
    for at_us in arrivals(rng, (begin_s * SECOND_US, end_s * SECOND_US, rate)):
        now_us = rules.compressed_us(at_us)
        there = [name for made_us, name in made if made_us <= now_us and name not in gone]
        if there:
            name = rng.choice(there)
            gone.add(name)
            yield now_us, name


Shape = Callable[..., str]
_SHAPES: tuple[tuple[int, Shape], ...] = (
    (2, "{} & {}".format),
    (2, "{} | {}".format),
    (2, "{} & !{}".format),
    (3, "({} | {}) & !{}".format),
    (3, "{} & ({} | {})".format),
)


def drawn_query(rng: Random, candidates: Sequence[Tag], boolean_share: float) -> str:
    """A query: one tag, or a formula of two or three where there are as many."""
    # Drawn in any case, so that the setting moves nothing but the queries it turns into formulas.
    word, lot, shape = rng.choice(candidates), rng.random(), rng.choice(_SHAPES)
    inner = Random(rng.getrandbits(64))
    count, written = shape
    if lot >= boolean_share or len(candidates) < count:
        return word
    others = inner.sample([tag for tag in candidates if tag != word], count - 1)
    return written(word, *others)
