"""Versions of an object: updated in place, the latest wins, the history is kept (B9)."""

from __future__ import annotations

from tests.conformance.environment import Environment, Person
from thyme.model.ids import Key
from thyme.model.object_versions import (
    make_version,
    sort_versions,
    version_number,
    version_tag,
)


def update(person: Person, key: Key, data: bytes) -> Key:
    """Publishes a new version, as `World.insert` does."""
    latest = max(version_number(each) for each in (key, *versions(person, key)))
    version = make_version(key, latest, person.now_us())
    return person.insert("goal", version_tag(version), data=data, oid=version.oid)


def versions(person: Person, key: Key) -> list[Key]:
    """The versions of an object after the first that a search finds, the latest first."""
    found = [note.metadata for note in person.search(version_tag(key))]
    return [each.key for each in sort_versions(key, found)]


def test_b9_the_latest_version_wins_and_the_history_is_kept(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    first = alice.insert("goal", data=b"one", oid="score")
    second = update(alice, first, b"two")
    third = update(alice, second, b"three")
    env.elapse(env.lag)

    assert versions(alice, first) == versions(bob, third) == [third, second]
    assert [note.key for note in bob.search("goal", limit=1)] == [third]
    found = bob.search(version_tag(first)).notifications
    assert [bob.retrieve(note) for note in found] == [b"three", b"two"]

    alice.delete(third)
    env.elapse(env.lag)
    assert versions(bob, first) == [second]


def test_b9_a_subscriber_follows_an_object_from_version_to_version(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    first = alice.insert("goal", data=b"one", oid="score")
    following = bob.subscribe(version_tag(first))
    others = alice.insert("goal", data=b"other", oid="other")
    second = update(alice, first, b"two")
    update(alice, others, b"else")
    env.elapse(env.lag)

    env.hears(following, [second.oid])
