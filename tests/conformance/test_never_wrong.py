"""M23: notification is best effort, but never wrong; without losses it is complete.

Users insert, delete, subscribe and unsubscribe at random, from a seed, and every notification is
compared with a complete record of the operations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from tests.conformance.environment import Environment, FollowedSubscription, Person
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.query.query import Query

TAGS = ("goal", "eder", "ronaldo", "replay", "stands")
QUERIES = (
    "goal",
    "goal & !replay",
    "eder | ronaldo",
    "goal & (eder | ronaldo) & !replay",
    "stands & !goal | replay",
)
PEOPLE = ("alice", "bob", "carol")


@dataclass
class Afternoon:
    """A complete record of the operations of all users."""

    env: Environment
    rng: Random
    keys: dict[Key, Person] = field(default_factory=dict)
    deleted_us: dict[Key, int] = field(default_factory=dict)
    followings: list[tuple[Person, FollowedSubscription]] = field(default_factory=list)
    cancelled_us: dict[str, int] = field(default_factory=dict)

    def act(self, number: int) -> None:
        person = self.env.person(self.rng.choice(PEOPLE))
        match self.rng.choices(
            ("insert", "delete", "subscribe", "cancel", "wait"), (10, 2, 3, 1, 4)
        )[0]:
            case "insert":
                tags = self.rng.sample(TAGS, self.rng.randint(1, 3))
                self.keys[person.insert(*tags, oid=f"o{number}")] = person
            case "delete" if living := [key for key in self.keys if key not in self.deleted_us]:
                key = self.rng.choice(living)
                self.keys[key].delete(key)
                self.deleted_us[key] = person.now_us()
            case "subscribe":
                self.followings.append((person, self._subscribe(person)))
            case "cancel" if standing := [pair for pair in self.followings if pair[1].over is None]:
                subscriber, following = self.rng.choice(standing)
                subscriber.cancel(following)
                self.cancelled_us[following.sid] = person.now_us()
            case _:
                self.env.elapse(self.rng.uniform(0, 3))

    def _subscribe(self, person: Person) -> FollowedSubscription:
        now_us = person.now_us()
        ends = [None, now_us, now_us - self.env.us(10), now_us + self.env.us(10)]
        start_us, end_us = self.rng.choice(ends), self.rng.choice(ends)
        if start_us is not None and end_us is not None and start_us > end_us:
            start_us, end_us = end_us, start_us
        return person.subscribe(self.rng.choice(QUERIES), start_us, end_us, batch=1_000)


@pytest.mark.parametrize("seed", range(8))
def test_m23_a_busy_afternoon_brings_no_wrong_notification(
    in_virtual_time: Environment, seed: int
) -> None:
    env = in_virtual_time
    afternoon = Afternoon(env, Random(seed))
    for number in range(120):
        afternoon.act(number)
    env.elapse(15)

    everything = {
        note.key: note.metadata for _, following in afternoon.followings for note in following.notes
    }
    assert len(afternoon.followings) > 5
    assert everything
    for _, following in afternoon.followings:
        for note in following.notes:
            assert following.frame.contains(note.metadata.published_us)
            assert Query(following.query).matches(note.metadata.tags)
            deleted_us = afternoon.deleted_us.get(note.key)
            assert deleted_us is None or note.arrived_us <= deleted_us + env.us(1)
        if env.reliable:
            missed = missing(afternoon, following, everything)
            assert missed == []


def missing(
    afternoon: Afternoon, following: FollowedSubscription, everything: dict[Key, Metadata]
) -> list[Key]:
    """The objects a subscriber should have been notified of and was not: those never deleted, and
    published long enough before the subscription was cancelled, or ended after its frame."""
    env, ends_us = afternoon.env, [afternoon.cancelled_us.get(following.sid)]
    if following.frame.end_us is not None:
        ends_us.append(following.frame.end_us + env.us(env.skew))
    until_us = min((end_us for end_us in ends_us if end_us is not None), default=None)
    return [
        key
        for key, metadata in everything.items()
        if key not in afternoon.deleted_us
        and (until_us is None or metadata.published_us < until_us - env.us(env.lag))
        and following.frame.contains(metadata.published_us)
        and Query(following.query).matches(metadata.tags)
        and key.oid not in following.heard
    ]
