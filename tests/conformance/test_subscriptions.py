"""Subscriptions: who is notified of what, once, in batches, of stored and of new objects."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from tests.conformance.environment import Environment, Operation, take
from tests.conformance.environments import ENVIRONMENTS
from thyme.api.subscription import Overflow
from thyme.model.errors import NotFoundError, OptionError


def test_m15_a_new_object_finds_the_standing_subscription(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    news = bob.subscribe("goal & eder")
    alice.insert("goal", "eder", oid="photo")
    alice.insert("goal", oid="other")
    env.elapse(2)
    env.hears(news, ["photo"])
    assert not any(note.from_history for note in news.notes)


def test_m15_a_new_subscription_finds_the_stored_object(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    alice.insert("goal", "eder", oid="photo")
    alice.insert("goal", oid="other")
    news = bob.subscribe("goal & eder")
    assert (news.total, news.heard) == (1, ["photo"])
    assert news.notes[0].from_history


def test_m16_an_object_that_matches_twice_is_heard_once(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    alice.insert("goal", "eder", "final", oid="old")
    news = bob.subscribe("goal & eder | final | goal & final")
    alice.insert("goal", "eder", "final", oid="new")
    env.elapse(2)
    assert news.total == 1
    env.hears(news, ["old", "new"])


def test_m16_two_subscriptions_of_one_node_each_hear_of_it(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    one, other = bob.subscribe("goal"), bob.subscribe("eder")
    alice.insert("goal", "eder", oid="photo")
    env.elapse(2)
    env.hears(one, ["photo"])
    env.hears(other, ["photo"])


def test_m17_the_past_comes_in_batches_newest_first(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    names = [f"photo-{number:02}" for number in range(12)]
    for name in names:
        alice.insert("goal", oid=name)
        env.elapse(0.1)
    newest_first = names[::-1]

    news = bob.subscribe("goal", batch=5)
    assert (news.total, news.heard) == (12, newest_first[:5])

    assert bob.more(news, 4) == 4
    assert news.heard == newest_first[:9]
    assert bob.more(news, 10) == 3
    assert news.heard == newest_first
    assert bob.more(news, 10) == 0


def test_m17_an_object_that_several_tags_match_counts_once(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    for number in range(12):
        alice.insert("goal", "eder", *(["replay"] if number % 3 == 0 else []), oid=f"{number:02}")
        env.elapse(0.1)
    assert bob.subscribe("goal | eder", batch=5).total == 12
    assert bob.subscribe("goal & !replay | eder | replay", batch=2).total == 12
    assert bob.subscribe("replay | goal & !eder", batch=1).total == 4


def test_m17_new_objects_come_as_usual_between_batches(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    for number in range(6):
        alice.insert("goal", oid=f"old-{number}")
        env.elapse(0.1)
    news = bob.subscribe("goal", batch=2)
    alice.insert("goal", oid="new")
    env.elapse(2)
    env.hears(news, ["old-5", "old-4", "new"])
    assert bob.more(news, 10) == 4
    env.hears(news, [f"old-{number}" for number in range(6)] + ["new"])


def test_m17_a_page_is_neither_repeated_nor_skipped_while_objects_come_and_go(
    env: Environment,
) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    keys = []
    for number in range(9):
        keys.append(alice.insert("goal", oid=f"old-{number}"))
        env.elapse(0.1)
    news = bob.subscribe("goal", None, bob.now_us(), batch=3)
    env.elapse(0.1)
    alice.insert("goal", oid="late")
    alice.delete(keys[7])  # notified already
    alice.delete(keys[4])  # not yet notified
    assert bob.more(news, 2) == 2
    assert bob.more(news, 9) == 3
    assert news.heard == ["old-8", "old-7", "old-6", "old-5", "old-3", "old-2", "old-1", "old-0"]


def test_m17_a_batch_of_nothing_only_tells_how_much_there_is(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    alice.insert("goal", oid="photo")
    news = bob.subscribe("goal", batch=0)
    assert (news.total, news.heard) == (1, [])
    assert bob.more(news, 5) == 1
    with pytest.raises(OptionError, match="batch"):
        bob.follow("goal", batch=-1)
    with pytest.raises(OptionError, match="count"):
        bob.more(news, 0)


def test_m18_after_unsubscribing_there_is_silence(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    news = bob.subscribe("goal")
    assert env.standing() == 1
    bob.cancel(news)
    alice.insert("goal")
    env.elapse(2)
    assert news.heard == []
    assert news.over == "cancelled"
    assert env.standing() == 0
    assert bob.subscriptions() == ()
    with pytest.raises(NotFoundError):
        bob.cancel(news)


def test_m18_a_subscription_past_its_end_ends_by_itself_and_frees_its_state(
    env: Environment,
) -> None:
    bob = env.person("bob")
    news = bob.subscribe("goal", None, bob.now_us() + env.us(10))
    assert env.standing() == 1
    env.elapse(10 + env.skew + 1)
    assert news.over == "its frame is over"
    assert env.standing() == 0
    assert bob.subscriptions() == ()


def test_m20_a_search_leaves_nothing_behind(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    for number in range(4):
        alice.insert("goal", oid=f"photo-{number}")
        env.elapse(0.1)
    found = bob.search("goal", limit=3)
    assert [note.key.oid for note in found] == ["photo-3", "photo-2", "photo-1"]
    assert (found.total, len(found)) == (4, 3)
    assert env.standing() == 0
    assert bob.subscriptions() == ()


def test_m22_any_node_publishes_subscribes_and_retrieves(crowd: Environment) -> None:
    people = [crowd.person(name) for name in ("alice", "bob", "carol")]
    followings = [person.subscribe("goal") for person in people]
    for person in people:
        person.insert("goal", data=person.name.encode(), oid=f"of-{person.name}")
    crowd.elapse(2)
    for person, following in zip(people, followings, strict=True):
        crowd.hears(following, ["of-alice", "of-bob", "of-carol"])
        for note in following.notes:
            assert person.retrieve(note) == note.key.oid.removeprefix("of-").encode()


STEPS = ("subscribe", "insert", "insert again")


@pytest.mark.parametrize("order", list(permutations(STEPS)), ids=" then ".join)
def test_m26_between_stored_and_new_objects_everything_comes_exactly_once(
    env: Environment, order: tuple[str, ...]
) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    bob.search("goal")  # all nodes know each other
    acts: list[Operation] = []
    news = None
    for step in order:
        if step == "subscribe":
            news = bob.follow("goal")
            acts.append(news.act)
        else:
            oid = step.replace(" ", "-")
            acts.append(alice.begin(alice.handlers.insert, b"x", ["goal"], oid=oid))
    for act in acts:
        bob.wait(act)
    env.elapse(3)
    assert news is not None
    env.hears(news, ["insert", "insert-again"])


def test_m27_a_subscription_tells_when_the_first_batch_has_come(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    alice.insert("goal", oid="photo")
    news = bob.follow("goal")
    bob.wait(news.act)
    bob.catch_up(news)
    assert news.past == 1
    assert news.heard == ["photo"]


def test_m27_a_subscription_resumes_where_its_subscriber_stopped(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    alice.insert("goal", oid="taken-before")
    news = bob.subscribe("goal & !replay")
    env.elapse(1)
    assert news.heard == ["taken-before"]
    env.crash("bob")
    if env.many:
        alice.insert("goal", oid="while-away")
        alice.insert("goal", "replay", oid="replay")
        env.elapse(2)
    bob = env.come_back("bob")

    assert [held.sid for held in bob.subscriptions()] == [news.sid]
    resumed = bob.resume(news.sid)
    alice = env.person("alice")
    alice.insert("goal", oid="after")
    env.elapse(2)

    assert set(resumed.heard) <= {"while-away", "after"}
    env.hears(resumed, ["while-away", "after"] if env.many else ["after"])


def test_m27_more_than_a_batch_missed_comes_all_the_same(crowd: Environment) -> None:
    alice, bob = crowd.person("alice"), crowd.person("bob")
    alice.insert("goal", oid="first")
    news = bob.subscribe("goal", batch=2)
    crowd.crash("bob")
    for number in range(7):
        alice.insert("goal", oid=f"missed-{number}")
    bob = crowd.come_back("bob")
    resumed = bob.resume(news.sid)
    crowd.elapse(5)
    assert sorted(resumed.heard) == [f"missed-{number}" for number in range(7)]


def test_m32_explain_says_why_something_did_or_did_not_match(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    old = alice.insert("goal", oid="old")
    env.elapse(2)
    news = bob.subscribe("goal & !replay", bob.now_us())
    right = alice.insert("goal", oid="right")
    wrong = alice.insert("goal", "replay", oid="wrong")
    gone = alice.insert("goal", oid="gone")
    alice.delete(gone)

    assert bob.explain(right, news).matches
    assert "goal & !replay holds" in str(bob.explain(right, news))
    assert "has replay" in str(bob.explain(wrong, news))
    assert "outside" in str(bob.explain(old, news))
    assert bob.explain(gone, news).state == "deleted"
    never = type(old)(type(old.oid)("never"), old.owner)
    assert bob.explain(never, news).state == "unknown"
    assert not any(bob.explain(key, news).matches for key in (old, wrong, gone, never))


@pytest.mark.parametrize(
    "name", ["solo, memory", "ES, perfect network", "LS, perfect network", "DCS, perfect network"]
)
def test_m33_one_slow_subscriber_hurts_nobody(name: str, tmp_path: Path) -> None:
    env = ENVIRONMENTS[name](tmp_path)
    alice, bob, carol = (env.person(name) for name in ("alice", "bob", "carol"))
    names = [f"photo-{number:02}" for number in range(10)]
    quick = carol.subscribe("goal")
    newest = bob.reader("goal", 3, Overflow.DROP_OLDEST)
    oldest = bob.reader("goal", 3, Overflow.DROP_NEWEST)
    patient = bob.reader("goal", 3, Overflow.BLOCK)
    for name in names:
        alice.insert("goal", oid=name)
    env.elapse(2)

    assert quick.heard == names
    assert [note.key.oid for note in drain(env, newest)] == names[-3:]
    assert [note.key.oid for note in drain(env, oldest)] == names[:3]
    assert (newest.dropped, oldest.dropped) == (7, 7)
    assert [note.key.oid for note in drain(env, patient)] == names
    assert patient.dropped == 0


@pytest.mark.parametrize(
    "name", ["solo, memory", "ES, perfect network", "LS, perfect network", "DCS, perfect network"]
)
def test_m34_a_reader_that_stalls_gets_everything_once_and_in_order(
    name: str, tmp_path: Path
) -> None:
    env = ENVIRONMENTS[name](tmp_path)
    alice, bob = env.person("alice"), env.person("bob")
    names = [f"photo-{number:02}" for number in range(30)]
    reader = bob.reader("goal", 3, Overflow.BLOCK)
    for oid in names:
        alice.insert("goal", oid=oid)
    env.elapse(2)
    assert reader.buffered == 3, "the rest waits in history"

    assert [note.key.oid for note in drain(env, reader)] == names
    assert (reader.dropped, reader.lost) == (0, 0)


def drain(env: Environment, subscription: object) -> list:  # type: ignore[type-arg]
    """Takes all buffered notifications, and lets time pass for more."""
    taken = []
    for _ in range(80):
        note = take(subscription)  # type: ignore[arg-type]
        if note is None:
            env.elapse(0.5)
        else:
            taken.append(note)
    return taken
