"""Retries: each wait is longer than the one before, and the tries are counted."""

from __future__ import annotations

from thyme.protocol.retry import RetryPolicy, RetryState


def test_e4_each_wait_is_longer_than_the_one_before() -> None:
    state = RetryState(tries_max=3, wait_us=100, backoff=1.5)
    assert [state.count_try(at_us) for at_us in (0, 1_000, 2_000)] == [100, 1_150, 2_225]


def test_e4_tries_are_exhausted_after_the_last_one() -> None:
    state = RetryState(tries_max=2, wait_us=100, backoff=2.0)
    exhausted = []
    for _ in range(2):
        exhausted.append(state.is_exhausted)
        state.count_try(0)
    assert exhausted == [False, False]
    assert state.is_exhausted


def test_the_first_wait_grows_with_the_object() -> None:
    policy = RetryPolicy(wait_us=100, wait_us_per_kib=10)
    assert [policy.first_wait_us(size) for size in (0, 1_023, 4_096)] == [100, 100, 140]
