"""P1, C21: the synthetic match has the shape of a match, and the size of the documents' trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import mean
from typing import NamedTuple

import pytest

from thyme.model.errors import InputError
from thyme.model.tags import as_tags
from thyme.model.time_frames import SECOND_US
from thyme.traces.posts import Post, tag_popularity, top_users
from thyme.traces.posts_to_trace import trace_from_posts
from thyme.traces.synthetic.football_match import (
    FITTED_MATCHES,
    TEXT_CHARS_MAX,
    FootballMatch,
    FootballMatchConfig,
    Plateau,
    TagLists,
    draw_tag_lists,
    tag_vocabulary,
)
from thyme.traces.synthetic.match_course import MatchCourse, post_rates
from thyme.traces.timetable import FINAL_2016

SEEDS = range(1, 6)
FLAT = Plateau(half=1.0, exponent=1.0)
SMALL = FootballMatchConfig(posts=3_000, users=1_000, tags=200)


@pytest.fixture(scope="module")
def posts() -> list[Post]:
    return list(FootballMatch(1))


def test_a_post_is_a_function_of_seed_and_number() -> None:
    match = FootballMatch(5, SMALL)
    backwards = [match.post(number) for number in reversed(range(50))]
    again = FootballMatch(5, SMALL)
    assert backwards[::-1] == [again.post(number) for number in range(50)]
    assert FootballMatch(5, SMALL).post(7) != FootballMatch(6, SMALL).post(7)


def test_the_posts_of_a_seed_are_the_same_in_every_version() -> None:
    """Whoever changes this changes every trace that was ever made from a seed."""
    assert FootballMatch(1).post(0) == Post(
        "0",
        "fan2890",
        1_468_185_450_438_283,
        "feel goal take family bar #por #redcard #topic340 #volley",
        as_tags(["por", "redcard", "topic340", "volley"]),
    )


def test_posts_are_sound(posts: list[Post]) -> None:
    assert len({post.post_id for post in posts}) == len(posts) == FootballMatchConfig().posts
    for post in posts:
        assert as_tags(post.tags) == post.tags
        assert FINAL_2016.contains(post.at_us)
        assert len(post.text) <= TEXT_CHARS_MAX
        assert all(f"#{tag}" in post.text for tag in post.tags)


def test_activity_has_a_heavy_tail(posts: list[Post]) -> None:
    active = sorted(Counter(post.user for post in posts).values(), reverse=True)
    assert active[0] > 5 * active[99] > 50
    assert active[len(active) // 2] <= 3
    # The first hundredth of the users writes an eighth of the posts or more.
    assert sum(active[: FootballMatchConfig().users // 100]) > len(posts) / 8


def test_tags_follow_zipf(posts: list[Post]) -> None:
    popularity = tag_popularity(posts).most_common()
    assert popularity[0][0] == tag_vocabulary(1)[0]
    first = popularity[0][1]
    # A post in which a tag is drawn twice has it once, which costs the first more than the tenth.
    assert popularity[9][1] * 10 == pytest.approx(first, rel=0.2)
    assert popularity[99][1] * 100 == pytest.approx(first, rel=0.4)


def test_posts_follow_the_intensity(posts: list[Post]) -> None:
    rates = post_rates(1, FINAL_2016, MatchCourse())
    minutes = Counter((post.at_us - FINAL_2016.starts_us) // (60 * SECOND_US) for post in posts)
    for minute in range(180):
        due = sum(rates[60 * minute : 60 * minute + 60]) / sum(rates) * len(posts)
        assert abs(minutes[minute] - due) <= 5 * due**0.5


def test_c21_the_trace_of_100_users_is_as_large_as_the_documents_one() -> None:
    """W Fig 3: 4545 inserts, 526 subscribes, 29 deletes, 15 unsubscribes. Means of five seeds."""
    counts = [trace_from_posts(seed, FootballMatch(seed), 100).counts() for seed in range(1, 6)]
    means = {kind: mean(each[kind] for each in counts) for kind in counts[0]}

    assert means["insert"] == pytest.approx(4545, rel=0.02)
    assert means["subscribe"] == pytest.approx(526, rel=0.05)
    # 45 minutes at 0.5 and 0.2 per hour are 37.5 and 15; one trace scatters by 6 and 4.
    assert means["delete"] == pytest.approx(37.5, abs=3 * 6.1 / 5**0.5)
    assert means["unsubscribe"] == pytest.approx(15, abs=3 * 3.9 / 5**0.5)
    assert any(abs(each["delete"] - 29) <= 1.5 * 6.1 for each in counts)


FITTED = sorted(set(FITTED_MATCHES) - {"final-2016"})


@pytest.mark.parametrize("name", FITTED)
def test_c21_a_fitted_match_has_the_counts_of_the_documents_one(name: str) -> None:
    config = FITTED_MATCHES[name]
    counts = [trace_from_posts(seed, FootballMatch(seed, config), 100).counts() for seed in SEEDS]

    assert mean(each["insert"] for each in counts) == pytest.approx(4545, rel=0.03)
    assert mean(each["subscribe"] for each in counts) == pytest.approx(526, rel=0.05)


@pytest.mark.parametrize(
    ("name", "tags_each", "distinct", "shares"),
    [
        ("chelsea-arsenal", 6.3, 135, {1: 0.71, 2: 0.70, 5: 0.40, 10: 0.09}),
        ("swansea-everton", 3.7, 79, {1: 0.67, 2: 0.47, 5: 0.27, 10: 0.17}),
    ],
)
def test_d28_tags_of_a_fitted_match_are_those_of_the_real_one(
    name: str, tags_each: float, distinct: int, shares: dict[int, float]
) -> None:
    """The 100 most active users, means of five seeds; docs/traces.md has the numbers."""
    found = [tag_shape(FootballMatch(seed, FITTED_MATCHES[name])) for seed in SEEDS]

    assert mean(each.tags_each for each in found) == pytest.approx(tags_each, rel=0.15)
    assert mean(each.distinct for each in found) == pytest.approx(distinct, rel=0.3)
    for rank, share in shares.items():
        assert mean(each.shares[rank - 1] for each in found) == pytest.approx(share, abs=0.1)


class TagShape(NamedTuple):
    """Tags of the 100 most active users."""

    tags_each: float
    distinct: int
    shares: list[float]
    """Share of posts with the most frequent tag, the second, and so on."""


def tag_shape(match: FootballMatch) -> TagShape:
    posts = list(match)
    active = dict(Counter(post.user for post in posts).most_common(100))
    chosen = [post for post in posts if post.user in active]
    uses = Counter(tag for post in chosen for tag in post.tags)
    shares = [count / len(chosen) for _, count in uses.most_common()]
    return TagShape(sum(uses.values()) / len(chosen), len(uses), shares)


def test_d28_a_user_with_a_habit_mostly_repeats_its_own_list() -> None:
    match = FootballMatch(1, FITTED_MATCHES["swansea-everton"])
    posts = list(match)
    [(user, count)] = Counter(post.user for post in posts).most_common(1)
    own = match.tag_lists[match.list_of_user[int(user.removeprefix("fan")) - 1]]

    assert [post.tags for post in posts if post.user == user].count(own) > 0.5 * count


@pytest.mark.parametrize(
    "make",
    [
        lambda: Plateau(half=0.0, exponent=1.0),
        lambda: Plateau(half=1.0, exponent=0.0),
        lambda: Plateau(half=1.0, exponent=1.0, floor=-0.1),
        lambda: TagLists(lists=0, lengths=(1.0,), use=FLAT, tags=FLAT),
        lambda: TagLists(lists=1, lengths=(), use=FLAT, tags=FLAT),
        lambda: TagLists(lists=1, lengths=(1.0,), use=FLAT, tags=FLAT, habit=1.1),
        lambda: draw_tag_lists(1, TagLists(lists=1, lengths=(1.0,) * 3, use=FLAT, tags=FLAT), 2),
    ],
)
def test_shapes_that_make_no_match_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize(
    "bad",
    [
        {"posts": 0},
        {"users": 0},
        {"tags": 0},
        {"tag_counts": ()},
        {"tag_counts": (1.0,) * 5},
    ],
)
def test_settings_that_make_no_match_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InputError):
        FootballMatchConfig(**bad)  # type: ignore[arg-type]


def test_there_is_no_post_beyond_the_last() -> None:
    with pytest.raises(InputError, match="numbered 0 to 2999"):
        FootballMatch(1, SMALL).post(3_000)


def test_the_most_active_come_first_and_equals_by_name() -> None:
    assert top_users({"c": 2, "a": 2, "b": 5, "d": 1}, 3) == ["b", "a", "c"]
    with pytest.raises(InputError, match="posts of 1 users only, not of 2"):
        top_users({"a": 1}, 2)
