"""M34, M36 with real nodes: one sleeps while others publish, or its clock is corrected."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest

import thyme
from tests.live.nodes import NodeProcess, free_group, running
from thyme.live import host
from thyme.live.clocks.clock import Clock
from thyme.live.node_options import NodeOptions
from thyme.live.open_node import open_node
from thyme.live.sockets import NetworkConfig
from thyme.model.errors import OperationTimeoutError, ThymeError
from thyme.model.worlds import Area

SUBSTRATES = ("es", "ls", "dcs")
SOON_S = 60.0
AREA = ("--area", "80x40", "--cell", "40", "--position", "20,20")


def start_nodes(stack: ExitStack, substrate: str, directory: Path) -> list[NodeProcess]:
    """Starts a publisher and a subscriber; in ES the publisher is the server."""
    world = ("--world", "lisbon", "--group", free_group())
    if substrate == "es":
        words = ("server", *world)
    else:
        words = ("node", *world, "--create", "--substrate", substrate)
        words += AREA if substrate == "dcs" else ()
    command, *options = words
    return [
        stack.enter_context(running(command, *options, "--data", directory / "a")),
        stack.enter_context(running("node", *world, "--data", directory / "b")),
    ]


async def take(subscription: thyme.Subscription, count: int) -> list[str]:
    """The next names; each comes soon after the one before."""
    names: list[str] = []
    while len(names) < count:
        try:
            async with asyncio.timeout(SOON_S):
                names.append(str((await anext(subscription)).key.oid))
        except TimeoutError:
            pytest.fail(f"{len(names)} of {count} came: {names[-3:]}, {subscription}")
    return names


@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_m34_a_process_that_was_stopped_gets_everything_once_and_in_order(
    substrate: str, tmp_path: Path
) -> None:
    """More objects than a broker sends without acknowledgements are published meanwhile."""

    async def story(publisher: NodeProcess, subscriber: NodeProcess) -> None:
        async with thyme.connect(publisher.url) as one, thyme.connect(subscriber.url) as other:
            # In LS an object may be published before the subscription reaches its owner: it is then
            # a stored match, of which the first batch is sent.
            subscription = await other.subscribe("goal")
            await one.insert(b"", tags=["goal"], oid="first")
            assert await take(subscription, 1) == ["first"]
            os.kill(subscriber.pid, signal.SIGSTOP)
            names = [f"photo-{number:04}" for number in range(700)]
            for name in names:
                await one.insert(b"", tags=["goal"], oid=name)
            os.kill(subscriber.pid, signal.SIGCONT)
            assert sorted(await take(subscription, len(names))) == names
            await one.insert(b"", tags=["goal"], oid="last")
            assert await take(subscription, 1) == ["last"]
            assert (subscription.dropped, subscription.lost) == (0, 0)

    with ExitStack() as stack:
        publisher, subscriber = start_nodes(stack, substrate, tmp_path)
        subscriber.wait_for("neighbour_came")
        asyncio.run(story(publisher, subscriber))


@pytest.mark.parametrize("ahead_s", [600, -600])
@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_m36_a_node_whose_clock_is_corrected_works_again_without_a_restart(
    substrate: str, ahead_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publisher starts with a wrong clock, in both directions; subscriptions stay."""

    class WrongClock(Clock):
        """A clock that was read before the correction."""

        def __init__(self) -> None:
            super().__init__()
            self._origin_us += ahead_s * 1_000_000

    async def story() -> None:
        group, _, port = free_group().partition(":")
        network = NetworkConfig(group=group, group_port=int(port))
        area = Area(80.0, 40.0) if substrate == "dcs" else None
        options = NodeOptions(
            world="lisbon",
            create=True,
            substrate=substrate,
            area=area,
            cell_m=40.0 if area else None,
            network=network,
        )
        async with AsyncExitStack() as stack:
            one = await enter(stack, options)
            monkeypatch.setattr(host, "Clock", WrongClock)
            other = await enter(stack, NodeOptions(world="lisbon", network=network))
            monkeypatch.setattr(host, "Clock", Clock)
            heard = await subscribe(other)
            keys = await stories_until_both_work(one, other)
            assert sorted(await take(heard, len(keys))) == sorted(keys)
            assert abs(other.now_us() - one.now_us()) < 5_000_000

    async def enter(stack: AsyncExitStack, options: NodeOptions) -> thyme.World:
        async def opened() -> object:
            live = await open_node(options)
            return live.world, live.start

        return await stack.enter_async_context(thyme.World(opened))  # type: ignore[arg-type]

    asyncio.run(story())


async def subscribe(world: thyme.World) -> thyme.Subscription:
    """Subscribes; a request under way while the clock is corrected fails."""
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                return await world.subscribe("goal")
            except OperationTimeoutError:
                await asyncio.sleep(0.2)


async def stories_until_both_work(*worlds: thyme.World) -> list[str]:
    """Inserts at each node until it succeeds; returns the names of the objects."""
    names = []
    for number, world in enumerate(worlds):
        async with asyncio.timeout(SOON_S):
            for attempt in range(1_000):
                name = f"photo-{number}-{attempt}"
                try:
                    await world.insert(b"", tags=["goal"], oid=name)
                except ThymeError:
                    await asyncio.sleep(0.2)
                else:
                    names.append(name)
                    break
    return names
