"""Match posts: makes traces from the shapes of real posts, which have neither text nor names.

A file is a compressed CSV with one row per post: `t_ms` since the first post, `user_rank` (1 for
the most active user), `text_bytes`, and `tag_ranks`, the ranks of its tags by use with `|` between
them, possibly none. Entry point: `match_trace`.
Clauses: P3, S10.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from thyme.model.errors import InputError
from thyme.model.rng import derive_rng
from thyme.model.tags import Tag
from thyme.model.time_frames import SECOND_US
from thyme.traces.posts import Post
from thyme.traces.posts_to_trace import TraceRules, trace_from_posts
from thyme.traces.timetable import TimetableChoice, complete_timetable
from thyme.traces.trace import Trace

SUFFIX = ".csv.gz"
COLUMNS = ["t_ms", "user_rank", "text_bytes", "tag_ranks"]


class _WholeMatch:
    """The activity of a match all of whose posts are observed."""

    def busiest_start_us(self, length_s: int) -> int:
        return 0

    def last_post_us(self, start_us: int, end_us: int) -> int | None:
        return None


class MatchShare(NamedTuple):
    """A match, or a share of its posts with a share of their tags: a smaller crowd with the same
    bursts and the same distributions."""

    match: str
    posts: float = 1.0
    tags: float = 1.0

    @classmethod
    def parse(cls, name: str) -> MatchShare:
        """Reads `match`, `match:share of posts` or `match:share of posts:share of tags`."""
        match, *shares = name.split(":")
        try:
            found = cls(match, *map(float, shares))
        except (TypeError, ValueError) as error:
            raise InputError(f"a match is NAME, or NAME:POSTS:TAGS with shares: {name}") from error
        if not (0.0 < found.posts <= 1.0 and 0.0 < found.tags <= 1.0):
            raise InputError(f"a share is above 0 and at most 1: {name}")
        return found

    def choose(self, posts: list[Post]) -> list[Post]:
        """Chooses posts and tags, the same ones in every topology."""
        chosen = []
        for post in posts:
            rng = derive_rng(0, "share of a match", post.post_id)
            if rng.random() < self.posts:
                tags = tuple(tag for tag in post.tags if rng.random() < self.tags)
                chosen.append(replace(post, tags=tags))
        return chosen


def match_trace(folder: Path, share: MatchShare, users: int, seed: int, lasts_us: int) -> Trace:
    """The trace of the most active users of a match, compressed to a duration."""
    posts = share.choose(read_posts(folder / (share.match + SUFFIX)))
    length_s = max(post.at_us for post in posts) // SECOND_US + 1
    choice = TimetableChoice(start_us=0, end_us=length_s * SECOND_US)
    rules = TraceRules(timetable=complete_timetable(choice, _WholeMatch()), lasts_us=lasts_us)
    return trace_from_posts(seed, posts, users, rules)


def read_posts(path: Path) -> list[Post]:
    """Reads the posts of a file; names of users and tags are made from their ranks."""
    try:
        with gzip.open(path, "rt", newline="") as file:
            rows = csv.reader(file)
            if next(rows, None) != COLUMNS:
                raise InputError(f"{path}: the columns must be {','.join(COLUMNS)}")
            return [_read_post(path, number, row) for number, row in enumerate(rows, 2)]
    except OSError as error:
        raise InputError(f"{path}: {error}") from error


def _read_post(path: Path, line: int, row: list[str]) -> Post:
    try:
        at_ms, user, size, ranks = row
        # As long as a usual hashtag, so that messages have a realistic size.
        tags = tuple(sorted({Tag(f"tag{int(rank):05d}") for rank in ranks.split("|") if rank}))
        return Post(f"p{line}", f"user{int(user):06d}", int(at_ms) * 1_000, "x" * int(size), tags)
    except ValueError as error:
        raise InputError(f"{path}, line {line}: {error}") from error
