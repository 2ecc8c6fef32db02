"""Demand: the topics seen in received profiles, and the generated profile of an encounter.

Entry point: `Demand`. A generated profile is the user's profile plus the least demanded topics: it
hides the user's interests, and makes the device carry events of rare topics (U2).
Clause: U2.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from thyme.model.tags import Tag

TOPICS_KNOWN_MAX = 10_000
"""Limit of the topics whose demand a device counts; the most demanded ones are forgotten first."""


class Demand:
    """How often each topic was in a received profile."""

    def __init__(self, known: Iterable[Tag], rng: Random) -> None:
        """`known` are topics that all devices know from the start, with a demand of 0."""
        self._counts: dict[Tag, int] = dict.fromkeys(sorted(known), 0)
        self._rng = rng

    def __getitem__(self, topic: Tag) -> int:
        return self._counts.get(topic, 0)

    def __len__(self) -> int:
        return len(self._counts)

    def record_profile(self, topics: Iterable[Tag]) -> None:
        """Counts the topics of a received profile."""
        counts = self._counts
        for topic in topics:
            counts[topic] = counts.get(topic, 0) + 1
        if len(counts) > TOPICS_KNOWN_MAX:
            rarest = sorted(counts, key=lambda topic: (counts[topic], topic))
            self._counts = {topic: counts[topic] for topic in rarest[:TOPICS_KNOWN_MAX]}

    def generate_profile(self, user_topics: frozenset[Tag], added: int) -> frozenset[Tag]:
        """The user's topics and the `added` least demanded others; ties are broken at random."""
        if added == 0:
            return user_topics
        counts, rng = self._counts, self._rng
        others = [topic for topic in counts if topic not in user_topics]
        if len(others) > added:
            drawn = {topic: rng.random() for topic in others}
            others = sorted(others, key=lambda topic: (counts[topic], drawn[topic]))[:added]
        return user_topics.union(others)
