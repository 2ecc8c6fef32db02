"""Live worlds: found, made, joined and left, on real sockets."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import thyme
from tests.daemon.pages import a_node, a_place
from tests.live.nodes import free_group
from thyme.api.world import OpenedWorld, World
from thyme.cli import main
from thyme.daemon import server
from thyme.live.discovery import discover_worlds, select_world
from thyme.live.interfaces import resolve_addresses
from thyme.live.node_factory import check_world
from thyme.live.node_options import NodeOptions
from thyme.live.open_node import open_node
from thyme.live.sockets import NetworkError, Sockets, _error_text
from thyme.model.errors import OptionError, StoreError, WorldError
from thyme.model.ids import NodeId
from thyme.model.worlds import Area, WorldInfo

QUICK_S = 0.5


def wanted(group: str, **options: Any) -> NodeOptions:
    return NodeOptions(
        **{"discovery_timeout_s": QUICK_S, **options}, world="lisbon", network=a_place(group)
    )


def test_m21_a_world_is_found_by_its_greetings_with_its_server() -> None:
    """M21, E5: whoever listens hears of the world, its substrate and its server."""

    async def story() -> None:
        group = free_group()
        async with a_node(network=a_place(group), substrate="es") as server:
            sockets = Sockets(a_place(group))
            await sockets.open()
            worlds = (
                await discover_worlds(sockets, 5.0, lambda heard: heard.has_world("w"))
            ).worlds
            sockets.close()
            assert worlds == {"w": server.live.world}
            assert worlds["w"].server == server.host.node_id

            client = await open_node(wanted(group, substrate="es"))
            assert client.world == server.live.world
            assert client.profile.node_id != server.host.node_id
            client.sockets.close()
            with pytest.raises(WorldError, match="uses es, not ls"):
                await open_node(wanted(group, substrate="ls"))
            with pytest.raises(WorldError, match="already"):
                await open_node(wanted(group, create=True))

    asyncio.run(story())


def test_m21_a_world_that_is_not_there_is_not_invented() -> None:
    async def story() -> None:
        with pytest.raises(WorldError, match="use --create"):
            await open_node(wanted(free_group()))

    asyncio.run(story())


def test_m24_who_comes_back_is_who_it_was(tmp_path: Path) -> None:
    async def story() -> None:
        group = free_group()
        one = await open_node(wanted(group, create=True, world_id="w", data=tmp_path))
        with pytest.raises(StoreError, match="in use"):
            await open_node(wanted(group, data=tmp_path))
        one.sockets.close()
        one.store.close()
        again = await open_node(wanted(group, data=tmp_path))
        again.sockets.close()
        again.store.close()
        assert again.profile == one.profile

    asyncio.run(story())


def test_m21_worlds_of_one_name_are_told_apart_by_their_identifiers() -> None:
    one, other = (WorldInfo("lisbon", wid, substrate="ls") for wid in ("w1", "w2"))
    both = {"w1": one, "w2": other}

    assert select_world(both, "w2") == other
    assert select_world({"w1": one}, "lisbon") == one
    assert select_world(both, "porto") is None
    with pytest.raises(WorldError, match="w1 or w2"):
        select_world(both, "lisbon")


def test_b5_a_closed_world_opens_to_its_secret_only(tmp_path: Path) -> None:
    secret = "correct horse"

    async def story() -> None:
        group = free_group()
        async with a_node(network=a_place(group), secret=secret, data=tmp_path) as first:
            assert first.live.world.closed
            with pytest.raises(WorldError, match="needs a secret"):
                await open_node(wanted(group))
            with pytest.raises(WorldError, match="does not open it"):
                await open_node(wanted(group, secret="wrong horse"))
            with pytest.raises(WorldError, match="already"):
                await open_node(wanted(group, create=True))
            live = await open_node(wanted(group, secret=secret, discovery_timeout_s=20.0))

            async def opened() -> OpenedWorld:
                return live.world, live.start

            async with World(opened) as other, thyme.connect(first.url, world="lisbon") as own:
                assert other.info == own.info
                feed = await own.subscribe("goal")
                key = await other.insert(b"a photo", tags=["goal"])
                note = await asyncio.wait_for(anext(feed), 10)
                assert note.key == key
                assert await own.retrieve(note) == b"a photo"
        with pytest.raises(WorldError, match="it needs its secret"):
            await open_node(wanted(group, data=tmp_path))

    asyncio.run(story())


def test_b5_a_node_is_who_holds_its_key(tmp_path: Path) -> None:
    async def story() -> None:
        group = free_group()
        one = await open_node(wanted(group, create=True, world_id="w", data=tmp_path))
        one.sockets.close()
        one.store.close()
        (tmp_path / "node.key").unlink()
        with pytest.raises(StoreError, match="the key file beside the store"):
            await open_node(wanted(group, data=tmp_path))

    asyncio.run(story())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"substrate": "solo", "create": True}, "the substrate must be one of"),
        ({"area": Area(1, 1)}, "--create"),
        ({"secret": "short"}, "at least 8 characters"),
        ({"create": True, "world_id": "w", "substrate": "dcs"}, "an area and a cell size"),
        (
            {"create": True, "world_id": "w", "substrate": "ls", "area": Area(9, 9), "cell_m": 3.0},
            "only a DCS world",
        ),
        (
            {
                "create": True,
                "world_id": "w",
                "area": Area(80, 40),
                "cell_m": 40.0,
                "position": (81.0, 5.0),
            },
            "81,5 is outside this world, which is 80 by 40 m",
        ),
        (
            {"create": True, "world_id": "w", "area": Area(1e9, 1e9), "cell_m": 1.0},
            "at most",
        ),
        (
            {"create": True, "world_id": "w", "substrate": "ls", "position": (1.0, 5.0)},
            "uses ls, where devices have no position: leave it out",
        ),
    ],
)
def test_m25_a_world_that_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    async def story() -> None:
        with pytest.raises((OptionError, WorldError), match=words):
            await open_node(wanted(free_group(), **options))

    asyncio.run(story())


@pytest.mark.parametrize(
    "world",
    [
        WorldInfo("w", "w"),
        WorldInfo("w", "w", substrate="infra"),
        WorldInfo("w", "w", substrate="es"),
        WorldInfo("w", "w", substrate="dcs"),
    ],
)
def test_m25_a_stranger_s_world_that_nobody_can_be_in_is_refused(world: WorldInfo) -> None:
    with pytest.raises(WorldError):
        check_world(world)


def test_where_multicast_does_not_reach_peers_are_named() -> None:
    """M21: two groups, so neither hears the other but by its address."""
    ports = [free_port(), free_port()]
    places = [
        structs.replace(a_place(), port=own, peers=(("127.0.0.1", peer),))
        for own, peer in (ports, ports[::-1])
    ]

    async def story() -> None:
        async with a_node(network=places[0], substrate="es") as server:
            live = await open_node(NodeOptions(world="lisbon", network=places[1]))
            assert live.world == server.live.world

            async def opened() -> OpenedWorld:
                return live.world, live.start

            async with World(opened) as world:
                key = await world.insert(b"a photo", tags=["goal"])
                assert [note.key for note in await world.search("goal")] == [key]

    asyncio.run(story())


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_application_may_run_its_node_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """M22: `thyme.join_network`, in two worlds that are one."""
    place = a_place()
    monkeypatch.setattr("thyme.live.sockets.NetworkConfig", lambda interfaces: place)
    monkeypatch.setattr("thyme.live.open_node.LISTEN_S", 0.2)

    async def story() -> None:
        async with (
            thyme.join_network("lisbon", substrate="ls", create=True, interface="lo") as one,
            thyme.join_network("lisbon", interface="127.0.0.1") as other,
        ):
            assert one.info == other.info
            feed = await other.subscribe("goal")
            key = await one.insert(b"a photo", tags=["goal"])
            note = await asyncio.wait_for(anext(feed), 10)
            assert note.key == key
            assert await other.retrieve(note) == b"a photo"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (thyme.join, {"substrate": "ls"}),
        (thyme.join, {"create": True}),
        (thyme.join, {"node": "http://127.0.0.1:1"}),
        (thyme.join_network, {"limits": thyme.Limits()}),
        (thyme.connect, {"data": "x"}),
    ],
)
def test_m30_each_function_has_only_the_options_that_it_uses(
    function: Callable[..., thyme.World], options: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        function("http://127.0.0.1:1", **options)


@pytest.mark.parametrize(
    ("substrate", "words"),
    [("moon", "one of dcs, ls, es, infra, mobuser, auto, not 'moon'"), ("solo", "use thyme.join$")],
)
def test_a_substrate_without_a_network_is_refused(substrate: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        thyme.join_network("lisbon", substrate=substrate)


def test_a_name_is_not_an_address() -> None:
    with pytest.raises(OptionError, match=r"use thyme\.join or thyme\.join_network"):
        thyme.connect("lisbon")


# The network


COMMAND = ["node", "--world", "x", "--create", "--wid", "w", "--memory"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--interface", "203.0.113.7"], "no interface here has the address 203.0.113.7"),
        (["--interface", "nosuch0"], "no interface is called 'nosuch0'"),
        (["--interface", "127.0.0.1", "--http", "0.0.0.0:0"], "on loopback only"),
        (["--interface", "127.0.0.1", "--http", "8473"], "--http is an address and a port"),
        (["--interface", "127.0.0.1", "--port", "70000"], "a port is a number"),
        (["--interface", "127.0.0.1", "--position", "here"], "two numbers"),
        (["--interface", "127.0.0.1", "--peer", "there:1"], "--peer takes an IP address"),
    ],
)
def test_a_network_that_cannot_be_used_gets_clear_words(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMAND, *options]) == 2
    assert words in capsys.readouterr().err


def test_a_port_in_use_gets_clear_words(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        udp.bind(("127.0.0.1", 0))
        here = ["--interface", "127.0.0.1"]
        http = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main([*COMMAND, *here, "--http", http]) == 2
        assert "is in use on 127.0.0.1: choose another" in capsys.readouterr().err
        port = str(udp.getsockname()[1])
        assert main([*COMMAND, *here, "--http", "127.0.0.1:0", "--port", port]) == 2
        assert f"port {port} is in use" in capsys.readouterr().err


def test_no_permission_and_no_multicast_get_clear_words() -> None:
    for number, words in ((errno.EACCES, "no permission for port 80"), (errno.ENODEV, "multicast")):
        assert words in _error_text(OSError(number, "?"), "127.0.0.1", 80)
    http = server._error_text(OSError(errno.EACCES, "?"), "127.0.0.1", 80)
    assert http == "no permission for port 80: choose one above 1023"


def test_an_interface_is_found_by_its_name() -> None:
    assert resolve_addresses("lo") == ("127.0.0.1",)
    assert resolve_addresses(None)
    with pytest.raises(NetworkError):
        resolve_addresses([""])


def test_a_server_s_name_must_be_one() -> None:
    """M25."""
    with pytest.raises(thyme.InputError):
        WorldInfo("lisbon", "w", substrate="es", server=NodeId(b""))
