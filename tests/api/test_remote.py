"""An application whose node runs in another process: the same interface, which ends with the
node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse

import thyme
from tests.daemon.pages import a_node
from thyme.api.remote import NodeUnreachableError
from thyme.model.errors import ClosedError, NotFoundError, OptionError, WorldError


def test_the_interface_is_the_same_over_a_line() -> None:
    """M13–M20, M27, M32."""

    async def story() -> None:
        async with a_node() as node, thyme.connect(node.url, world="lisbon") as world:
            assert world.info == node.live.world
            assert world.node_id == node.host.node_id
            assert abs(world.now_us() - node.host.now_us()) < 1_000_000
            keys = [await world.insert(b"x" * n, tags=["a", f"n{n}"]) for n in range(5)]
            feed = await world.subscribe("a & !n0", batch=2)
            await feed.caught_up()
            assert {note.key for note in feed.drain()} == {keys[3], keys[4]}
            assert await feed.more(10) == 2
            assert {note.key for note in feed.drain()} == {keys[1], keys[2]}
            assert await world.retrieve(keys[4]) == b"xxxx"
            assert not (await world.explain(keys[0], feed)).matches
            await world.delete(keys[4])
            with pytest.raises(NotFoundError):
                await world.retrieve(keys[4])
            assert (await world.search("a")).total == 4
            assert [held.sid for held in await world.subscriptions()] == [feed.sid]
            await world.unsubscribe(feed.sid)
            assert await world.subscriptions() == ()

    asyncio.run(story())


def test_m27_who_hangs_up_finds_its_subscription_standing() -> None:
    async def story() -> None:
        async with a_node() as node:
            async with thyme.connect(node.url, world="lisbon") as world:
                sid = (await world.subscribe("a")).sid
            async with thyme.connect(node.url, world="lisbon") as world:
                key = await world.insert(b"", tags=["a"])
                feed = await world.resume(sid)
                assert (await asyncio.wait_for(anext(feed), 10)).key == key

    asyncio.run(story())


def test_when_the_node_ends_so_does_everything() -> None:
    async def story() -> None:
        async with a_node() as node:
            world = await thyme.connect(node.url, world="lisbon")
            feed = await world.subscribe("a")
        assert [note async for note in feed] == []
        assert "closed the connection" in str(feed.end_reason)
        with pytest.raises(ClosedError):
            await world.insert(b"", tags=["a"])
        await world.leave()

    asyncio.run(story())


def test_leaving_closes_the_connection_also_if_it_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hung: asyncio.Queue[ClientWebSocketResponse] = asyncio.Queue()

    async def hang(socket: ClientWebSocketResponse) -> None:
        hung.put_nowait(socket)
        await asyncio.Event().wait()

    async def story() -> None:
        opened: list[ClientSession] = []
        original = ClientSession.ws_connect

        def connect(session: ClientSession, *args: Any, **options: Any) -> Any:
            opened.append(session)
            return original(session, *args, **options)

        monkeypatch.setattr(ClientSession, "ws_connect", connect)
        async with a_node() as node:
            world = await thyme.connect(node.url, world="lisbon")
            with monkeypatch.context() as hanging:
                hanging.setattr(ClientWebSocketResponse, "close", hang)
                leaving = asyncio.create_task(world.leave())
                socket = await hung.get()
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
            assert leaving.cancelled()
            assert [session.closed for session in opened] == [True]
            await socket.close()

    asyncio.run(story())


def test_a_node_that_is_not_there_or_elsewhere_is_said_to_be() -> None:
    """M25."""

    async def story() -> None:
        async with a_node() as node:
            with pytest.raises(WorldError, match="in the world 'lisbon', not 'porto'"):
                await thyme.connect(node.url, world="porto")
        with pytest.raises(NodeUnreachableError, match="thyme node"):
            await thyme.connect(node.url, world="lisbon")
        with pytest.raises(OptionError, match="http"):
            await thyme.connect("ftp://127.0.0.1", world="lisbon")

    asyncio.run(story())
