"""Nodes that choose their substrate, on sockets and as processes (B7)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import thyme
from tests.daemon.pages import a_place
from tests.live.nodes import NodeProcess, free_group
from thyme.live.auto import node as auto
from thyme.live.auto.node import AutoNode, open_live_node
from thyme.live.auto.substrate_choice import ChoiceConfig, SubstrateChoice
from thyme.live.node_options import NodeOptions
from thyme.live.open_node import LiveNode
from thyme.live.sockets import NetworkConfig
from thyme.model.errors import OptionError, WorldError
from thyme.model.worlds import Area

SOON_S = 60.0
QUICK = ChoiceConfig(
    server_found_us=200_000,
    server_gone_us=1_000_000,
    crowd_formed_us=200_000,
    crowd_gone_us=200_000,
    crowd_nodes=3,
    changes_unsteady=1_000,
    penalty_us=1,
)


class Device:
    """A node in this process, and the notifications of its subscription to goals."""

    def __init__(self, live: LiveNode, world: thyme.World) -> None:
        self.live = live
        self.world = world
        self.heard: list[str] = []

    async def subscribe(self) -> None:
        """Returns when the stored matches of all nodes in range are known."""
        subscription = await self.world.subscribe("goal")

        async def listen() -> None:
            async for note in subscription:
                self.heard.append(note.key.oid)

        self.listening = asyncio.create_task(listen())
        await subscription.caught_up()

    async def insert(self, *names: str) -> None:
        for name in names:
            await self.world.insert(name.encode(), tags=["goal"], oid=name)


async def start(stack: AsyncExitStack, options: NodeOptions) -> Device:
    live = await open_live_node(options)
    if isinstance(live, AutoNode):
        live.choice = SubstrateChoice(QUICK, cells=options.area is not None)

    async def opened() -> object:
        return live.joined, live.start

    world = thyme.World(opened)  # type: ignore[arg-type]
    return Device(live, await stack.enter_async_context(world))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def all_use(substrate: str, *devices: Device) -> None:
    await until(lambda: all(device.live.world.substrate == substrate for device in devices))


def an_option(network: NetworkConfig, **more: object) -> NodeOptions:
    return NodeOptions(world="lisbon", substrate="auto", network=network, **more)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "POLL_S", 0.1)


def test_b7_objects_subscriptions_and_deletes_follow_to_a_server_and_back() -> None:
    async def story() -> None:
        network = a_place(free_group())
        async with AsyncExitStack() as stack:
            alice = await start(stack, an_option(network))
            bob = await start(stack, an_option(network))
            await bob.subscribe()
            await alice.insert("first", "second")
            await until(lambda: len(bob.heard) == 2)

            serving = await stack.enter_async_context(AsyncExitStack())
            options = NodeOptions(world="lisbon", substrate="es", create=True, network=network)
            server = await start(serving, options)
            await all_use("es", alice, bob)
            await alice.insert("third")
            await alice.world.delete((await alice.world.search("goal")).notifications[-1])
            await until(lambda: len(bob.heard) == 3)
            found = await server.world.search("goal")
            assert sorted(note.key.oid for note in found) == ["second", "third"]

            await serving.aclose()
            await alice.insert("fourth")  # at nobody: it is repeated where there is somebody
            await all_use("ls", alice, bob)
            await until(lambda: len(bob.heard) == 4)
            await alice.insert("fifth")
            await until(lambda: len(bob.heard) == 5)
            assert sorted(bob.heard) == ["fifth", "first", "fourth", "second", "third"]
            found = await bob.world.search("goal")
            assert sorted(note.key.oid for note in found) == ["fifth", "fourth", "second", "third"]
            assert await bob.world.retrieve(found.notifications[0]) == b"fifth"

    asyncio.run(story())


def test_b7_a_crowd_moves_into_cells_and_out_again() -> None:
    async def story() -> None:
        options = an_option(a_place(free_group()), area=Area(80.0, 40.0), cell_m=40.0)
        async with AsyncExitStack() as stack:
            alice = await start(stack, options)
            bob = await start(stack, options)
            await bob.subscribe()
            await alice.insert("alone")
            leaving = await stack.enter_async_context(AsyncExitStack())
            others = [await start(leaving, options) for _ in range(2)]
            await all_use("dcs", alice, bob, *others)
            await alice.insert("crowd")
            await until(lambda: len(bob.heard) == 2)
            await leaving.aclose()
            alice.live.choice = bob.live.choice = SubstrateChoice(QUICK)  # type: ignore[attr-defined]
            await all_use("ls", alice, bob)
            await alice.insert("few")
            await until(lambda: len(bob.heard) == 3)
            assert sorted(bob.heard) == ["alone", "crowd", "few"]

    asyncio.run(story())


def test_m34_objects_published_out_of_range_are_due_when_their_owner_arrives(
    tmp_path: Path,
) -> None:
    """More objects than a page has, since the subscription began."""
    names = [f"photo-{number:02}" for number in range(50)]

    async def story() -> None:
        network, elsewhere = a_place(free_group()), a_place(free_group())
        async with AsyncExitStack() as stack:
            bob = await start(stack, an_option(network))
            await bob.subscribe()
            async with AsyncExitStack() as away:
                alice = await start(away, an_option(elsewhere, data=tmp_path))
                await alice.insert(*names)
            await start(stack, an_option(network, data=tmp_path))
            await until(lambda: len(bob.heard) >= len(names))
            assert sorted(bob.heard) == names

    asyncio.run(story())


@pytest.mark.parametrize(
    "more", [{"create": True}, {"secret": "a secret word"}, {"world_id": "w"}, {"cells": 3}]
)
def test_b7_options_of_one_world_are_refused(more: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="leave out"):
        asyncio.run(open_live_node(an_option(a_place(free_group()), **more)))


def test_b7_a_folder_belongs_to_a_node_that_chooses_or_to_one_that_does_not(tmp_path: Path) -> None:
    network = a_place(free_group())

    async def story() -> None:
        live = await open_live_node(
            NodeOptions(world="lisbon", create=True, network=network, data=tmp_path)
        )
        live.close()
        with pytest.raises(WorldError, match="uses ls, not auto"):
            await open_live_node(an_option(network, data=tmp_path))

    asyncio.run(story())


@pytest.mark.slow
def test_b7_processes_change_to_a_server_and_back_and_each_object_is_notified_once(
    tmp_path: Path,
) -> None:
    where = ("--world", "lisbon", "--group", free_group())
    thyme_command = [sys.executable, "-m", "thyme.cli"]

    def publish(name: str) -> None:
        words = ["publish", "-", "--tags", "goal", "--summary", name, "--node", alice.url]
        subprocess.run([*thyme_command, *words], input=b"", check=True, capture_output=True)

    nodes = [
        NodeProcess("node", *where, "--substrate", "auto", "--data", tmp_path / name)
        for name in ("alice", "bob")
    ]
    alice, bob = nodes
    words = ["subscribe", "goal", "--json", "--follow", "--node", bob.url]
    try:
        with subprocess.Popen(
            [*thyme_command, *words], stdout=subprocess.PIPE, text=True
        ) as reader:
            assert reader.stdout is not None
            for name in ("ls", "es", "ls again"):
                if name == "es":
                    nodes.append(NodeProcess("server", *where, "--data", tmp_path / "server"))
                elif name == "ls again":
                    nodes.pop().kill()
                if name != "ls":
                    for node in (alice, bob):
                        found = node.wait_for("substrate_changed")
                        assert found["substrate"] == name[:2]
                publish(name)
                assert f'"{name}"' in reader.stdout.readline()
            reader.kill()
    finally:
        for node in nodes:
            node.kill()
