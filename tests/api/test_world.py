"""The async interface, in a local world in real time."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import thyme
from thyme.model.errors import (
    ClosedError,
    NotFoundError,
    NotOwnerError,
    OptionError,
    QuerySyntaxError,
    UnsupportedError,
    WorldError,
)
from thyme.model.ids import NodeId, ObjectId
from thyme.storage.node_profile import world_file

Story = Callable[[thyme.World], Awaitable[None]]


def tell(story: Story, **options: object) -> None:
    """Runs a coroutine in a new world."""

    async def run() -> None:
        async with thyme.join("lisbon", **options) as world:  # type: ignore[arg-type]
            await asyncio.wait_for(story(world), 20)

    asyncio.run(run())


async def heard(subscription: thyme.Subscription, count: int) -> list[str]:
    return [(await anext(subscription)).key.oid for _ in range(count)]


def test_the_ten_lines_of_every_application() -> None:
    async def story(world: thyme.World) -> None:
        subscription = await world.subscribe("goal & !replay")
        await world.insert(b"pixels", tags=["Goal", "eder"], summary="0-1")
        await world.insert(b"again", tags=["goal", "replay"])
        note = await anext(subscription)
        assert note.metadata.tags == ("eder", "goal")
        assert note.metadata.summary == b"0-1"
        assert await world.retrieve(note) == b"pixels"
        assert subscription.buffered == 0

    tell(story)


def test_m18_iteration_ends_when_the_frame_ends() -> None:
    async def story(world: thyme.World) -> None:
        subscription = await world.subscribe("goal", end=timedelta(seconds=0.3))
        await world.insert(b"", tags=["goal"], oid="inside")
        assert [note.key.oid async for note in subscription] == ["inside"]
        assert subscription.end_reason == "its frame is over"
        await world.insert(b"", tags=["goal"], oid="outside")
        assert [note.key.oid async for note in subscription] == []

    tell(story)


def test_m17_a_search_of_the_past_is_iterated_paged_and_iterated_again() -> None:
    async def story(world: thyme.World) -> None:
        for number in range(5):
            await world.insert(b"", tags=["goal"], oid=f"photo-{number}")
        subscription = await world.subscribe("goal", end=datetime.now(UTC), batch=2)
        assert subscription.total == 5
        assert [note.key.oid async for note in subscription] == ["photo-4", "photo-3"]
        assert await subscription.more(2) == 2
        assert [note.key.oid async for note in subscription] == ["photo-2", "photo-1"]
        assert await subscription.more(20) == 1
        assert await subscription.more(20) == 0
        assert [note.key.oid async for note in subscription] == ["photo-0"]

    tell(story)


def test_m18_cancelling_ends_the_iteration_of_whoever_waits() -> None:
    async def run() -> None:
        async with thyme.join("lisbon") as world:
            subscription = await world.subscribe("goal")
            reader = asyncio.create_task(_all(subscription))
            await asyncio.sleep(0.01)
            await subscription.cancel()
            await subscription.cancel()
            assert await asyncio.wait_for(reader, 5) == []
            assert await world.subscriptions() == ()

    asyncio.run(run())


async def _all(subscription: thyme.Subscription) -> list[str]:
    return [note.key.oid async for note in subscription]


def test_a_wait_that_is_given_up_loses_nothing() -> None:
    async def story(world: thyme.World) -> None:
        subscription = await world.subscribe("goal")
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(subscription), 0.01)
        await world.insert(b"", tags=["goal"], oid="photo")
        assert await heard(subscription, 1) == ["photo"]

    tell(story)


def test_leaving_a_world_ends_everything_that_waits() -> None:
    async def run() -> None:
        async with thyme.join("lisbon") as world:
            subscription = await world.subscribe("goal")
            reader = asyncio.create_task(_all(subscription))
            await asyncio.sleep(0.01)
        assert await asyncio.wait_for(reader, 5) == []
        with pytest.raises(ClosedError, match="left"):
            await world.insert(b"", tags=["goal"])

    asyncio.run(run())


def test_a_world_is_joined_before_it_is_used_and_only_once() -> None:
    async def run() -> None:
        world = thyme.join("lisbon")
        with pytest.raises(ClosedError, match="async with"):
            await world.insert(b"", tags=["goal"])
        async with world:
            with pytest.raises(ClosedError, match="already"):
                await world.__aenter__()

    asyncio.run(run())


def test_m33_a_full_buffer_follows_its_policy_and_counts() -> None:
    async def story(world: thyme.World) -> None:
        newest = await world.subscribe("goal", buffer=2, overflow="drop_oldest")
        oldest = await world.subscribe("goal", buffer=2, overflow="drop_newest")
        patient = await world.subscribe("goal", buffer=2)
        names = [f"photo-{number}" for number in range(6)]
        for name in names:
            await world.insert(b"", tags=["goal"], oid=name)
        assert await heard(newest, 2) == names[-2:]
        assert await heard(oldest, 2) == names[:2]
        assert (newest.dropped, oldest.dropped, patient.dropped) == (4, 4, 0)
        assert await heard(patient, 6) == names
        with pytest.raises(OptionError, match="drop_oldest, drop_newest, block"):
            await world.subscribe("goal", overflow="burst")
        with pytest.raises(OptionError, match="buffer"):
            await world.subscribe("goal", buffer=0)

    tell(story)


def test_m27_caught_up_waits_for_the_first_batch() -> None:
    async def story(world: thyme.World) -> None:
        for number in range(3):
            await world.insert(b"", tags=["goal"], oid=f"photo-{number}")
        subscription = await world.subscribe("goal", batch=2)
        await asyncio.wait_for(subscription.caught_up(), 5)
        assert (subscription.total, subscription.buffered) == (3, 2)

    tell(story)


def test_m27_a_subscription_survives_the_process_in_a_directory(tmp_path: Path) -> None:
    sids: list[str] = []

    async def before(world: thyme.World) -> None:
        subscription = await world.subscribe("goal & !replay")
        await world.insert(b"1", tags=["goal"], oid="taken")
        await world.insert(b"2", tags=["goal"], oid="not-taken")
        assert await heard(subscription, 1) == ["taken"]
        sids.append(subscription.sid)

    async def after(world: thyme.World) -> None:
        assert [held.sid for held in await world.subscriptions()] == sids
        subscription = await world.resume(sids[0])
        assert subscription.query == thyme.Query("goal & !replay")
        await world.insert(b"3", tags=["goal"], oid="new")
        assert await heard(subscription, 2) == ["not-taken", "new"]
        with pytest.raises(thyme.OperationError, match="already"):
            await world.resume(sids[0])
        with pytest.raises(NotFoundError):
            await world.resume("nobody")

    tell(before, data=tmp_path)
    tell(after, data=tmp_path)


def test_m30_a_world_on_disk_can_promise_durability_and_one_in_memory_cannot(
    tmp_path: Path,
) -> None:
    async def on_disk(world: thyme.World) -> None:
        await world.insert(b"", tags=["goal"], durable=True)

    async def in_memory(world: thyme.World) -> None:
        with pytest.raises(UnsupportedError):
            await world.insert(b"", tags=["goal"], durable=True)

    tell(on_disk, data=tmp_path)
    tell(in_memory)


def test_m32_a_world_explains_itself() -> None:
    async def story(world: thyme.World) -> None:
        subscription = await world.subscribe("goal & !replay")
        key = await world.insert(b"", tags=["goal", "replay"])
        explanation = await world.explain(key, subscription)
        assert not explanation.matches
        assert "has replay" in str(explanation)

    tell(story)


def test_errors_come_from_where_they_are_made() -> None:
    async def story(world: thyme.World) -> None:
        with pytest.raises(QuerySyntaxError) as caught:
            await world.subscribe("goal & (eder")
        assert caught.value.position == 7
        with pytest.raises(NotOwnerError):
            await world.delete(thyme.Key(ObjectId("x"), NodeId(b"another")))
        with pytest.raises(NotFoundError):
            await world.retrieve(thyme.Key(ObjectId("x"), world.node_id))

    tell(story)


def test_m13_handlers_do_the_same_with_callbacks(caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: thyme.World) -> None:
        outcomes: list[thyme.Outcome[object]] = []
        notes: list[str] = []

        def on_note(note: thyme.Notification) -> None:
            notes.append(note.key.oid)
            raise RuntimeError("an application's mistake")

        handlers = world.callbacks
        handlers.subscribe("goal", None, None, on_note, outcomes.append)
        handlers.insert(b"pixels", ["goal"], b"thumbnail", outcomes.append, oid="photo-1")
        handlers.insert(b"pixels", ["goal"], b"thumbnail", outcomes.append, oid="photo-2")
        handlers.delete(thyme.Key(ObjectId("nothing"), world.node_id), outcomes.append)
        await asyncio.sleep(0)
        assert notes == ["photo-1", "photo-2"]
        assert [outcome.ok for outcome in outcomes] == [True, True, True, False]
        assert isinstance(outcomes[-1].error, NotFoundError)

    with caplog.at_level(logging.ERROR, "thyme"):
        tell(story)
    assert sum("a handler of the application raised" in line for line in caplog.messages) == 2


def test_a_handler_may_ask_for_more_from_within() -> None:
    async def story(world: thyme.World) -> None:
        notes: list[str] = []

        def echo(note: thyme.Notification) -> None:
            notes.append(note.key.oid)
            if len(notes) < 500:
                world.callbacks.insert(b"", ["goal"], oid=f"echo-{len(notes)}")

        world.callbacks.subscribe("goal", None, None, echo)
        await world.insert(b"", tags=["goal"], oid="call")
        assert len(notes) == 500

    tell(story)


def test_m21_worlds_in_one_directory_do_not_mix(tmp_path: Path) -> None:
    async def fill(world: thyme.World) -> None:
        await world.insert(world.info.name.encode(), tags=["goal"])

    async def run() -> None:
        for name in ("lisbon", "Lisbon!", "porto"):
            async with thyme.join(name, data=tmp_path) as world:
                await fill(world)
        async with thyme.join("lisbon", data=tmp_path) as world:
            found = await world.search("goal")
            assert [await world.retrieve(note) for note in found] == [b"lisbon"]

    asyncio.run(run())
    infos = thyme.worlds(tmp_path)
    assert [info.name for info in infos] == ["Lisbon!", "lisbon", "porto"]
    assert len({info.world_id for info in infos}) == 3


def test_m21_a_world_ends_with_its_life_span(tmp_path: Path) -> None:
    async def story(world: thyme.World) -> None:
        await world.insert(b"", tags=["goal"])
        subscription = await world.subscribe("goal", batch=0)
        assert [note async for note in subscription] == []
        assert subscription.end_reason is not None
        assert "world" in subscription.end_reason
        with pytest.raises(ClosedError, match="life span"):
            await world.insert(b"", tags=["goal"])

    tell(story, ends=timedelta(seconds=0.3), data=tmp_path)
    assert thyme.worlds(tmp_path)[0].ends_us is not None


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "x" * 200, None])
def test_m21_a_world_needs_a_name(name: str) -> None:
    with pytest.raises(WorldError):
        thyme.join(name)


def test_a_store_that_fails_stops_its_node_rather_than_lie(tmp_path: Path) -> None:
    async def run() -> None:
        async with thyme.join("lisbon", data=tmp_path) as world:
            await world.insert(b"", tags=["goal"], oid="kept")
            subscription = await world.subscribe("goal", batch=0)
            store = world._session._port._store  # type: ignore[attr-defined]
            store._db.execute("PRAGMA query_only = ON")
            with pytest.raises(thyme.StoreError):
                await world.insert(b"", tags=["goal"], oid="lost")
            assert [note async for note in subscription] == []
            with pytest.raises(thyme.StoreError):
                await world.search("goal")
        async with thyme.join("lisbon", data=tmp_path) as world:
            assert [note.key.oid for note in await world.search("goal")] == ["kept"]

    asyncio.run(run())


def test_a_store_that_cannot_be_read_is_reported_by_join(tmp_path: Path) -> None:
    async def run() -> None:
        async with thyme.join("lisbon", data=tmp_path) as world:
            await world.subscribe("goal")
        with sqlite3.connect(world_file(tmp_path, "lisbon")) as db:
            assert db.execute(
                "UPDATE record SET value = x'00' WHERE shelf = 'subscription'"
            ).rowcount
        db.close()
        for _ in range(2):  # the first attempt does not keep the file open
            with pytest.raises(thyme.StoreError, match="damaged"):
                await thyme.join("lisbon", data=tmp_path)

    asyncio.run(run())


def test_m24_requests_made_just_before_leaving_are_carried_out(tmp_path: Path) -> None:
    async def story(world: thyme.World) -> None:
        for number in range(600):
            world.callbacks.insert(b"", ["goal"], oid=f"photo-{number}")

    async def look(world: thyme.World) -> None:
        found = await world.search("goal", limit=1_000)
        oids = [note.key.oid for note in reversed(found.notifications)]
        assert oids == [f"photo-{number}" for number in range(600)]

    tell(story, data=tmp_path)
    tell(look, data=tmp_path)
