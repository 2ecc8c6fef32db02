"""Popular tags: the feedback of the analytics to stations and to the splitting of hot tags.

The analytics replace the file `popular_tags.json` atomically; a station reads it to ask for objects
with these tags (I9, I17), a broker might choose the tags to split (B4). Entry point:
`read_popular_tags`.
Clauses: P9, I9, B4.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from thyme.model.errors import InputError

POPULAR_TAGS_VERSION = 1


class PopularTagsError(InputError):
    """The file is not one of popular tags of this version."""

    code = "bad_popular_tags"


class PopularTag(msgspec.Struct, frozen=True, kw_only=True):
    """A tag with its popularity, most recent use first: each use counts half after a half-life."""

    world: str
    tag: str
    score: float
    """Sum of the three others."""
    inserts: float
    """Use by publishers: work for the cell of the tag (B4)."""
    notifications: float
    """Use by subscribers: work for the cell of the tag (B4)."""
    retrieves: float
    """Downloads of objects with the tag: what a station should cache (I9)."""


class PopularTags(msgspec.Struct, frozen=True, kw_only=True):
    """The popular tags at an instant, the most popular first."""

    version: int
    as_of_us: int
    half_life_us: int
    tags: tuple[PopularTag, ...]


def read_popular_tags(file: Path, *, now_us: int, age_us_max: int) -> tuple[PopularTag, ...]:
    """The popular tags in a file; none if there is no file yet, or if it is too old to act on.

    Raises `PopularTagsError` for a file of another version or kind.
    """
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return ()
    try:
        found = msgspec.json.decode(data, type=PopularTags)
    except msgspec.DecodeError as error:
        raise PopularTagsError(f"{file} is not a file of popular tags: {error}") from error
    if found.version != POPULAR_TAGS_VERSION:
        raise PopularTagsError(
            f"{file} has version {found.version}, not {POPULAR_TAGS_VERSION}: "
            "update the analytics or this node"
        )
    return found.tags if now_us - found.as_of_us <= age_us_max else ()
