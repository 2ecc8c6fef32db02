"""The subscription index: frames, expiry, duplicates, costs, and a naive implementation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.hashing import printed
from tests.query.twin_subscription_index import SubscriptionIndexTwin
from thyme.model.errors import QueryError
from thyme.model.subscriptions import LITERALS_MAX, Conjunction
from thyme.model.tags import Tag
from thyme.model.time_frames import ALWAYS, TimeFrame
from thyme.query.query import Query
from thyme.query.subscription_index import trie
from thyme.query.subscription_index.index import DISJOINT_MAX, SETTLE_US, SubscriptionIndex
from thyme.query.subscription_index.trie import TrieNode

NOW_US = 100


def an_index(
    *queries: str, frame: TimeFrame = ALWAYS, tolerance_us: int = 0
) -> SubscriptionIndex[str]:
    """An index in which each query is its own key and value."""
    index: SubscriptionIndex[str] = SubscriptionIndex(tolerance_us=tolerance_us)
    for query in queries:
        stand(index, query, frame)
    return index


def stand(index: SubscriptionIndex[str], query: str, frame: TimeFrame = ALWAYS) -> None:
    index.add(query, query, Query(query).conjunctions, frame, NOW_US)


def matched(index: SubscriptionIndex[Any], tags: str, published_us: int = NOW_US) -> list[Any]:
    return sorted(index.match(words(tags), published_us))


def words(tags: str) -> tuple[Tag, ...]:
    return tuple(sorted(Tag(tag) for tag in tags.split()))


# --- Matches ----------------------------------------------------------------------------------


def test_an_object_meets_the_subscriptions_its_tags_satisfy_m11() -> None:
    index = an_index("goal", "goal & eder", "goal & !replay", "goal & eder & !replay", "penalty")

    assert matched(index, "goal") == ["goal", "goal & !replay"]
    assert matched(index, "goal replay") == ["goal"]
    assert matched(index, "eder goal replay") == ["goal", "goal & eder"]
    assert matched(index, "eder") == []


@pytest.mark.parametrize(
    "query",
    [
        "a | b",
        "a & !x | b & !y",
        "a & !x | a & !y",
        "a & !x | a & b",
        "a & b | b & c | a & c",
        "a & !b | b & !a",
        "a | b & c | x & y & !b",
        "a & !x & !y | b & !c | c & x",
    ],
)
def test_a_subscription_is_brought_once_however_many_conjunctions_match_m15(query: str) -> None:
    index = an_index(query)

    for size in range(6):
        for tags in combinations(words("a b c x y"), size):
            expected = [query] if Query(query).matches(tags) else []
            assert index.match(tags, NOW_US) == expected, tags


def test_a_subscription_of_very_many_conjunctions_is_brought_once_too_m15() -> None:
    tags = [f"t{number}" for number in range(DISJOINT_MAX + 1)]
    query = " | ".join(tags)

    assert matched(an_index(query), " ".join(tags)) == [query]


def test_conjunctions_handed_in_twice_or_absorbed_bring_a_subscription_once() -> None:
    index: SubscriptionIndex[str] = SubscriptionIndex()
    weaker, stronger = Conjunction(words("a")), Conjunction(words("a b"))

    index.add(1, "one", [stronger, weaker, weaker], ALWAYS, NOW_US)

    assert index.match(words("a b"), NOW_US) == ["one"]


def test_neither_the_order_nor_the_repetition_of_tags_matters() -> None:
    index = an_index("a & b", "b & c & !x")

    for tags in (["c", "b", "a"], ["a", "b", "c", "a"], {"b", "a", "c"}):
        assert sorted(index.match([Tag(tag) for tag in tags], NOW_US)) == ["a & b", "b & c & !x"]


def test_equal_values_under_different_keys_are_different_subscriptions() -> None:
    index: SubscriptionIndex[str] = SubscriptionIndex()
    for key in (1, 2):
        index.add(key, "same", [Conjunction(words("a"))], ALWAYS, NOW_US)

    assert index.match(words("a"), NOW_US) == ["same", "same"]


# --- Frames -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("at_us", "inside"), [(9, False), (10, True), (20, True), (21, False)])
def test_both_ends_of_a_frame_belong_to_it_m10(at_us: int, inside: bool) -> None:
    index = an_index("goal", frame=TimeFrame(10, 20))

    assert matched(index, "goal", at_us) == (["goal"] if inside else [])


@pytest.mark.parametrize("start_us", [NOW_US - 50, NOW_US, NOW_US + 50])
def test_an_open_frame_starts_exactly_at_its_start_m10(start_us: int) -> None:
    index = an_index("goal", frame=TimeFrame(start_us, None))

    assert matched(index, "goal", start_us - 1) == []
    assert matched(index, "goal", start_us) == ["goal"]


@pytest.mark.parametrize("later_us", [0, SETTLE_US // 2, SETTLE_US - 1, SETTLE_US, 2 * SETTLE_US])
def test_a_late_object_meets_only_those_that_had_begun_when_it_was_published_m11(
    later_us: int,
) -> None:
    index = an_index("goal")
    stand(index, "goal | penalty", TimeFrame(NOW_US, None))
    stand(index, "goal & !replay", TimeFrame(NOW_US - 1, None))

    assert index.expire(NOW_US + later_us) == []
    assert matched(index, "goal", NOW_US - 1) == ["goal", "goal & !replay"]
    assert matched(index, "goal", NOW_US) == ["goal", "goal & !replay", "goal | penalty"]


def test_a_subscription_that_begins_later_and_settles_matches_all_along_m10() -> None:
    index = an_index("goal & !replay | penalty", frame=TimeFrame(NOW_US + 10, None))

    for now_us in (NOW_US, NOW_US + 10, NOW_US + 10 + SETTLE_US):
        assert index.expire(now_us) == []
        assert matched(index, "goal penalty", NOW_US + 9) == []
        assert matched(index, "goal penalty", NOW_US + 10) == ["goal & !replay | penalty"]


def test_a_subscription_past_its_end_leaves_by_itself_m18() -> None:
    index = an_index("goal", frame=TimeFrame(None, 200))

    assert index.next_expiry_us() == 201
    assert index.expire(200) == []
    assert index.expire(201) == ["goal"]
    assert len(index) == 0
    assert index.next_expiry_us() is None
    assert_empty(index)


def test_within_the_tolerance_an_object_of_before_the_end_still_counts_m12() -> None:
    index = an_index("goal", frame=TimeFrame(None, 200), tolerance_us=30)

    assert index.expire(230) == []
    assert matched(index, "goal", 200) == ["goal"]
    assert matched(index, "goal", 201) == []
    assert index.next_expiry_us() == 231
    assert index.expire(231) == ["goal"]


def test_subscriptions_leave_in_the_order_of_their_ends_m18() -> None:
    index = an_index()
    for query, end_us in (("c", 30), ("a", 10), ("b", 20), ("d", 10)):
        stand(index, query, TimeFrame(None, end_us))

    assert index.expire(25) == ["a", "d", "b"]
    assert index.expire(31) == ["c"]


def test_a_frame_without_end_never_leaves_by_itself_m18() -> None:
    index = an_index("goal")

    assert index.expire(2**62) == []
    assert index.next_expiry_us() is None


# --- Adding and removing ----------------------------------------------------------------------


def test_a_cancelled_subscription_is_gone_at_once_m18() -> None:
    index = an_index("goal", "goal | penalty")

    assert index.remove("goal")
    assert not index.remove("goal")
    assert matched(index, "goal") == ["goal | penalty"]
    assert "goal" not in index
    assert index.get("goal") is None


def test_a_subscription_without_conjunctions_is_refused() -> None:
    with pytest.raises(QueryError):
        SubscriptionIndex[str]().add(1, "one", [], ALWAYS, NOW_US)


def test_the_same_key_again_replaces() -> None:
    index = an_index()
    index.add(1, "old", Query("a | b").conjunctions, TimeFrame(None, 150), NOW_US)
    index.add(1, "new", Query("b | c").conjunctions, ALWAYS, NOW_US)

    assert [matched(index, tag) for tag in "abc"] == [[], ["new"], ["new"]]
    assert (len(index), index.get(1), index.next_expiry_us()) == (1, "new", None)
    assert index.expire(1_000) == []


@pytest.mark.parametrize("frame", [ALWAYS, TimeFrame(NOW_US, None), TimeFrame(None, 500)])
def test_nothing_is_left_when_all_have_left(frame: TimeFrame) -> None:
    rng = Random(1)
    index: SubscriptionIndex[int] = SubscriptionIndex()
    for key in range(2_000):
        index.add(key, key, some_conjunctions(rng), frame, NOW_US)

    for key in rng.sample(range(2_000), 2_000):
        assert index.remove(key)

    assert_empty(index)


def test_coming_and_going_leaves_no_trail_of_ends_m18() -> None:
    index = an_index("goal", frame=TimeFrame(None, 200))
    for end_us in range(1_000, 3_000):
        stand(index, "penalty", TimeFrame(None, end_us))

    assert len(index._expiry_queue) <= 4
    assert index.next_expiry_us() == 201


# --- Costs ------------------------------------------------------------------------------------


class Listening(frozenset[Tag]):
    """The tags of an object, which count how often single entries are checked against them."""

    asked = 0

    def issuperset(self, other: Iterable[object], /) -> bool:
        self.asked += 1
        return super().issuperset(other)

    def isdisjoint(self, other: Iterable[object], /) -> bool:
        self.asked += 1
        return super().isdisjoint(other)


def asked_by(index: SubscriptionIndex[Any], tags: tuple[Tag, ...]) -> int:
    """How many single entries the index checks for an object with these tags."""
    present = Listening(tags)
    index._settled_trie.collect_matches(tags, present, [], False)
    return present.asked


def test_an_object_does_not_ask_subscriptions_to_other_tags() -> None:
    index = an_index(*(f"t{number} & u{number} & !v" for number in range(1_000)))

    assert asked_by(index, words("goal u7 v")) == 0


def test_a_tag_that_many_share_does_not_make_them_all_be_asked() -> None:
    index = an_index(*(f"goal & t{number}" for number in range(1_000)))

    assert matched(index, "goal t7") == ["goal & t7"]
    assert asked_by(index, words("goal t7")) == 1


def test_many_with_the_same_query_are_brought_without_asking() -> None:
    index: SubscriptionIndex[int] = SubscriptionIndex()
    for key in range(1_000):
        index.add(key, key, Query("goal & eder & !replay").conjunctions, ALWAYS, NOW_US)

    assert index.match(words("eder goal"), NOW_US) == list(range(1_000))
    assert asked_by(index, words("eder goal")) == 0


@pytest.mark.parametrize(
    "query", ["goal & !replay", "goal & !replay & !t{}", "replay | goal & !t{}"]
)
def test_a_crowd_that_a_tag_bars_is_passed_by_whole(query: str) -> None:
    index: SubscriptionIndex[int] = SubscriptionIndex()
    for key in range(1_000):
        index.add(key, key, Query(query.format(key)).conjunctions, ALWAYS, NOW_US)
    goal = index._settled_trie.single_tag_root.children[Tag("goal")]

    assert isinstance(goal, TrieNode)
    assert len(goal.entries) <= trie.BUCKET_MAX
    assert index.match(words("goal replay"), NOW_US) == (
        index.match(words("replay"), NOW_US) if "|" in query else []
    )


def test_long_conjunctions_and_objects_of_many_tags_do_not_explode() -> None:
    index: SubscriptionIndex[int] = SubscriptionIndex()
    tags = tuple(sorted(Tag(f"t{number:02}") for number in range(64)))
    rng = Random(2)
    for key in range(500):
        wanted = tuple(sorted(rng.sample(tags, 40)))
        index.add(key, key, [Conjunction(wanted)], ALWAYS, NOW_US)

    assert sorted(index.match(tags, NOW_US)) == list(range(500))
    assert asked_by(index, tags) <= 2 * 500


def test_no_length_of_a_conjunction_exhausts_the_stack() -> None:
    index: SubscriptionIndex[int] = SubscriptionIndex()
    tags = tuple(sorted(Tag(f"t{number:03}") for number in range(LITERALS_MAX)))
    for key in range(200):
        index.add(key, key, [Conjunction(tags)], ALWAYS, NOW_US)
        index.add(-1 - key, key, [Conjunction((Tag("goal"),), tags[1:])], ALWAYS, NOW_US)

    assert len(index.match(words("goal"), NOW_US)) == 200
    assert len(index.match(tags, NOW_US)) == 200
    assert index.match(tags[:64], NOW_US) == []


# --- Order ------------------------------------------------------------------------------------

STORY = """
from random import Random
from tests.query.test_subscription_index import *
rng = Random(3)
index = SubscriptionIndex()
for key in range(256):
    frame = rng.choice((ALWAYS, TimeFrame(50, None), TimeFrame(None, 500)))
    index.add(key, f"s{key}", some_conjunctions(rng), frame, NOW_US)
    if rng.random() < 0.4:
        index.remove(rng.randrange(key + 1))
