"""The history index: frames, pages, deletion, late objects, costs, and a naive implementation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.builders import conjunctions, frame, key, photo
from tests.hashing import printed
from tests.query.twin_history_index import HistoryTwin
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.model.time_frames import ALWAYS, INSTANT_MAX_US, TimeFrame
from thyme.query.cursor import Cursor, cursor_at
from thyme.query.history_index import index as history_module
from thyme.query.history_index import postings
from thyme.query.history_index.index import HistoryIndex

GOAL = conjunctions("goal")


def an_index(objects: Iterable[Metadata] = (), *, chunk_size: int = 8) -> HistoryIndex:
    """An index of small chunks, so that a few objects fill several."""
    index = HistoryIndex(chunk_size)
    for metadata in objects:
        assert index.add(metadata)
    return index


def photos(count: int, tags: Iterable[str] = ("goal",)) -> list[Metadata]:
    """Photo n, published at instant n."""
    return [photo(number, tags=tags, at_us=number) for number in range(count)]


def pages_of(index: HistoryIndex, query: str, size: int) -> list[list[Metadata]]:
    """All pages of a query, each from the end of the one before."""
    pages: list[list[Metadata]] = []
    before: Cursor | None = None
    while page := index.latest_matches(conjunctions(query), ALWAYS, size, before):
        pages.append(page)
        before = cursor_at(page[-1])
    return pages


# --- Answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("at_us", "inside"), [(9, False), (10, True), (20, True), (21, False)])
def test_m11_both_ends_belong_to_the_frame(at_us: int, inside: bool) -> None:
    index = an_index([photo(at_us=at_us)])

    assert index.count_matches(GOAL, frame(10, 20)) == inside
    assert bool(index.latest_matches(GOAL, frame(10, 20), 1)) is inside


@pytest.mark.parametrize("at_us", [-INSTANT_MAX_US, INSTANT_MAX_US])
def test_m10_an_open_end_leaves_nothing_out(at_us: int) -> None:
    index = an_index([photo(at_us=at_us)])

    assert index.count_matches(GOAL, ALWAYS) == 1
    assert index.latest_matches(GOAL, ALWAYS, 1) == [photo(at_us=at_us)]


def test_m17_the_first_batch_is_the_n_most_recent_of_x() -> None:
    many = photos(30)
    index = an_index(many)

    assert index.count_matches(GOAL, frame(5, 24)) == 20
    assert index.latest_matches(GOAL, frame(5, 24), 3) == [many[24], many[23], many[22]]


def test_m17_more_goes_on_where_the_page_ended() -> None:
    many = photos(30)
    index = an_index(many)

    assert index.latest_matches(GOAL, frame(5, 24), 3, cursor_at(many[22])) == many[19:22][::-1]
    assert index.latest_matches(GOAL, frame(5, 24), 100, cursor_at(many[7])) == many[5:7][::-1]
    assert index.latest_matches(GOAL, frame(5, 24), 100, cursor_at(many[5])) == []


def test_m14_what_was_deleted_is_never_seen_again() -> None:
    index = an_index(photos(30))

    assert index.remove(key(25)) == photo(25, at_us=25)

    assert key(25) not in index
    assert index.get(key(25)) is None
    assert index.count_matches(GOAL, frame(20, 29)) == 9
    assert photo(25, at_us=25) not in index.latest_matches(GOAL, ALWAYS, 100)


def test_m14_deleting_what_is_not_there_changes_nothing() -> None:
    index = an_index(photos(3))

    assert index.remove(key(7)) is None
    assert len(index) == 3


def test_a_key_is_taken_once_and_the_first_stays() -> None:
    index = an_index([photo(1, tags=["goal"], at_us=5)])

    assert index.add(photo(1, tags=["replay"], at_us=9)) is False

    assert list(index) == [photo(1, tags=["goal"], at_us=5)]
    assert index.count_matches(conjunctions("replay"), ALWAYS) == 0


def test_a_key_that_was_deleted_can_come_back_with_other_tags() -> None:
    index = an_index([photo(1, tags=["goal"], at_us=5)])
    index.remove(key(1))

    assert index.add(photo(1, tags=["replay"], at_us=3))

    assert index.count_matches(GOAL, ALWAYS) == 0
    assert index.latest_matches(conjunctions("replay"), ALWAYS, 9) == [
        photo(1, tags=["replay"], at_us=3)
    ]


def test_an_object_that_satisfies_two_conjunctions_counts_once() -> None:
    index = an_index([photo(1, tags=["eder", "ronaldo"])])

    assert index.count_matches(conjunctions("eder | ronaldo"), ALWAYS) == 1
    assert len(index.latest_matches(conjunctions("eder | ronaldo"), ALWAYS, 9)) == 1


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("goal", [5, 4, 3, 2, 1]),
        ("goal & eder", [5, 4, 2]),
        ("goal & !replay", [4, 3, 2, 1]),
        ("goal & (eder | ronaldo) & !replay", [4, 3, 2]),
        ("goal & eder & ronaldo", [4]),
        ("goal & !eder | ronaldo & !replay", [4, 3, 1]),
        ("goal & nobody", []),
        ("goal & (nobody | eder) & !noone", [5, 4, 2]),
    ],
)
def test_queries_find_what_their_formula_says(query: str, found: list[int]) -> None:
    tags = ["goal"], ["goal", "eder"], ["goal", "ronaldo"], ["goal", "eder", "ronaldo"]
    held = [*tags, ["goal", "eder", "replay"]]
    index = an_index(photo(n, tags=words, at_us=n) for n, words in enumerate(held, start=1))

    assert index.latest_matches(conjunctions(query), ALWAYS, 9) == [
        photo(n, tags=held[n - 1], at_us=n) for n in found
    ]
    assert index.count_matches(conjunctions(query), ALWAYS) == len(found)


@pytest.mark.parametrize("count", [0, -1])
def test_a_page_of_nothing_is_empty(count: int) -> None:
    assert an_index(photos(3)).latest_matches(GOAL, ALWAYS, count) == []


def test_no_conjunction_finds_nothing() -> None:
    index = an_index(photos(3))

    assert index.latest_matches((), ALWAYS, 9) == []
    assert index.count_matches((), ALWAYS) == 0


def test_an_empty_history_answers_too() -> None:
    index = HistoryIndex()

    assert (len(index), list(index), index.count_matches(GOAL, ALWAYS)) == (0, [], 0)
    assert index.latest_matches(GOAL, ALWAYS, 9) == []


# --- Order ------------------------------------------------------------------------------------


def test_late_objects_stand_where_their_time_says() -> None:
    many = photos(40)
    late = many[::3]
    index = an_index([metadata for metadata in many if metadata not in late] + late[::-1])

    assert list(index) == many
    assert index.latest_matches(GOAL, ALWAYS, 40) == many[::-1]
    assert index.latest_matches(GOAL, frame(10, 20), 5) == many[16:21][::-1]


def test_objects_of_one_instant_stand_in_the_order_of_their_keys() -> None:
    many = sorted((photo(number, at_us=7) for number in range(40)), key=cursor_at)
    shuffled = Random(1).sample(many, len(many))
    index = an_index(shuffled)

    assert list(index) == many
    assert list(chain(*pages_of(index, "goal", 3))) == many[::-1]


def test_asking_again_and_again_puts_a_chunk_in_order_and_changes_no_answer() -> None:
    many = photos(8)
    index = an_index(many[::-1], chunk_size=64)
    chunk = index._chunks[0]

    for _ in range(20):
        assert index.latest_matches(GOAL, ALWAYS, 3) == [many[7], many[6], many[5]]
        assert index.count_matches(GOAL, frame(2, 4)) == 3

    assert index._chunks[0] is not chunk
    assert list(index) == many


# --- Pages while the history changes ----------------------------------------------------------


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_m17_pages_put_together_are_the_whole_list(data: st.DataObject) -> None:
    stamps = data.draw(st.lists(st.integers(0, 9), max_size=40), label="stamps")
    size = data.draw(st.integers(1, 12), label="page size")
    many = [photo(number, at_us=at_us) for number, at_us in enumerate(stamps)]
    index = an_index(many, chunk_size=data.draw(st.sampled_from([2, 4, 9]), label="chunk size"))

    pages = pages_of(index, "goal", size)

    assert list(chain(*pages)) == sorted(many, key=cursor_at, reverse=True)
    assert all(len(page) == size for page in pages[:-1])


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_m17_pages_neither_repeat_nor_skip_while_others_come_and_go(data: st.DataObject) -> None:
    stamps = st.integers(0, 9)
    many = [
        photo(number, at_us=at_us)
        for number, at_us in enumerate(data.draw(st.lists(stamps, max_size=30), label="there"))
    ]
    index = an_index(many, chunk_size=4)
    seen: list[Metadata] = []
    gone: list[Metadata] = []
    number = 100
    while page := index.latest_matches(GOAL, ALWAYS, 3, cursor_at(seen[-1]) if seen else None):
        seen += page
        for at_us in data.draw(st.lists(stamps, max_size=4), label="come"):
            index.add(photo(number, at_us=at_us))
            number += 1
        for metadata in data.draw(st.lists(st.sampled_from(many), max_size=3), label="go"):
            index.remove(metadata.key)
            gone.append(metadata)

    assert len(set(seen)) == len(seen)
    assert seen == sorted(seen, key=cursor_at, reverse=True)
    assert {metadata for metadata in many if metadata not in gone} <= set(seen)


# --- Costs ------------------------------------------------------------------------------------


def test_a_small_page_looks_at_few_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    def counting(terms: Any, chunk: int, objects: Any) -> int:
        looked_at.append(chunk)
        return postings.matching_slots(terms, chunk, objects)

    index = an_index(photos(1_000))
    monkeypatch.setattr(history_module, "matching_slots", counting)

    index.latest_matches(GOAL, ALWAYS, 5)
    assert len(looked_at) <= 2
    looked_at.clear()
    index.latest_matches(GOAL, ALWAYS, 5, Cursor(500, key()))
    assert len(looked_at) <= 2


def test_a_query_for_a_tag_that_nobody_used_looks_at_no_chunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = an_index(photos(100))
    monkeypatch.setattr(history_module, "matching_slots", None)

    assert index.count_matches(conjunctions("goal & nobody"), ALWAYS) == 0


def test_deleting_frees_what_was_held() -> None:
    many = photos(1_000)
    index = an_index(many)

    for metadata in many[:990]:
        index.remove(metadata.key)

    assert len(index._chunks) <= 4
    assert sum(len(chunk.objects) for chunk in index._chunks) <= 20
    for metadata in many[990:]:
        index.remove(metadata.key)
    assert len(index._chunks) == 1
    assert not index._postings._by_tag


def test_chunks_stay_well_filled_whatever_the_order_of_arrival() -> None:
    many = photos(2_000)
    index = an_index(Random(3).sample(many, len(many)), chunk_size=64)

    assert len(index._chunks) <= 2 * len(many) // 32
    assert list(index) == many


def test_signs_may_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "_TAG_CHARS", 2)
    index = an_index(photo(n, tags=[f"tag{n}", f"tag{n + 1}"], at_us=n) for n in range(20))

    assert index.latest_matches(conjunctions("tag7 & tag8"), ALWAYS, 9) == [
        photo(7, tags=["tag7", "tag8"], at_us=7)
    ]
    assert index.count_matches(conjunctions("tag7 & tag9"), ALWAYS) == 0
    assert index.count_matches(conjunctions("tag7 & !tag8"), ALWAYS) == 1


def test_common_tags_are_found_as_rare_ones_are() -> None:
    """At full size: a tag in every object, in every second, fiftieth and thousandth one."""
    tags = {1: "all", 2: "half", 50: "some", 1_000: "few"}
    many = [
        photo(n, tags=[word for step, word in tags.items() if n % step == 0], at_us=n)
        for n in range(3_000)
    ]
    index, twin = HistoryIndex(), HistoryTwin()
    for metadata in many:
        index.add(metadata)
        twin.add(metadata)

    for query in ("all & half & !some", "half & (some | few)", "all & (few | some) & !half", "few"):
        wanted = conjunctions(query)
        assert index.count_matches(wanted, frame(100, 2_900)) == twin.count_matches(
            wanted, frame(100, 2_900)
        )
        for count in (30, 3_000):
            assert index.latest_matches(wanted, ALWAYS, count) == twin.latest_matches(
                wanted, ALWAYS, count
            )


def test_answers_are_the_same_whatever_the_hash_seed() -> None:
    program = """
