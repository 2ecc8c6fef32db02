"""U6: the three lists of MobUser, and U7: the single list of its rivals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import photo
from thyme.model.errors import OptionError
from thyme.model.tags import Tag, as_tag
from thyme.substrates.encounters.event_memory import Reception, SingleList, ThreeLists
from thyme.substrates.encounters.events import CarriedEvent
from thyme.substrates.encounters.memory_config import ListSizes, WhenFull

GOAL, RARE, NOISE = as_tag("goal"), as_tag("rare"), as_tag("noise")
USER = frozenset({GOAL})
GENERATED = frozenset({GOAL, RARE})


def event(number: int, topic: Tag = GOAL) -> CarriedEvent:
    return CarriedEvent(photo(number, tags=[topic], data=b"x"), b"x")


def numbers(events: list[CarriedEvent]) -> list[int]:
    return [int(one.key.oid.removeprefix("photo")) for one in events]


def receive(lists: ThreeLists, number: int, topic: Tag = GOAL) -> Reception:
    return lists.receive(event(number, topic), GENERATED, USER)


def test_u6_of_twenty_events_14_are_recent_4_popular_2_irrelevant() -> None:
    sizes = ListSizes()

    assert (sizes.recent, sizes.popular, sizes.irrelevant) == (14, 4, 2)


@given(st.integers(1, 500), st.floats(0, 0.9))
def test_u6_the_lists_fill_the_memory_exactly(memory: int, recent: float) -> None:
    sizes = ListSizes(memory_events=memory, recent_share=recent)

    assert sizes.recent + sizes.popular + sizes.irrelevant == memory
    assert min(sizes.recent, sizes.popular, sizes.irrelevant) >= 0


def test_u6_an_event_in_no_generated_topic_is_dropped() -> None:
    lists = ThreeLists(ListSizes())

    assert receive(lists, 1, NOISE) is Reception.DROPPED
    assert list(lists) == []


def test_u6_an_event_in_a_generated_but_no_user_topic_is_irrelevant() -> None:
    lists = ThreeLists(ListSizes())

    assert receive(lists, 1, RARE) is Reception.IRRELEVANT
    assert numbers(lists.irrelevant) == [1]


def test_u6_recent_events_are_newest_first_and_the_one_added_first_is_discarded() -> None:
    lists = ThreeLists(ListSizes())
    for number in range(1, 16):
        assert receive(lists, number) is Reception.NEW

    assert numbers(lists.recent) == list(range(15, 1, -1))


def test_u6_an_event_received_again_gains_reputation_and_becomes_popular() -> None:
    lists = ThreeLists(ListSizes())
    for number in (1, 2, 1, 2, 2):
        receive(lists, number)

    assert lists.recent == []
    assert numbers(lists.popular) == [2, 1]
    assert [one.reputation for one in lists.popular] == [2, 1]


def test_u6_a_full_popular_list_discards_by_age_and_not_by_reputation() -> None:
    lists = ThreeLists(ListSizes())
    for number in (1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5):
        receive(lists, number)

    assert numbers(lists.popular) == [2, 3, 4, 5]


def test_u6_irrelevant_events_are_least_disseminated_first() -> None:
    lists = ThreeLists(ListSizes())
    receive(lists, 1, RARE)
    receive(lists, 2, RARE)
    first, second = lists.irrelevant
    lists.on_sent([first])

    assert lists.irrelevant == [second, first]
    assert first.reputation == 1


def test_u6_a_recent_event_gains_no_reputation_when_it_is_sent() -> None:
    lists = ThreeLists(ListSizes())
    receive(lists, 1)
    lists.on_sent(lists.recent)

    assert lists.recent[0].reputation == 0


def test_u6_own_events_are_never_discarded() -> None:
    lists = ThreeLists(ListSizes())
    for number in range(100, 130):
        lists.add_own(event(number))
    for number in range(1, 60):
        receive(lists, number)

    assert set(numbers(list(lists.own.values()))) == set(range(100, 130))
    assert len(list(lists)) == 30 + 14


def test_an_irrelevant_event_becomes_recent_once_the_user_subscribes() -> None:
    lists = ThreeLists(ListSizes())
    receive(lists, 1, RARE)

    assert lists.receive(event(1, RARE), GENERATED, GENERATED) is Reception.NEW
    assert (lists.irrelevant, numbers(lists.recent)) == ([], [1])


@given(
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from([GOAL, RARE, NOISE])), max_size=200),
    st.integers(1, 30),
)
def test_u6_no_list_outgrows_its_share_and_no_event_is_in_two(
    received: list[tuple[int, Tag]], memory: int
) -> None:
    lists = ThreeLists(ListSizes(memory_events=memory))
    for number, topic in received:
        # One event has one set of topics for ever.
        topic = (GOAL, RARE, NOISE)[number % 3] if topic else topic
        receive(lists, number, topic)
        lists.check()

    held = numbers(list(lists))
    assert len(held) == len(set(held)) <= memory


@pytest.mark.parametrize("share", [-0.1, 1.2, float("nan")])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(OptionError, match="share"):
        ListSizes(recent_share=share)


def test_u7_a_rival_takes_no_events_once_its_memory_is_full() -> None:
    memory = SingleList(20, WhenFull.REFUSE)
    outcomes = [memory.receive(event(number)) for number in range(25)]

    assert outcomes == [Reception.NEW] * 20 + [Reception.DROPPED] * 5
    assert memory.receive(event(3)) is Reception.KNOWN


def test_u7_a_rival_may_replace_the_event_added_first_instead() -> None:
    memory = SingleList(20, WhenFull.REPLACE)
    for number in range(25):
        memory.receive(event(number))

    assert numbers(list(memory)) == list(range(24, 4, -1))


def test_expired_events_leave_every_memory() -> None:
    lists = ThreeLists(ListSizes())
    metadata = photo(1, data=b"x", expires_us=10)
    lists.receive(CarriedEvent(metadata, b"x"), GENERATED, USER)
    lists.drop_expired(10)

    assert list(lists) == []
