"""Time: frames in the past, the present and the future, exact at their ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.conformance.stage import Person, Stage
from tests.conformance.stages import DcsStage, EsStage, LsStage
from thyme.model.errors import FrameError, InstantError, RejectedError

Skewed = type[EsStage] | type[LsStage] | type[DcsStage]


def publish_one_each(stage: Stage, person: Person, names: list[str]) -> None:
    for name in names:
        person.insert("goal", oid=name)
        stage.elapse(5)


def test_m10_a_search_of_the_past_hears_nothing_of_what_follows(stage: Stage) -> None:
    alice, bob = stage.person("alice"), stage.person("bob")
    publish_one_each(stage, alice, ["before"])
    news = bob.subscribe("goal", None, bob.now_us())
    stage.elapse(1)
    publish_one_each(stage, alice, ["after"])
    stage.hears(news, ["before"])
    stage.elapse(stage.skew)
    assert news.over is not None


def test_m10_from_now_on_hears_nothing_of_what_was(stage: Stage) -> None:
    alice, bob = stage.person("alice"), stage.person("bob")
    publish_one_each(stage, alice, ["before"])
    news = bob.subscribe("goal", timedelta(0), None)
    publish_one_each(stage, alice, ["after"])
    assert news.total == 0
    stage.hears(news, ["after"])


def test_m10_an_open_frame_hears_everything(stage: Stage) -> None:
    alice, bob = stage.person("alice"), stage.person("bob")
    publish_one_each(stage, alice, ["before"])
    news = bob.subscribe("goal")
    publish_one_each(stage, alice, ["after"])
    stage.hears(news, ["before", "after"])
    assert news.over is None


def test_m10_a_frame_that_lies_wholly_in_the_future_opens_and_closes(stage: Stage) -> None:
    alice, bob = stage.person("alice"), stage.person("bob")
    now_us = bob.now_us()
    news = bob.subscribe("goal", now_us + stage.us(8), now_us + stage.us(18))
    publish_one_each(stage, alice, ["too-early"])
    stage.elapse(5)
    publish_one_each(stage, alice, ["inside"])
    stage.elapse(5)
    publish_one_each(stage, alice, ["too-late"])
    stage.hears(news, ["inside"])
    stage.elapse(stage.skew)
    assert news.over == "its frame is over"


def test_m10_a_frame_may_start_in_the_past_and_end_in_the_future(stage: Stage) -> None:
    alice, bob = stage.person("alice"), stage.person("bob")
    publish_one_each(stage, alice, ["long-ago"])
    stage.elapse(20)
    publish_one_each(stage, alice, ["lately"])
    now_us = bob.now_us()
    news = bob.subscribe("goal", now_us - stage.us(15), now_us + stage.us(15))
    publish_one_each(stage, alice, ["soon"])
    stage.elapse(20)
    publish_one_each(stage, alice, ["too-late"])
    assert news.total == 1
    stage.hears(news, ["lately", "soon"])
    assert news.over == "its frame is over"


def test_m11_both_ends_belong_to_the_frame(stage: Stage) -> None:
    alice, bob = stage.person("alice"), stage.person("bob")
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


def test_m11_a_frame_that_starts_after_it_ends_is_an_error(stage: Stage) -> None:
    bob = stage.person("bob")
    with pytest.raises(FrameError, match="after it ends"):
        bob.follow("goal", 20, 10)
    assert bob.subscriptions() == ()


@pytest.mark.parametrize(
    "value",
    [datetime(2024, 7, 10, 21, 0), float("nan"), 1_700_000_000.5, "yesterday", True, 2**70],
    ids=["naive datetime", "NaN", "float", "text", "truth", "out of range"],
)
def test_m10_what_names_no_instant_is_refused(stage: Stage, value: object) -> None:
    bob = stage.person("bob")
    with pytest.raises(InstantError):
        bob.follow("goal", value, None)  # type: ignore[arg-type]
    with pytest.raises(InstantError):
        bob.follow("goal", datetime.now(UTC), value)  # type: ignore[arg-type]


@pytest.mark.parametrize("skewed", [EsStage, LsStage, DcsStage])
def test_m12_within_the_skew_the_publisher_s_stamp_decides(skewed: Skewed) -> None:
    stage = skewed(skews_us={"alice": 1_500_000, "bob": -1_500_000})
    alice, bob = stage.person("alice"), stage.person("bob")
    news = bob.subscribe("goal", timedelta(0), timedelta(seconds=10))
    stage.elapse(1)
    alice.insert("goal", oid="ahead")
    stage.elapse(8)
    # By alice's clock the frame ended half a second ago; by bob's it has four more.
    alice.insert("goal", oid="stamped-outside")
    stage.elapse(10)
    assert news.heard == ["ahead"]
    assert news.over == "its frame is over"


@pytest.mark.parametrize("skewed", [EsStage, LsStage, DcsStage])
def test_m12_a_straggler_within_the_skew_still_counts(skewed: Skewed) -> None:
    stage = skewed(skews_us={"alice": -1_500_000})
    alice, bob = stage.person("alice"), stage.person("bob")
    news = bob.follow("goal", timedelta(0), timedelta(seconds=10))
    stage.elapse(11)
    alice.insert("goal", oid="stamped-inside")
    stage.elapse(5)
    assert news.heard == ["stamped-inside"]


def test_m12_a_stamp_beyond_the_skew_is_refused() -> None:
    stage = EsStage(skews_us={"alice": 5_000_000})
    alice, bob = stage.person("alice"), stage.person("bob")
    news = bob.subscribe("goal")
    with pytest.raises(RejectedError, match="ahead of this clock"):
        alice.insert("goal")
    assert news.heard == []
