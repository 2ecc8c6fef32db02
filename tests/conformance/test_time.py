"""Time: frames in the past, the present and the future, exact at their ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.conformance.environment import Environment, Person
from tests.conformance.environments import DcsEnvironment, EsEnvironment, LsEnvironment
from thyme.model.errors import FrameError, InstantError, RejectedError

Skewed = type[EsEnvironment] | type[LsEnvironment] | type[DcsEnvironment]


def publish_one_each(env: Environment, person: Person, names: list[str]) -> None:
    for name in names:
        person.insert("goal", oid=name)
        env.elapse(5)


def test_m10_a_search_of_the_past_hears_nothing_of_what_follows(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    publish_one_each(env, alice, ["before"])
    news = bob.subscribe("goal", None, bob.now_us())
    env.elapse(1)
    publish_one_each(env, alice, ["after"])
    env.hears(news, ["before"])
    env.elapse(env.skew)
    assert news.over is not None


def test_m10_from_now_on_hears_nothing_of_what_was(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    publish_one_each(env, alice, ["before"])
    news = bob.subscribe("goal", timedelta(0), None)
    publish_one_each(env, alice, ["after"])
    assert news.total == 0
    env.hears(news, ["after"])


def test_m10_an_open_frame_hears_everything(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    publish_one_each(env, alice, ["before"])
    news = bob.subscribe("goal")
    publish_one_each(env, alice, ["after"])
    env.hears(news, ["before", "after"])
    assert news.over is None


def test_m10_a_frame_that_lies_wholly_in_the_future_opens_and_closes(
    env: Environment,
) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    now_us = bob.now_us()
    news = bob.subscribe("goal", now_us + env.us(8), now_us + env.us(18))
    publish_one_each(env, alice, ["too-early"])
    env.elapse(5)
    publish_one_each(env, alice, ["inside"])
    env.elapse(5)
    publish_one_each(env, alice, ["too-late"])
    env.hears(news, ["inside"])
    env.elapse(env.skew)
    assert news.over == "its frame is over"


def test_m10_a_frame_may_start_in_the_past_and_end_in_the_future(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    publish_one_each(env, alice, ["long-ago"])
    env.elapse(20)
    publish_one_each(env, alice, ["lately"])
    now_us = bob.now_us()
    news = bob.subscribe("goal", now_us - env.us(15), now_us + env.us(15))
    publish_one_each(env, alice, ["soon"])
    env.elapse(20)
    publish_one_each(env, alice, ["too-late"])
    assert news.total == 1
    env.hears(news, ["lately", "soon"])
    assert news.over == "its frame is over"


def test_m11_both_ends_belong_to_the_frame(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    alice.insert("goal", oid="photo")
    at_us = bob.search("goal").notifications[0].metadata.published_us
    for start_us, end_us, inside in [
        (at_us, at_us, True),
        (at_us - 1, at_us, True),
        (at_us, at_us + 1, True),
        (at_us + 1, None, False),
        (None, at_us - 1, False),
        (None, at_us, True),
        (at_us, None, True),
    ]:
        assert bob.subscribe("goal", start_us, end_us).total == int(inside), (start_us, end_us)


def test_m11_a_frame_that_starts_after_it_ends_is_an_error(env: Environment) -> None:
    bob = env.person("bob")
    with pytest.raises(FrameError, match="after it ends"):
        bob.follow("goal", 20, 10)
    assert bob.subscriptions() == ()


@pytest.mark.parametrize(
    "value",
    [datetime(2024, 7, 10, 21, 0), float("nan"), 1_700_000_000.5, "yesterday", True, 2**70],
    ids=["naive datetime", "NaN", "float", "text", "truth", "out of range"],
)
def test_m10_what_names_no_instant_is_refused(env: Environment, value: object) -> None:
    bob = env.person("bob")
    with pytest.raises(InstantError):
        bob.follow("goal", value, None)  # type: ignore[arg-type]
    with pytest.raises(InstantError):
        bob.follow("goal", datetime.now(UTC), value)  # type: ignore[arg-type]


@pytest.mark.parametrize("skewed", [EsEnvironment, LsEnvironment, DcsEnvironment])
def test_m12_within_the_skew_the_publisher_s_stamp_decides(skewed: Skewed) -> None:
    env = skewed(skews_us={"alice": 1_500_000, "bob": -1_500_000})
    alice, bob = env.person("alice"), env.person("bob")
    news = bob.subscribe("goal", timedelta(0), timedelta(seconds=10))
    env.elapse(1)
    alice.insert("goal", oid="ahead")
    env.elapse(8)
    # By alice's clock the frame ended half a second ago; by bob's it has four more.
    alice.insert("goal", oid="stamped-outside")
    env.elapse(10)
    assert news.heard == ["ahead"]
    assert news.over == "its frame is over"


@pytest.mark.parametrize("skewed", [EsEnvironment, LsEnvironment, DcsEnvironment])
def test_m12_a_straggler_within_the_skew_still_counts(skewed: Skewed) -> None:
    env = skewed(skews_us={"alice": -1_500_000})
    alice, bob = env.person("alice"), env.person("bob")
    news = bob.follow("goal", timedelta(0), timedelta(seconds=10))
    env.elapse(11)
    alice.insert("goal", oid="stamped-inside")
    env.elapse(5)
    assert news.heard == ["stamped-inside"]


def test_m12_a_stamp_beyond_the_skew_is_refused() -> None:
    env = EsEnvironment(skews_us={"alice": 5_000_000})
    alice, bob = env.person("alice"), env.person("bob")
    news = bob.subscribe("goal")
    with pytest.raises(RejectedError, match="ahead of this clock"):
        alice.insert("goal")
    assert news.heard == []