for tags in ("a", "a b", "b c d", "a c e f"):
    print(index.match(words(tags), 40), index.match(words(tags), NOW_US))
"""


def test_the_order_of_matches_never_comes_from_hashing() -> None:
    [told] = printed(STORY, hash_seeds="012")

    assert b"'s" in told


# --- Against the naive index ------------------------------------------------------------------

TAGS = [Tag(letter) for letter in "abcdef"]


def some_conjunctions(rng: Random) -> list[Conjunction]:
    """One to three conjunctions over few tags, of which the first is the most popular."""
    found = []
    for _ in range(rng.randint(1, 3)):
        tags = sorted(set(rng.choices(TAGS, weights=[1 / n for n in range(1, 7)], k=4)))
        rng.shuffle(tags)
        cut = rng.randint(1, len(tags))
        found.append(Conjunction(tuple(sorted(tags[:cut])), tuple(sorted(tags[cut:]))))
    return found


@st.composite
def conjunctions(draw: st.DrawFn) -> Conjunction:
    tags = draw(st.permutations(TAGS))
    wanted = draw(st.integers(1, 3))
    unwanted = draw(st.integers(0, 3))
    return Conjunction(
        tuple(sorted(tags[:wanted])), tuple(sorted(tags[wanted : wanted + unwanted]))
    )


instants = st.integers(0, 20)


@st.composite
def frames(draw: st.DrawFn) -> TimeFrame:
    start, end = sorted((draw(instants), draw(instants)))
    return TimeFrame(draw(st.sampled_from((None, start))), draw(st.sampled_from((None, end))))


class AgainstTheTwin(RuleBasedStateMachine):
    """Applies the same changes to the index and to the naive one, and compares their answers."""

    limits: ClassVar[tuple[int, int]] = (1, 1)

    @initialize(tolerance_us=st.integers(0, 3), settle_us=st.integers(0, 5))
    def begin(self, tolerance_us: int, settle_us: int) -> None:
        self.kept = trie.SMALL_BUCKET_MAX, trie.BUCKET_MAX
        trie.SMALL_BUCKET_MAX, trie.BUCKET_MAX = self.limits
        self.index: SubscriptionIndex[int] = SubscriptionIndex(
            tolerance_us=tolerance_us, settle_us=settle_us
        )
        self.twin: SubscriptionIndexTwin[int] = SubscriptionIndexTwin(tolerance_us=tolerance_us)
        self.now_us = 0
        self.values = 0

    def teardown(self) -> None:
        if hasattr(self, "kept"):
            trie.SMALL_BUCKET_MAX, trie.BUCKET_MAX = self.kept

    @rule(
        key=st.integers(0, 30),
        formula=st.lists(conjunctions(), min_size=1, max_size=DISJOINT_MAX + 2),
        frame=frames() | st.just(ALWAYS),
        copies=st.sampled_from((1, 1, 4)),
    )
    def add(self, key: int, formula: list[Conjunction], frame: TimeFrame, copies: int) -> None:
        for copy in range(copies):
            self.values += 1
            for index in (self.index, self.twin):
                index.add(key + copy, self.values, formula, frame, self.now_us)

    @rule(key=st.integers(0, 33))
    def remove(self, key: int) -> None:
        assert self.index.remove(key) == self.twin.remove(key)

    @rule(forward_us=st.integers(0, 3))
    def time_passes(self, forward_us: int) -> None:
        self.now_us += forward_us

    @rule()
    def expire(self) -> None:
        assert self.index.expire(self.now_us) == self.twin.expire(self.now_us)

    @rule(tags=st.sets(st.sampled_from(TAGS)), published_us=instants)
    def match(self, tags: set[Tag], published_us: int) -> None:
        found = self.index.match(tuple(sorted(tags)), published_us)
        assert sorted(found) == sorted(self.twin.match(tags, published_us))

    @rule()
    def match_everything_now(self) -> None:
        for size in range(len(TAGS) + 1):
            for tags in combinations(TAGS, size):
                self.match(set(tags), self.now_us)

    @rule()
    def all_leave(self) -> None:
        for key in range(34):
            self.remove(key)
        assert_empty(self.index)

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "index"):
            return
        assert len(self.index) == len(self.twin)
        assert self.index.next_expiry_us() == self.twin.next_expiry_us()
        for key in range(34):
            assert (key in self.index) == (key in self.twin)
            assert self.index.get(key) == self.twin.get(key)
        assert_sound(self.index)


class AgainstTheTwinInSmallCrowds(AgainstTheTwin):
    limits = (2, 3)


TestAgainstTheTwin = AgainstTheTwin.TestCase
TestAgainstTheTwinInSmallCrowds = AgainstTheTwinInSmallCrowds.TestCase
TestAgainstTheTwin.settings = settings(max_examples=60, stateful_step_count=40)
TestAgainstTheTwinInSmallCrowds.settings = TestAgainstTheTwin.settings


def tops_of(index: SubscriptionIndex[Any]) -> list[TrieNode[Any]]:
    trees = (index._settled_trie, index._unsettled_trie)
    return [top for tree in trees for top in (tree.single_tag_root, tree.tag_pair_root)]


def nodes_of(node: TrieNode[Any]) -> Iterator[TrieNode[Any]]:
    yield node
    for child in node.children_if_absent.values():
        yield from nodes_of(child)
    for branch in node.children.values():
        if isinstance(branch, TrieNode):
            yield from nodes_of(branch)


def assert_sound(index: SubscriptionIndex[Any]) -> None:
    """Checks the invariants inside the index."""
    for top in tops_of(index):
        for node in nodes_of(top):
            assert node is top or not node.is_empty
            assert [entry.index for entry in node.entries] == list(range(len(node.entries)))
            assert [entry.subscription.value for entry in node.entries] == node.values
            assert all(entry.node is node for entry in node.entries)
    for agenda in (index._expiry_queue, index._settle_queue):
        assert len(agenda) <= 2 * len(index._unsettled)


def assert_empty(index: SubscriptionIndex[Any]) -> None:
    """Checks that an index is like a new one."""
    assert len(index) == 0
    assert len(index._tags) == 0
    assert len(index._expiry_queue) == len(index._settle_queue) == 0
    for top in tops_of(index):
        assert top.is_empty
        assert top.children is TrieNode().children
