"""Thyme-DCS on real sockets: nodes of four cells store the objects."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.daemon.pages import a_place
from thyme.api.world import OpenedWorld, World
from thyme.live.node_options import NodeOptions
from thyme.live.open_node import open_node
from thyme.model.errors import NotFoundError
from thyme.model.worlds import Area

PLACES = [(20.0, 20.0), (60.0, 20.0), (20.0, 60.0), (60.0, 60.0), (25.0, 25.0)]
JOIN_S = 4.5
"""A node listens for its cell for three seconds."""


@pytest.mark.slow
def test_objects_are_found_and_outlive_the_goodbye_of_their_publisher() -> None:
    """D11–D19, D23, D24, M13–M19, B9: four cells; one has two nodes, of which one leaves."""

    async def story() -> None:
        place = a_place()
        new = {"create": True, "world_id": "w", "area": Area(80, 80), "cell_m": 40.0}
        async with AsyncExitStack() as stack:
            worlds: list[World] = []
            for at in PLACES:
                options = new if not worlds else {}
                world = World(lambda at=at, options=options: _open(place, at, options))
                worlds.append(await stack.enter_async_context(world))
            await asyncio.sleep(JOIN_S)
            publisher, subscriber = worlds[4], worlds[3]

            feed = await subscriber.subscribe("goal & !replay")
            await feed.caught_up()
            photo = bytes(range(256)) * 2_000
            key = await publisher.insert(photo, tags=["goal"], summary="79'")
            gone = await publisher.insert(b"wrong", tags=["goal"])
            await publisher.insert(b"again", tags=["goal", "replay"])
            notes = [await asyncio.wait_for(anext(feed), 10) for _ in range(2)]
            assert {note.key for note in notes} == {key, gone}
            second = await publisher.insert(b"sharper", tags=["other"], updates=key)
            for world in worlds[
                1:4
            ]:  # B9: at most one of them is in the cell that stores the first
                await world.search("goal")
                versions = await world.versions(second)
                assert [each.key for each in versions] == [second, key]
            await publisher.delete(gone)
            await publisher.leave()

            assert await worlds[1].retrieve(notes[0] if notes[0].key == key else notes[1]) == photo
            found = await worlds[2].search("goal & !replay")
            assert [note.key for note in found] == [key]
            with pytest.raises(NotFoundError):
                await worlds[2].retrieve(next(note for note in notes if note.key == gone))

    asyncio.run(story())


async def _open(place: Any, at: tuple[float, float], options: dict[str, Any]) -> OpenedWorld:
    live = await open_node(NodeOptions(world="lisbon", network=place, position=at, **options))
    return live.world, live.start
