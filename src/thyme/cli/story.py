"""The story of `thyme story`: a football final in Lisbon, in a local world (substrate `solo`).

Entry point: `run_story`. Every scene calls the public API, shows what it does (`story_output`) and
returns the results as facts. Tests check the facts of all scenes; `thyme story --json` prints them.
Clauses: M13–M20, M27, M32.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import timedelta
from hashlib import sha256
from tempfile import TemporaryDirectory
from typing import Any

import thyme
from thyme.cli.story_output import StoryOutput

QUERY = "goal & (photo | clip) & !replay"
PAGE = 3
FRAME_STARTS_IN = timedelta(milliseconds=250)
FRAME_LASTS = timedelta(milliseconds=500)

# Publisher, object id, tags, caption; in the order of publication.
PUBLICATIONS = (
    ("ana", "fans", "photo fans stadium", "The stands at kick-off"),
    ("bruno", "g1", "clip goal ronaldo", "12' Ronaldo from the spot"),
    ("carla", "g1-photo", "photo goal ronaldo", "12' The keeper dives the wrong way"),
    ("bruno", "g1-replay", "clip goal ronaldo replay", "13' The penalty again, slowly"),
    ("duarte", "save", "clip save", "31' Off the post!"),
    ("ana", "g2", "clip goal visitors", "38' The equaliser"),
    ("carla", "g2-photo", "photo goal visitors", "38' Silence behind the goal"),
    ("duarte", "song", "audio song", "45' The whole stand sings"),
    ("ana", "blurry", "photo goal ronaldo", "52' 2-1, or somebody's thumb"),
    ("bruno", "g3", "clip goal ronaldo", "52' 2-1, a header"),
    ("carla", "queue", "photo pastry", "60' The queue for pastéis"),
    ("duarte", "g4", "clip goal visitors", "71' Level again"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryFacts:
    """Results of the scenes, as printed by `thyme story --json`."""

    published: int
    query: str
    total: int
    pages: tuple[tuple[str, ...], ...]
    live: str
    live_ms: float
    replay_heard: bool
    replay_reasons: tuple[str, ...]
    retrieved_bytes: int
    retrieved_verified: bool
    deleted: str
    deleted_retrieve: str
    total_after_delete: int
    heard_after_delete: tuple[str, ...]
    frame_heard: tuple[str, ...]
    frame_over: str
    frame_missed_reasons: tuple[str, ...]
    restart_taken: tuple[str, ...]
    restart_resumed: tuple[str, ...]
    restart_objects: int


def as_json(facts: StoryFacts) -> dict[str, Any]:
    """Converts the facts to JSON values."""
    return asdict(facts)


async def run_story(output: StoryOutput) -> StoryFacts:
    """Runs all scenes and returns their facts."""
    facts: dict[str, Any] = {}
    await output.begin_scene(
        "Thyme: the night of the final",
        "Lisbon, a full stadium, no signal. Four friends share what they see.\n"
        "Here one process plays all of them, in a local world.",
    )
    async with thyme.join("final") as world:
        facts |= await _publish(output, world)
        feed, past = await _subscribe(output, world)
        facts |= past
        note, live = await _notify_goal(output, world, feed)
        facts |= live
        facts |= await _exclude_replay(output, world, feed)
        facts |= await _retrieve(output, world, note)
        facts |= await _delete(output, world)
        facts |= await _subscribe_to_future(output, world)
    facts |= await _restart(output)
    await output.end_story(
        "What next",
        [
            ("./run thyme query explain 'goal & (a | b)'", "explain a query"),
            ("./run thyme query match 'goal & !b' --tags goal", "try a query on tags"),
            ("docs/quickstart.md", "write an application"),
            ("docs/concepts.md", "read about the guarantees"),
        ],
    )
    return StoryFacts(**facts)


async def _publish(output: StoryOutput, world: thyme.World) -> dict[str, Any]:
    await output.begin_scene(
        "People publish",
        "An object is a sequence of bytes. Its tags make it findable; a summary describes it.",
    )
    output.show_code('await world.insert(data, tags=["clip", "goal", "ronaldo"], summary=caption)')
    for who, oid, tags, caption in PUBLICATIONS:
        await _insert(world, who, oid, tags, caption)
    output.show_table(("who", "tags", "caption"), [(w, t, c) for w, _, t, c in PUBLICATIONS])
    found = await world.search("by:ana | by:bruno | by:carla | by:duarte")
    output.show_text(f"{found.total} objects are stored.")
    return {"published": found.total}


async def _subscribe(
    output: StoryOutput, world: thyme.World
) -> tuple[thyme.Subscription, dict[str, Any]]:
    await output.begin_scene(
        "Eva arrives late and subscribes to the past and the future",
        "A subscription has a formula and a time frame; this one is open at both ends.",
    )
    output.show_code(f'feed = await world.subscribe("{QUERY}", batch={PAGE})')
    feed = await world.subscribe(QUERY, batch=PAGE)
    for conjunction in feed.query.conjunctions:
        output.show_text(f"one way to match: {conjunction}")
    await feed.caught_up()
    pages = [await _drain(feed)]
    output.show_text(f"The {len(pages[0])} most recent of {feed.total}:")
    _show(output, pages[0])
    while await feed.more(PAGE):
        pages.append(await _drain(feed))
        output.show_code(f"await feed.more({PAGE})")
        _show(output, pages[-1])
    output.show_code(f"await feed.more({PAGE})")
    output.show_text("0: that was all of the past.")
    return feed, {
        "query": str(feed.query),
        "total": feed.total,
        "pages": tuple(_oids(page) for page in pages),
    }


async def _notify_goal(
    output: StoryOutput, world: thyme.World, feed: thyme.Subscription
) -> tuple[thyme.Notification, dict[str, Any]]:
    await output.begin_scene(
        "79': a goal", "Ana publishes; Eva's subscription is still active and is notified."
    )
    began_s = time.perf_counter()
    listening = asyncio.ensure_future(anext(feed))
    await _insert(world, "ana", "g5", "clip goal eder", "79' Éder, from thirty metres!")
    note = await listening
    live_ms = (time.perf_counter() - began_s) * 1_000
    output.show_code("async for note in feed: ...")
    _show(output, [note])
    output.show_text(f"Published, matched and notified in {live_ms:.1f} ms.")
    return note, {"live": note.metadata.oid, "live_ms": round(live_ms, 3)}


async def _exclude_replay(
    output: StoryOutput, world: thyme.World, feed: thyme.Subscription
) -> dict[str, Any]:
    await output.begin_scene(
        "80': the replay", "Eva's query has !replay, so she is not notified. `explain` says why."
    )
    key = await _insert(world, "bruno", "g5-replay", "clip goal eder replay", "80' Once more")
    why = await world.explain(key, feed)
    output.show_text(f"Notifications waiting for Eva: {feed.buffered}")
    output.show_code("print(await world.explain(key, feed))")
    output.show_text(str(why))
    return {"replay_heard": feed.buffered > 0 or why.matches, "replay_reasons": why.reasons}


async def _retrieve(
    output: StoryOutput, world: thyme.World, note: thyme.Notification
) -> dict[str, Any]:
    await output.begin_scene(
        "Eva wants to see the goal",
        "Notifications carry metadata only; the object is retrieved on demand and verified.",
    )
    data = await world.retrieve(note)
    digest = sha256(data).hexdigest()
    verified = digest == note.metadata.digest.hex()
    output.show_code("data = await world.retrieve(note)")
    verdict = "as announced" if verified else "NOT as announced"
    output.show_text(f"{len(data):,} bytes, SHA-256 {digest[:16]}…, {verdict}")
    return {"retrieved_bytes": len(data), "retrieved_verified": verified}


async def _delete(output: StoryOutput, world: thyme.World) -> dict[str, Any]:
    await output.begin_scene(
        "Ana deletes a blurry photo",
        "A deleted object is gone, also for later subscriptions to the past.",
    )
    found = await world.search("photo & goal & ronaldo & by:ana")
    [blurry] = found
    await world.delete(blurry)
    output.show_code("await world.delete(blurry)")
    async with await world.subscribe(QUERY) as later:
        await later.caught_up()
        received = await _drain(later)
        output.show_text(f"A later subscription finds {later.total}, without “{_caption(blurry)}”:")
        output.show_text(str(await world.explain(blurry, later)))
    try:
        await world.retrieve(blurry)
        refusal = ""
    except thyme.OperationError as error:
        refusal = error.code
        output.show_code("await world.retrieve(blurry)")
        output.show_text(f"{type(error).__name__}: it cannot be retrieved any more")
    return {
        "deleted": blurry.metadata.oid,
        "deleted_retrieve": refusal,
        "total_after_delete": later.total,
        "heard_after_delete": _oids(received),
    }


async def _subscribe_to_future(output: StoryOutput, world: thyme.World) -> dict[str, Any]:
    await output.begin_scene(
        "A time frame in the future",
        "Fireworks will start soon. Carla wants photos from between two instants only.",
    )
    opens_s, closes_s = (
        FRAME_STARTS_IN.total_seconds(),
        (FRAME_STARTS_IN + FRAME_LASTS).total_seconds(),
    )
    output.show_code(
        f'show = await world.subscribe("fireworks", start=timedelta(seconds={opens_s}),'
    )
    output.show_code(f"                             end=timedelta(seconds={closes_s}))")
    show = await world.subscribe(
        "fireworks", start=FRAME_STARTS_IN, end=FRAME_STARTS_IN + FRAME_LASTS
    )
    early = await _insert(world, "duarte", "test-shot", "photo fireworks", "Only a test shot")
    assert show.frame.start_us is not None
    await _sleep_until(world, show.frame.start_us)
    output.show_text("The frame opens …")
    await _insert(world, "duarte", "rockets", "photo fireworks", "The first rockets")
    received = [note async for note in show]
    output.show_text(f"… and closes. The iteration ends by itself: {show.end_reason}.")
    await _insert(world, "duarte", "smoke", "photo fireworks", "Smoke")
    _show(output, received)
    why = await world.explain(early, show)
    output.show_text("And the test shot?")
    output.show_text(str(why))
    return {
        "frame_heard": _oids(received),
        "frame_over": show.end_reason or "",
        "frame_missed_reasons": why.reasons,
    }


async def _restart(output: StoryOutput) -> dict[str, Any]:
    await output.begin_scene(
        "Eva's phone dies, and comes back",
        "A world stored in a directory survives; a subscription resumes where it stopped.",
    )
    with TemporaryDirectory() as folder:
        output.show_code('async with thyme.join("final", data=folder) as world:')
        async with thyme.join("final", data=folder) as world:
            feed = await world.subscribe(QUERY)
            for who, oid, tags, caption in PUBLICATIONS[1:3]:
                await _insert(world, who, oid, tags, caption)
            taken = [await anext(feed)]
            output.show_text(f"Two goals are notified, one is seen: “{_caption(taken[0])}”")
        output.show_text("… and the battery is empty.")
        output.show_code('async with thyme.join("final", data=folder) as world:')
        async with thyme.join("final", data=folder) as world:
            await _insert(world, "bruno", "g3", "clip goal ronaldo", "52' 2-1, a header")
            output.show_code(f'    feed = await world.resume("{feed.sid}")')
            feed = await world.resume(feed.sid)
            await feed.caught_up()
            resumed = await _drain(feed)
            stored = await world.search(QUERY)
    output.show_text("New objects and those not seen before; nothing twice:")
    _show(output, resumed)
    return {
        "restart_taken": _oids(taken),
        "restart_resumed": _oids(resumed),
        "restart_objects": stored.total,
    }


async def _insert(world: thyme.World, who: str, oid: str, tags: str, caption: str) -> thyme.Key:
    """Inserts made-up bytes, with the publisher as an extra tag for searching."""
    data = f"{caption}\n".encode() * 2_000
    return await world.insert(data, tags=[*tags.split(), f"by:{who}"], summary=caption, oid=oid)


async def _drain(feed: thyme.Subscription) -> list[thyme.Notification]:
    return [await anext(feed) for _ in range(feed.buffered)]


async def _sleep_until(world: thyme.World, instant_us: int) -> None:
    """Sleeps a little past the instant: event loops may wake a little early."""
    left_s = (instant_us - world.now_us()) / 1_000_000
    await asyncio.sleep(max(0.0, left_s) + 0.01)


def _caption(note: thyme.Notification) -> str:
    return note.metadata.summary.decode()


def _oids(notes: Iterable[thyme.Notification]) -> tuple[str, ...]:
    return tuple(note.metadata.oid for note in notes)


def _show(output: StoryOutput, notes: Iterable[thyme.Notification]) -> None:
    rows = [
        ("past" if n.from_history else "new", _caption(n), ", ".join(n.metadata.tags))
        for n in notes
    ]
    output.show_table(("when", "caption", "tags"), rows)
