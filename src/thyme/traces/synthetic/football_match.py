"""The synthetic football match: generates posts like those of a final, from a seed.

Entry point: `FootballMatch.post`. The activity of users has a heavy tail, tags follow Zipf's law,
and the post rate follows the game (`match_course`). Every field of a post is a function of the seed
and the post's number (`counter_rng`), so posts can be generated in any order, singly or in columns.
The defaults are calibrated to the trace of Thyme (journal article), `FITTED_MATCHES` to real
matches, in which most posts repeat one of some hundred lists of tags; docs/traces.md has the
measurements.
Clauses: P1, C21, D28.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from thyme.model.errors import InputError
from thyme.model.rng import derive_rng
from thyme.model.tags import Tag, as_tag
from thyme.model.time_frames import SECOND_US
from thyme.traces.posts import Post
from thyme.traces.synthetic.counter_rng import WeightedChoice, draw, origin_from_seed, scale_below
from thyme.traces.synthetic.match_course import Burst, MatchCourse, post_rates
from thyme.traces.synthetic.vocabulary import TAG_WORDS, TEXT_WORDS
from thyme.traces.timetable import FINAL_2016, Timetable

TEXT_CHARS_MAX = 140
TAGS_MAX = 4
_USER, _SECOND, _WITHIN, _TAGS, _WORDS, _HABIT, _TAG_FIRST = 0, 1, 2, 3, 4, 5, 8
_WORD_FIRST = _TAG_FIRST + TAGS_MAX
_WORDS_MIN, _WORDS_MAX = 3, 16
_HABIT_STEPS = 10_000
"""Precision of the share of posts for which a user takes its own list."""


class Plateau(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of ranks: about equal up to `half`, then falling with a power, but not below
    `floor`."""

    half: float
    """The rank whose weight is half of the highest."""
    exponent: float
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not (self.half > 0 and self.exponent > 0 and self.floor >= 0):
            raise InputError("a plateau needs half and exponent above 0, and a floor of 0 or more")

    def weights(self, count: int) -> list[float]:
        """The weights of the ranks 1 to `count`."""
        return [
            1.0 / (1.0 + (rank / self.half) ** self.exponent) + self.floor
            for rank in range(1, count + 1)
        ]


class TagLists(msgspec.Struct, frozen=True, kw_only=True):
    """A catalogue of tag lists, from which posts choose."""

    lists: int
    lengths: tuple[float, ...]
    """Shares of lists with one tag, two tags, and so on."""
    use: Plateau
    """How often the n-th list is used."""
    tags: Plateau
    """How often the n-th tag is part of a list."""
    habit: float = 0.0
    """Share of posts for which a user takes its own list, which does not change."""

    def __post_init__(self) -> None:
        if self.lists < 1 or not self.lengths:
            raise InputError("a catalogue needs at least one list with at least one tag")
        if not 0.0 <= self.habit <= 1.0:
            raise InputError(f"a habit is a share from 0 to 1, not {self.habit}")


def draw_tag_lists(seed: int, shape: TagLists, tags: int) -> list[tuple[int, ...]]:
    """The catalogue: lists of tag ranks from 0, without duplicates."""
    if len(shape.lengths) > tags:
        raise InputError(f"lists of {len(shape.lengths)} tags need as many tags, not {tags}")
    rng = derive_rng(seed, "match", "lists")
    ranks, weights = range(tags), shape.tags.weights(tags)
    lengths = range(1, len(shape.lengths) + 1)
    catalogue = []
    for _ in range(shape.lists):
        [length] = rng.choices(lengths, shape.lengths)
        chosen: set[int] = set()
        while len(chosen) < length:
            chosen.update(rng.choices(ranks, weights))
        catalogue.append(tuple(sorted(chosen)))
    return catalogue


class FootballMatchConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Size and distributions of a synthetic match."""

    posts: int = 20_600
    users: int = 8_000
    user_exponent: float = 0.8
    user_shift: float = 10.0
    """The n-th user posts in proportion to (n + shift) to the power of −exponent."""
    user_plateau: Plateau | None = None
    """How much the n-th user posts; None for the power law above."""
    tags: int = 800
    tag_exponent: float = 1.0
    tag_counts: tuple[float, ...] = (0.5, 0.3, 0.15, 0.05)
    """Shares of posts that draw one tag, two tags, and so on."""
    tag_lists: TagLists | None = None
    """The lists of tags that posts use; None if each post draws its own tags by Zipf's law."""
    course: MatchCourse = MatchCourse()
    timetable: Timetable = FINAL_2016

    def __post_init__(self) -> None:
        for what in ("posts", "users", "tags"):
            if getattr(self, what) < 1:
                raise InputError(f"a match has at least one of {what}, not {getattr(self, what)}")
        if not 1 <= len(self.tag_counts) <= TAGS_MAX:
            raise InputError(f"a post draws 1 to {TAGS_MAX} tags, not {len(self.tag_counts)}")


class FootballMatch:
    """One match; `post(n)` is its post number n, from 0 to `len(match)` − 1."""

    def __init__(self, seed: int, config: FootballMatchConfig | None = None) -> None:
        self.origin = origin_from_seed(seed)
        self.config = config = config or FootballMatchConfig()
        shift, exponent = config.user_shift, -config.user_exponent
        weights = [(rank + shift) ** exponent for rank in range(1, config.users + 1)]
        if config.user_plateau is not None:
            weights = config.user_plateau.weights(config.users)
        self.user_choice = WeightedChoice(weights)
        self.tag_choice = WeightedChoice(
            [rank**-config.tag_exponent for rank in range(1, config.tags + 1)]
        )
        self.tag_count_choice = WeightedChoice(config.tag_counts)
        self.second_choice = WeightedChoice(post_rates(seed, config.timetable, config.course))
        self.tag_names = tag_vocabulary(config.tags)
        self.tag_lists: list[tuple[Tag, ...]] = []
        self.list_of_user: list[int] = []
        if config.tag_lists is not None:
            self._make_tag_lists(seed, config.tag_lists)

    def _make_tag_lists(self, seed: int, shape: TagLists) -> None:
        """Draws the catalogue, and the list of each user."""
        self.tag_lists = [
            tuple(sorted(self.tag_names[rank] for rank in ranks))
            for ranks in draw_tag_lists(seed, shape, self.config.tags)
        ]
        self.list_choice = WeightedChoice(shape.use.weights(shape.lists))
        self.habit_steps = round(shape.habit * _HABIT_STEPS)
        rng = derive_rng(seed, "match", "habits")
        self.list_of_user = rng.choices(
            range(shape.lists), shape.use.weights(shape.lists), k=self.config.users
        )

    def __len__(self) -> int:
        return self.config.posts

    def __iter__(self) -> Iterator[Post]:
        return map(self.post, range(len(self)))

    def post(self, number: int) -> Post:
        """The post with this number; posts are not numbered by time."""
        if not 0 <= number < len(self):
            raise InputError(f"posts are numbered 0 to {len(self) - 1}, not {number}")
        origin = self.origin
        second = self.second_choice.choose(draw(origin, number, _SECOND))
        within_us = scale_below(SECOND_US, draw(origin, number, _WITHIN))
        user = self.user_choice.choose(draw(origin, number, _USER))
        tags = self._choose_tags(number, user)
        return Post(
            str(number),
            f"fan{user + 1}",
            self.config.timetable.starts_us + second * SECOND_US + within_us,
            self._draw_text(number, tags),
            tags,
        )

    def _choose_tags(self, number: int, user: int) -> tuple[Tag, ...]:
        """The tags of a post: the user's own list, a list of the catalogue, or drawn tags."""
        if not self.tag_lists:
            return self._draw_tags(number)
        if scale_below(_HABIT_STEPS, draw(self.origin, number, _HABIT)) < self.habit_steps:
            return self.tag_lists[self.list_of_user[user]]
        return self.tag_lists[self.list_choice.choose(draw(self.origin, number, _TAGS))]

    def _draw_tags(self, number: int) -> tuple[Tag, ...]:
        """The tags of a post, without duplicates."""
        count = self.tag_count_choice.choose(draw(self.origin, number, _TAGS)) + 1
        lanes = range(_TAG_FIRST, _TAG_FIRST + count)
        ranks = (self.tag_choice.choose(draw(self.origin, number, lane)) for lane in lanes)
        return tuple(sorted({self.tag_names[rank] for rank in ranks}))

    def _draw_text(self, number: int, tags: tuple[Tag, ...]) -> str:
        """A few words and the hashtags, at most as long as a tweet."""
        span = _WORDS_MAX - _WORDS_MIN + 1
        count = _WORDS_MIN + scale_below(span, draw(self.origin, number, _WORDS))
        lanes = range(_WORD_FIRST, _WORD_FIRST + _WORDS_MAX // 8)
        drawn = b"".join(draw(self.origin, number, lane).to_bytes(8, "big") for lane in lanes)
        words = [TEXT_WORDS[byte * len(TEXT_WORDS) >> 8] for byte in drawn[:count]]
        hashtags = " ".join(f"#{tag}" for tag in tags)
        length = max(0, TEXT_CHARS_MAX - len(hashtags) - 1)
        return f"{' '.join(words)[:length].rstrip()} {hashtags}"


DEFAULT_MATCH = "final-2016"
FITTED_MATCHES: Mapping[str, FootballMatchConfig] = {
    DEFAULT_MATCH: FootballMatchConfig(),
    "chelsea-arsenal": FootballMatchConfig(
        users=4_300,
        user_plateau=Plateau(half=18.0, exponent=3.0, floor=0.02),
        tags=180,
        tag_lists=TagLists(
            lists=320,
            lengths=(0.10, 0.04, 0.04, 0.04, 0.13, 0.13, 0.10, 0.23, 0.13, 0.06),
            use=Plateau(half=30.0, exponent=4.0, floor=0.001),
            tags=Plateau(half=4.0, exponent=2.5, floor=0.004),
        ),
        course=MatchCourse(
            goal=Burst(0.9, 340.0),
            kick_off=Burst(0.65, 185.0),
            half_time=Burst(0.3, 100.0),
            second_half=Burst(0.25, 185.0),
            end=Burst(2.65, 17.0),
            before=(0.75, 0.75),
            after=0.3,
            silences=0,
        ),
    ),
    "swansea-everton": FootballMatchConfig(
        users=3_950,
        user_plateau=Plateau(half=13.0, exponent=1.6, floor=0.02),
        tags=200,
        tag_lists=TagLists(
            lists=200,
            lengths=(0.33, 0.16, 0.09, 0.02, 0.05, 0.01, 0.34),
            use=Plateau(half=4.0, exponent=1.7, floor=0.0008),
            tags=Plateau(half=1.5, exponent=1.6),
            habit=0.6,
        ),
        course=MatchCourse(
            goal=Burst(6.0, 49.0),
            kick_off=Burst(1.2, 535.0),
            half_time=Burst(0.8, 185.0),
            second_half=Burst(1.4, 535.0),
            end=Burst(2.0, 175.0),
            before=(0.5, 0.5),
            after=0.9,
            silences=0,
        ),
    ),
}
"""Synthetic matches by name: that of the journal article, and two whose users, tags and bursts are
fitted to real matches of 2015. All have the posts, and about the counts, of the first (C21)."""


def tag_vocabulary(count: int) -> list[Tag]:
    """The tags of a match, most popular first: words of the game, then numbered topics."""
    words = [*TAG_WORDS, *(f"topic{number}" for number in range(len(TAG_WORDS) + 1, count + 1))]
    return [as_tag(word) for word in words[:count]]
