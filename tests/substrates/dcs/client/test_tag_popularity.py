"""Popularity of tags, as far as a node has seen them (B10)."""

from __future__ import annotations

from thyme.model.tags import Tag
from thyme.substrates.dcs.client.tag_popularity import TagPopularity


def test_b10_the_counts_of_tags_are_bounded_and_keep_the_common_ones() -> None:
    popularity = TagPopularity(tags_max=20)
    for number in range(200):
        popularity.add_tags([Tag("common"), Tag(f"tag{number}")])
        assert len(popularity) <= 20
    assert popularity.count_of(Tag("common")) > max(
        popularity.count_of(Tag(f"tag{n}")) for n in range(200)
    )