from itertools import chain
from random import Random
from tests.builders import conjunctions, photo
from thyme.model.time_frames import ALWAYS
from thyme.query.history_index.index import HistoryIndex
rng, index = Random(5), HistoryIndex(16)
for n in range(300):
    index.add(photo(n, tags=rng.sample("abcdef", rng.randint(1, 4)), at_us=rng.randrange(50)))
    index.remove(photo(rng.randrange(300)).key)
for query in ("a", "a & (b | c) & !d", "a & !b | c & d"):
    wanted = conjunctions(query)
    latest = index.latest_matches(wanted, ALWAYS, 50)
    print(index.count_matches(wanted, ALWAYS), [str(m.key) for m in latest])
print([(chunk.number, chunk.live_count) for chunk in index._chunks])
"""
    assert len(printed(program, hash_seeds="012")) == 1


# --- Against the naive index ------------------------------------------------------------------

WORDS = [Tag(word) for word in "abcdef"]
stamps = st.integers(0, 12)
frames = st.tuples(st.none() | stamps, st.none() | stamps)
word_sets = st.sets(st.sampled_from(WORDS), min_size=1, max_size=4)


@st.composite
def conjunction_lists(draw: st.DrawFn) -> Sequence[Conjunction]:
    """One to three conjunctions, with literals in common more often than not."""
    common = draw(st.sets(st.sampled_from(WORDS), max_size=2))
    unwanted = draw(st.sets(st.sampled_from(WORDS), max_size=2))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        wanted = common | draw(st.sets(st.sampled_from(WORDS), max_size=2))
        none_of = unwanted if draw(st.booleans()) else draw(st.sets(st.sampled_from(WORDS)))
        assume(wanted)
        found.append(Conjunction(tuple(sorted(wanted)), tuple(sorted(none_of - wanted))))
    return found


class HistoryAndTwin(RuleBasedStateMachine):
    """Applies the same changes to both indexes and compares their answers."""

    def __init__(self) -> None:
        super().__init__()
        self.twin = HistoryTwin()
        self.latest_us = 0

    @initialize(chunk_size=st.sampled_from([2, 3, 4, 8, 40]))
    def start(self, chunk_size: int) -> None:
        self.index = HistoryIndex(chunk_size)

    @rule(number=st.integers(0, 60), words=word_sets, at_us=stamps)
    def add_anywhere(self, number: int, words: set[str], at_us: int) -> None:
        self.add(photo(number, tags=words, at_us=at_us))

    @rule(number=st.integers(0, 60), words=word_sets, step_us=st.integers(0, 1))
    def add_at_the_end(self, number: int, words: set[str], step_us: int) -> None:
        self.latest_us += step_us
        self.add(photo(number, tags=words, at_us=self.latest_us))

    @rule(numbers=st.lists(st.integers(0, 60), max_size=12))
    def remove_some(self, numbers: list[int]) -> None:
        for number in numbers:
            assert self.index.remove(key(number)) == self.twin.remove(key(number))

    @rule()
    def remove_the_oldest(self) -> None:
        oldest = next(iter(self.index), None)
        assert oldest == next(iter(self.twin), None)
        if oldest is not None:
            assert self.index.remove(oldest.key) is self.twin.remove(oldest.key)

    @rule(wanted=conjunction_lists(), ends=frames, count=st.integers(0, 9), data=st.data())
    def ask(
        self,
        wanted: Sequence[Conjunction],
        ends: tuple[int | None, int | None],
        count: int,
        data: st.DataObject,
    ) -> None:
        start_us, end_us = ends
        if start_us is not None and end_us is not None:
            start_us, end_us = sorted(ends)  # type: ignore[type-var]
        within = TimeFrame(start_us, end_us)
        places = [cursor_at(metadata) for metadata in self.twin]
        somewhere = st.builds(Cursor, stamps, st.integers(0, 60).map(key))
        before = data.draw(
            st.none() | somewhere | (st.sampled_from(places) if places else somewhere)
        )

        assert self.index.count_matches(wanted, within) == self.twin.count_matches(wanted, within)
        assert self.index.latest_matches(wanted, within, count, before) == self.twin.latest_matches(
            wanted, within, count, before
        )

        assert self.index.earliest_matches(
            wanted, within, count, before
        ) == self.twin.earliest_matches(wanted, within, count, before), "M34"

    @invariant()
    def both_hold_the_same(self) -> None:
        if hasattr(self, "index"):
            assert len(self.index) == len(self.twin)
            assert list(self.index) == list(self.twin)

    def add(self, metadata: Metadata) -> None:
        assert self.index.add(metadata) == self.twin.add(metadata)
        assert self.index.get(metadata.key) == self.twin.get(metadata.key)
        assert metadata.key in self.index


class CommonTags(HistoryAndTwin):
    """The same with postings that become bitmaps from the second object on."""

    @initialize(chunk_size=st.sampled_from([4, 8, 40]))
    def start(self, chunk_size: int) -> None:
        self.index = HistoryIndex(chunk_size)
        self.chars_max = postings._TEXT_CHARS_MAX
        postings._TEXT_CHARS_MAX = 4

    def teardown(self) -> None:
        if hasattr(self, "chars_max"):
            postings._TEXT_CHARS_MAX = self.chars_max


TestHistoryIsItsTwin = HistoryAndTwin.TestCase
TestHistoryIsItsTwin.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
TestHistoryIsItsTwinWithCommonTags = CommonTags.TestCase
TestHistoryIsItsTwinWithCommonTags.settings = TestHistoryIsItsTwin.settings
