"""Posts: the common form of posts from every source, and statistics of their users and tags.

Clauses: P1, P3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil

import msgspec

from thyme.model.errors import InputError
from thyme.model.tags import Tag

CANDIDATE_SHARE = 0.6


class Post(msgspec.Struct, frozen=True):
    """One post; its tags are normalised, sorted and distinct, and may be empty."""

    post_id: str
    user: str
    at_us: int
    """Microseconds since 1970 (UTC)."""
    text: str
    tags: tuple[Tag, ...]


def top_users(posts: Mapping[str, int], count: int) -> list[str]:
    """The users with the most posts, most active first, ties by name."""
    if count < 1:
        raise InputError(f"a trace has at least one user, not {count}")
    ranked = sorted(posts, key=lambda user: (-posts[user], user))
    if len(ranked) < count:
        raise InputError(f"there are posts of {len(ranked)} users only, not of {count}")
    return ranked[:count]


def tag_popularity(posts: Iterable[Post]) -> Counter[Tag]:
    """Number of posts with each tag."""
    return Counter(tag for post in posts for tag in post.tags)


def share_of(count: int, share: float) -> int:
    """A share of a number of tags or of their uses, rounded up."""
    if not 0.0 < share <= 1.0:
        raise InputError(f"the share of candidate tags must be above 0 and at most 1, not {share}")
    # Rounded first, because 0.6 · 5 in floats may exceed 3.
    return ceil(round(share * count, 9))
