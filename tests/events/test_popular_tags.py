"""What the analytics give back to stations and brokers (P9, I9, B4)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from thyme.events.popular_tags import (
    POPULAR_TAGS_VERSION,
    PopularTag,
    PopularTags,
    PopularTagsError,
    read_popular_tags,
)

GOAL = PopularTag(world="w", tag="goal", score=3.0, inserts=1.0, notifications=1.0, retrieves=1.0)


def write(file: Path, version: int = POPULAR_TAGS_VERSION) -> None:
    found = PopularTags(version=version, as_of_us=100, half_life_us=10, tags=(GOAL,))
    file.write_bytes(msgspec.json.encode(found))


def test_popular_tags_are_read_while_they_are_recent(tmp_path: Path) -> None:
    file = tmp_path / "popular_tags.json"
    assert read_popular_tags(file, now_us=0, age_us_max=50) == ()
    write(file)
    assert read_popular_tags(file, now_us=150, age_us_max=50) == (GOAL,)
    assert read_popular_tags(file, now_us=151, age_us_max=50) == ()


def test_another_version_or_kind_of_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "popular_tags.json"
    write(file, version=9)
    with pytest.raises(PopularTagsError, match="has version 9, not 1"):
        read_popular_tags(file, now_us=0, age_us_max=50)
    file.write_text("[]")
    with pytest.raises(PopularTagsError, match="not a file of popular tags"):
        read_popular_tags(file, now_us=0, age_us_max=50)
