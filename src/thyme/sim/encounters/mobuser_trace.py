"""The MobUser trace: the populations of the MobUser paper, sections V to VII.

Entry point: `mobuser_trace`. With one topic, all users subscribe to it and a share of them
publishes an event. With a rare topic there are six; each user subscribes to each with a
probability, and a user with none to the most popular; who subscribes to the rarest publishes in it.
Users subscribe at the start. Where the paper is silent: events have `EVENT_BYTES` bytes and are
published in the first discovery period, and the probabilities of the topics are evenly spaced.
Clauses: U8, U9.
"""

from __future__ import annotations

import msgspec

from thyme.model.errors import InputError
from thyme.model.rng import derive_rng
from thyme.model.sampling import check_share
from thyme.model.tags import Tag, as_tag
from thyme.model.time_frames import SECOND_US
from thyme.traces.operations import SIZE_MAX, InsertOperation, SubscribeOperation
from thyme.traces.trace import Trace, merge_users

EVENT_BYTES = 256
PUBLISH_US = 300 * SECOND_US
NEWS = as_tag("news")
TOPICS_RARE = 6
"""The number of topics in the scenario with a rare topic (paper, section VII)."""


class MobUserPopulation(msgspec.Struct, frozen=True, kw_only=True):
    """The users of a scenario of the MobUser paper."""

    users: int = 1_000
    publishers_share: float = 0.1
    """Share of the users that publish an event, if there is one topic."""
    rare_probability: float | None = None
    """Probability with which a user subscribes to the rarest of six topics; None: one topic."""
    event_bytes: int = EVENT_BYTES
    publish_us: int = PUBLISH_US
    """Events are published at random instants before this one."""

    def __post_init__(self) -> None:
        if self.users < 2:
            raise InputError(f"a population has at least two users, not {self.users}")
        check_share(self.publishers_share, "publishers: the share of users that publish")
        if self.rare_probability is not None:
            check_share(self.rare_probability, "rare: the probability of the rarest topic")
        if not 0 <= self.event_bytes <= SIZE_MAX or self.publish_us < 1:
            raise InputError("events have at least 0 bytes, and are published after 0")


def mobuser_trace(seed: int, config: MobUserPopulation) -> Trace:
    """Draws the trace of all users."""
    if config.rare_probability is not None:
        subscriptions, publishers = _draw_rare(seed, config.users, config.rare_probability)
        topic = rare_topics()[0]
    else:
        count = round(config.publishers_share * config.users)
        publishers = sorted(derive_rng(seed, "publishers").sample(range(config.users), count))
        subscriptions, topic = [(NEWS,)] * config.users, NEWS
    inserts = [
        encounter_event(seed, number, user, (topic,), config)
        for number, user in enumerate(publishers)
    ]
    subscribes = [encounter_subscription(user, topics) for user, topics in enumerate(subscriptions)]
    return merge_users(config.users, [*subscribes, *inserts])


def rare_topics() -> tuple[Tag, ...]:
    """The six topics, the rarest first."""
    return tuple(as_tag(f"topic{number}") for number in range(TOPICS_RARE))


def _draw_rare(seed: int, users: int, rarest: float) -> tuple[list[tuple[Tag, ...]], list[int]]:
    """The topics of each user, and the users who publish."""
    topics = rare_topics()
    step = (1 - rarest) / (TOPICS_RARE - 1)
    subscriptions: list[tuple[Tag, ...]] = []
    for user in range(users):
        rng = derive_rng(seed, "topics", user)
        chosen = tuple(
            topic for number, topic in enumerate(topics) if rng.random() < rarest + number * step
        )
        subscriptions.append(chosen or topics[-1:])
    return subscriptions, [user for user in range(users) if topics[0] in subscriptions[user]]


def encounter_subscription(user: int, topics: tuple[Tag, ...]) -> SubscribeOperation:
    """The subscription of a user to some topics, at the start."""
    return SubscribeOperation(0, user, f"subscription{user}", " | ".join(topics))


def encounter_event(
    seed: int, number: int, user: int, tags: tuple[Tag, ...], config: MobUserPopulation
) -> InsertOperation:
    """An event that a user publishes at a random instant."""
    rng = derive_rng(seed, "publish", user, *tags)
    at_us = int(rng.random() * config.publish_us)
    return InsertOperation(at_us, user, f"event{number}", tuple(sorted(tags)), config.event_bytes)
