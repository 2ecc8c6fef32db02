"""Settings of live worlds, from the command line and from programs."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import thyme
from tests.daemon.pages import BRISK, Pages, a_node, a_place
from tests.live.nodes import free_group
from thyme.cli import _parser, main
from thyme.cli.node import node_options
from thyme.cli.option_values import parse_retention
from thyme.daemon.status.collect_status import world_warning
from thyme.live.node_factory import dcs_config, es_config, unwrap_node
from thyme.live.node_options import NodeOptions
from thyme.live.open_node import LiveNode, open_node
from thyme.model.errors import (
    ClosedError,
    NotFoundError,
    OptionError,
    RejectedError,
    WorldError,
)
from thyme.model.worlds import Area, WorldInfo, named_world_id
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.dcs.config import ROBUST, DcsConfig, KeyChoice
from thyme.substrates.dcs.node import DcsNode


def given(*words: str, group: str | None = None) -> NodeOptions:
    """The options of a node with these words on the command line."""
    args = _parser().parse_args([*words, "--world", "lisbon", "--memory"])
    return replace(node_options(args), network=a_place(group), link=BRISK)


async def opened(*words: str) -> LiveNode:
    """A node with these words on the command line, which is not started."""
    live = await open_node(given(*words))
    live.close()
    return live


async def status_of(node: Pages) -> dict[str, Any]:
    """The status of a node."""
    _, status = await node.ask("GET", "/v1/status")
    return dict(status)


def test_m21_a_world_has_the_life_span_of_the_command_line() -> None:
    """M21: the end is part of the world; whoever joins learns it."""
    now_us = time.time_ns() // 1_000

    async def story() -> None:
        live = await opened("node", "--create", "--wid", "w", "--ends", "2h")
        assert live.world.ends_us is not None
        assert abs(live.world.ends_us - now_us - 2 * 3600 * 10**6) < 600 * 10**6
        server = await opened("server", "--wid", "w", "--ends", "2100-01-01T00:00Z")
        assert server.world.ends_us == 4_102_444_800_000_000

    asyncio.run(story())
    with pytest.raises(OptionError, match="in the future"):
        given("node", "--create", "--ends", "2016-07-10T21:00Z")
    with pytest.raises(OptionError, match="in the future"):
        given("node", "--create", "--ends", "0s")
    with pytest.raises(OptionError, match="use --create"):
        asyncio.run(opened("node", "--ends", "2h"))


def test_m21_operations_fail_and_subscriptions_end_with_the_world() -> None:
    async def story() -> None:
        ends_us = time.time_ns() // 1_000 + 1_500_000
        async with a_node(ends_us=ends_us) as node, thyme.connect(node.url) as world:
            assert world.info.ends_us == ends_us
            feed = await world.subscribe("goal")
            assert [note async for note in feed] == []
            with pytest.raises(ClosedError, match="life span"):
                await world.insert(b"late", tags=["goal"])

    asyncio.run(story())


def test_m21_an_infra_world_has_the_number_of_cells_of_the_command_line() -> None:
    async def story() -> None:
        live = await opened("node", "--substrate", "infra", "--cells", "7")
        node = unwrap_node(live.node)
        assert isinstance(node, DcsNode)
        assert live.world.cells == 7
        assert {node.routing.cell_of_key(str(number)) for number in range(200)} == set(range(7))
        with pytest.raises(OptionError, match="only infra worlds"):
            await opened("node", "--create", "--wid", "w", "--cells", "7")
        with pytest.raises(WorldError, match="1 to 65535 cells, not 70000"):
            await opened("node", "--substrate", "infra", "--cells", "70000")

    asyncio.run(story())


def test_m21_a_device_that_was_started_differently_is_noticed() -> None:
    """Where the name makes the world, nobody can tell the others its settings."""
    own = WorldInfo("hall", named_world_id("infra", "hall"), cells=4, substrate="infra")

    assert world_warning(own, None) is None
    assert world_warning(own, replace(own, cells=None)) is None  # a station
    assert "--cells" in (world_warning(own, replace(own, cells=6)) or "")
    assert "--ends" in (world_warning(own, replace(own, ends_us=9)) or "")


def test_m21_programs_and_terminals_list_live_worlds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = free_group()
    place = a_place(group)
    monkeypatch.setattr("thyme.live.sockets.NetworkConfig", lambda interfaces: place)
    settings: dict[str, Any] = {"network": place, "area": Area(80, 40)}

    async def story() -> list[thyme.WorldInfo]:
        async with (
            a_node(**settings, cell_m=40.0, ends_us=4_102_444_800_000_000) as one,
            a_node(network=place, world="porto", world_id="p", secret="correct horse"),
        ):
            found = await thyme.live_worlds(1.0, interface="lo")
            assert found[0] == one.live.world
            around = ["--interface", "127.0.0.1", "--group", group, "--seconds", "1"]
            monkeypatch.undo()
            assert await asyncio.to_thread(main, ["worlds", *around]) == 0
            return found

    found = asyncio.run(story())

    assert [(world.name, world.closed) for world in found] == [("lisbon", False), ("porto", True)]
    assert capsys.readouterr().out == (
        "lisbon  dcs  w  80x40 m, cells of 40 m  ends 2100-01-01T00:00:00Z\nporto  closed  p\n"
    )


def cells_of(substrate: str) -> dict[str, Any]:
    """The options of a new world with a substrate."""
    cells = {"area": Area(40, 40), "cell_m": 40.0} if substrate == "dcs" else {}
    return {"substrate": substrate, **cells}


@pytest.mark.parametrize("substrate", ["es", "ls", "dcs"])
def test_m29_a_live_node_keeps_within_its_limit_of_bytes(substrate: str) -> None:
    """M29: the oldest objects make room, and evictions are counted."""
    options = cells_of(substrate) | {"retention": parse_retention("bytes=1K")}

    async def story() -> None:
        async with a_node(**options) as node, thyme.connect(node.url) as world:
            for size in (400, 500):
                await world.insert(bytes(size), tags=["goal"])
            with pytest.raises(RejectedError, match="never fits"):
                await world.insert(bytes(1_025), tags=["goal"])
            if substrate == "dcs":  # the own objects stay; those of others would make room
                with pytest.raises(RejectedError, match="no space"):
                    await world.insert(bytes(600), tags=["goal"])
                return
            await world.insert(bytes(600), tags=["goal"])
            stored = (await status_of(node))["storage"]
            assert (stored["objects"], stored["removed"]) == (1, {"evicted": 2})
            _, metrics = await node.ask("GET", "/metrics")
            assert b'thyme_removed_total{cause="evicted"} 2' in metrics

    asyncio.run(story())


@pytest.mark.parametrize("substrate", ["ls", "dcs"])
def test_m29_a_live_node_removes_objects_of_its_age_limit_by_a_timer(substrate: str) -> None:
    options = cells_of(substrate) | {"retention": parse_retention("age=0.5s")}

    async def story() -> None:
        async with a_node(**options) as node, thyme.connect(node.url) as world:
            feed = await world.subscribe("goal")
            await world.insert(b"photo", tags=["goal"])
            first = await anext(feed)
            stored = (await status_of(node))["storage"]
            while stored["objects"]:
                await asyncio.sleep(0.05)
                stored = (await status_of(node))["storage"]
            assert stored["removed"] == {"expired": 1}
            with pytest.raises(NotFoundError):
                await world.retrieve(first)

    asyncio.run(story())


def test_m29_the_limits_are_read_from_the_command_line() -> None:
    options = given("node", "--create", "--retention", "age=7d,bytes=10G,objects=5")

    assert options.retention == Retention(
        age_us_max=7 * 24 * 3600 * 10**6, bytes_max=10 * 2**30, objects_max=5
    )
    for wrong in ("age=7", "bytes=0", "7d", "age=", "size=3"):
        with pytest.raises(OptionError, match="--retention takes age"):
            given("node", "--create", "--retention", wrong)
    with pytest.raises(OptionError, match="no --retention"):
        asyncio.run(opened("node", "--substrate", "mobuser", "--retention", "age=7d"))


def test_m29_a_node_that_restarts_with_lower_limits_evicts(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_node(data=tmp_path) as node, thyme.connect(node.url) as world:
            for number in range(5):
                await world.insert(b"x", tags=["goal"], oid=f"photo-{number}")
        lower = Retention(objects_max=2)
        async with a_node(data=tmp_path, retention=lower) as node:
            assert (await status_of(node))["storage"] | {"file_bytes": 0} == {
                "objects": 2, "metadata": 2, "durable": True, "file_bytes": 0, "full": False,
                "removed": {"evicted": 3},
            }  # fmt: skip

    asyncio.run(story())


def test_m21_d14_d16_a_live_world_chooses_its_profile_keys_and_replication() -> None:
    """Who joins learns them from the hellos, and runs the same protocol."""

    def config_of(live: LiveNode) -> DcsConfig:
        return dcs_config(live.world)

    async def story() -> None:
        area = ("--create", "--wid", "w", "--area", "80x40")
        usual = await opened("node", *area)
        assert usual.world.settings is None
        assert config_of(usual).key_choice is KeyChoice.RAREST
        made = await opened(
            "node", *area, "--profile", "paper", "--keys", "nearest", "--replicas", "2"
        )
        config = config_of(made)
        assert (config.reannounce, config.key_choice) == (False, KeyChoice.NEAREST)
        assert (config.replication.active_max, config.replication.crowded_nodes_min) == (2, 1)
        assert config_of(await opened("node", *area, "--replicas", "all")).replication == replace(
            ROBUST.replication, active_max=None, crowded_nodes_min=1
        )
        assert es_config((await opened("server", "--wid", "w", "--profile", "paper")).world) != (
            es_config((await opened("server", "--wid", "w")).world)
        )
        place = a_place()
        async with a_node(network=place, settings=made.world.settings, **cells_of("dcs")) as node:
            joined = await open_node(NodeOptions(world="lisbon", network=place, link=BRISK))
            joined.close()
            assert joined.world == node.live.world
            async with thyme.connect(node.url) as world:
                assert world.info.settings == made.world.settings
            assert (await status_of(node))["world"]["profile"] == "paper"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--create", "--profile", "best"), "robust or paper"),
        (("--create", "--keys", "rarest"), "only a DCS world"),
        (("--create", "--area", "80x40", "--keys", "best"), "random, rarest, nearest, first"),
        (("--create", "--area", "80x40", "--replicas", "0"), "replicas must be"),
        (("--create", "--area", "80x40", "--replicas", "many"), "replicas must be"),
        (("--replicas", "3"), "use --create"),
        (("--create", "--substrate", "infra", "--profile", "paper"), "has no profile"),
    ],
)
def test_m25_settings_that_a_world_cannot_have_are_refused(
    words: tuple[str, ...], reason: str
) -> None:
    wid = () if "infra" in words or "--create" not in words else ("--wid", "w")
    with pytest.raises((OptionError, WorldError), match=reason):
        asyncio.run(opened("node", *words, *wid))
