"""S9, S14: the radio's counters agree with counting by hand."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from thyme.sim.radio.counters import FRAMES_PER_BATCH, SETS_PER_BATCH, RadioCounters

NODES = 7
node_sets = st.sets(st.integers(0, NODES - 1))
durations = st.sampled_from([3, 50, 1_000])


def duration_us(size: int) -> int:
    return 20 + 8 * size


def as_bits(nodes: set[int]) -> int:
    return sum(1 << number for number in nodes)


@given(st.lists(st.tuples(node_sets, durations, st.integers(1, 2 * SETS_PER_BATCH)), max_size=12))
def test_every_node_has_listened_as_long_as_the_frames_it_heard(
    heard: list[tuple[set[int], int, int]],
) -> None:
    """Each frame is heard several times over, so that batches fill up."""
    tally = RadioCounters(NODES, duration_us)
    by_hand: Counter[int] = Counter()
    for nodes, length_us, times in heard:
        for _ in range(times):
            tally.count_received(as_bits(nodes), length_us)
        for number in nodes:
            by_hand[number] += times * length_us

    assert tally.receiving_us_by_node() == [by_hand[number] for number in range(NODES)]


@given(st.lists(node_sets, max_size=3 * SETS_PER_BATCH), st.integers(0, 3 * SETS_PER_BATCH))
def test_looking_in_between_changes_nothing(heard: list[set[int]], look_after: int) -> None:
    tally = RadioCounters(NODES, duration_us)
    for count, nodes in enumerate(heard):
        if count == look_after:
            tally.receiving_us_by_node()
        tally.count_received(as_bits(nodes), 1)

    assert tally.receiving_us_by_node() == [
        sum(number in nodes for nodes in heard) for number in range(NODES)
    ]


frames = st.tuples(st.integers(0, NODES - 1), st.sampled_from(["data", "ack"]), st.integers(1, 99))


@given(st.lists(frames, max_size=50))
def test_frames_bytes_and_sending_time_are_summed_by_node(sent: list[tuple[int, str, int]]) -> None:
    tally = RadioCounters(NODES, duration_us)
    for source, kind, size in sent:
        tally.count_sent(source, kind, size)

    for number in range(NODES):
        sizes = [size for source, _, size in sent if source == number]
        assert tally.frames_by_node()[number] == len(sizes)
        assert tally.bytes_by_node()[number] == sum(sizes)
        assert tally.sending_us_by_node()[number] == sum(map(duration_us, sizes))
    assert tally.frames_by_kind() == Counter(kind for _, kind, _ in sent)


def test_more_frames_than_wait_at_once_are_counted_too() -> None:
    tally = RadioCounters(NODES, duration_us)
    for number in range(FRAMES_PER_BATCH + 10):
        tally.count_sent(number % 3, "data", 100)

    assert tally.frames_by_kind() == {"data": FRAMES_PER_BATCH + 10}
    assert sum(tally.bytes_by_node()) == 100 * (FRAMES_PER_BATCH + 10)


def test_the_number_of_nodes_is_no_matter() -> None:
    tally = RadioCounters(501, duration_us)
    for _ in range(1_000):
        tally.count_received(1 << 500 | 1, 2)

    assert tally.receiving_us_by_node() == [2_000] + 499 * [0] + [2_000]
