"""A world that was joined by its name, and never answered, is not kept for good (M21, B5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from tests.builders import photo
from tests.daemon.pages import a_node, a_place
from tests.live.nodes import free_group
from thyme.api.world import World
from thyme.daemon.status.collect_status import namesake_warning
from thyme.live.node_options import NodeOptions
from thyme.live.open_node import LiveNode, open_node
from thyme.live.sockets import Sockets
from thyme.live.world_choice import choose_again, has_answered, keeps_choice, save_answered
from thyme.model.ids import NodeId
from thyme.model.worlds import WorldInfo, auto_world
from thyme.storage.node_profile import NodeProfile
from thyme.storage.store import MemoryStore
from thyme.substrates.common.catalogue import OBJECTS
from thyme.transport.datagrams import Hello, digest_world, encode

LIAR = NodeId(b"liar")
LIE = WorldInfo("lisbon", "w", substrate="es", server=LIAR)
NOBODY = NodeProfile(LIE, NodeId(b"newcomer"))


@asynccontextmanager
async def greeting(group: str, world: WorldInfo) -> AsyncIterator[None]:
    """Somebody greets for a world again and again, and does nothing else."""
    sockets = Sockets(a_place(group))
    await sockets.open()
    hello = encode(digest_world(world), b"12345678", LIAR, Hello(world))

    async def greet() -> None:
        while True:
            sockets.send(hello, None)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(greet())
    try:
        yield
    finally:
        task.cancel()
        sockets.close()


def options(group: str, data: Path) -> NodeOptions:
    return NodeOptions(world="lisbon", network=a_place(group), data=data)


async def use_until_answered(live: LiveNode) -> None:
    async with World(lambda: (live.world, live.start)) as world:
        await world.insert(b"photo", tags=["goal"])
        while not has_answered(live.store):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def test_b5_a_false_server_is_left_at_the_next_start_and_a_true_one_is_kept(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        group = free_group()
        async with greeting(group, LIE):
            deceived = await open_node(options(group, tmp_path))
            assert deceived.world.server == LIAR
            deceived.close()
            async with a_node(network=a_place(group), substrate="es") as server:
                honest = await open_node(options(group, tmp_path))
                assert honest.world == server.live.world
                await use_until_answered(honest)

            again = await open_node(options(group, tmp_path))
            assert again.world == honest.world, "whoever else announces it"
            again.close()

    asyncio.run(story())


def test_b5_without_another_world_the_stored_one_stays() -> None:
    async def story() -> None:
        group = free_group()
        sockets = Sockets(a_place(group))
        await sockets.open()
        async with greeting(group, LIE):
            assert await choose_again(NOBODY, sockets, Random(1), 0.5) == NOBODY
        other = WorldInfo("porto", "p", substrate="ls")
        async with greeting(group, other):
            assert await choose_again(NOBODY, sockets, Random(1), 0.5) == NOBODY
        sockets.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    "changed",
    [{"create": True}, {"secret": "correct horse"}, {"world": "w"}],
    ids=["own world", "closed", "joined by its id"],
)
def test_b5_only_a_choice_by_name_in_an_open_world_is_dropped(changed: dict[str, object]) -> None:
    store = MemoryStore()
    by_name: dict[str, object] = {"world": "lisbon"}

    assert not keeps_choice(NodeOptions(**by_name), NOBODY, store)  # type: ignore[arg-type]
    assert keeps_choice(NodeOptions(**by_name | changed), NOBODY, store)  # type: ignore[arg-type]


def test_m24_a_choice_is_kept_with_what_was_stored_in_it_or_once_it_answered() -> None:
    with_objects, answered = MemoryStore(), MemoryStore()
    with_objects.put(OBJECTS, "photo", photo(1))
    save_answered(answered)

    assert keeps_choice(NodeOptions(world="lisbon"), NOBODY, with_objects)
    assert keeps_choice(NodeOptions(world="lisbon"), NOBODY, answered)


def test_m21_other_worlds_of_the_same_name_are_told_apart() -> None:
    own = WorldInfo("lisbon", "w", substrate="ls")
    heard = {"w": own, "v": WorldInfo("lisbon", "v"), "p": WorldInfo("porto", "p")}

    assert namesake_warning(own, {"w": own, "p": heard["p"]}) is None
    assert "here: v." in (namesake_warning(own, heard) or "")


def test_b7_a_server_is_no_namesake_of_nodes_that_choose_their_substrate() -> None:
    """They were advised to join one of the two by its id."""
    own, server = auto_world("ls", "lisbon"), WorldInfo("lisbon", "v", substrate="es")

    assert namesake_warning(own, {"v": server}) is None
    assert namesake_warning(server, {own.world_id: own}) is None
    assert namesake_warning(own, {"v": replace(server, substrate="ls")}) is not None
