"""Versions of an object over HTTP, from the command line and in Python (B9)."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

import thyme
from tests.daemon.pages import a_node
from tests.live.nodes import free_group, running
from thyme.cli import main


def test_an_object_is_updated_and_listed_over_http() -> None:
    async def story() -> None:
        async with a_node(substrate="ls") as node:
            _, first = await node.ask("POST", "/v1/objects?tags=goal&oid=score", data=b"one")
            updates = f"/v1/objects?tags=goal&updates={first['key']}"
            _, second = await node.ask("POST", updates, data=b"two")
            _, listed = await node.ask("GET", f"/v1/objects/{first['key']}/versions")
            _, latest = await node.ask("GET", f"/v1/objects/{second['key']}/versions?limit=1")
            status, _ = await node.ask("POST", f"{updates}&oid=x", data=b"three")
            stranger, _ = await node.ask("POST", "/v1/objects?tags=a&updates=x@ff", data=b"")
            missing = f"/v1/objects/{first['key'].replace('score', 'none')}/versions"
            absent, _ = await node.ask("GET", missing)

        assert [each["key"] for each in listed] == [second["key"], first["key"]]
        assert [each["key"] for each in latest] == [second["key"]]
        assert (status, stranger, absent) == (400, 403, 404)

    asyncio.run(story())


def test_an_object_is_updated_and_listed_in_python() -> None:
    async def story() -> None:
        async with thyme.join("lisbon") as world:
            first = await world.insert(b"one", tags=["goal"], oid="score")
            second = await world.insert(b"two", tags=["goal"], updates=first)
            third = await world.insert(b"three", tags=["late"], updates=first)

            found = await world.versions(second)
            assert [each.key for each in found] == [third, second, first]
            assert [await world.retrieve(each) for each in found] == [b"three", b"two", b"one"]
            with pytest.raises(thyme.InputError, match="has the object id of the object"):
                await world.insert(b"", tags=["goal"], oid="x", updates=first)
            await world.delete(third)
            assert [each.key for each in await world.versions(first, limit=1)] == [second]

    asyncio.run(story())


def test_b9_an_update_is_the_latest_version_although_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version from the time before was not seen, and became the latest again later."""
    right_ns = time.time_ns

    async def begin() -> list[thyme.Key]:
        async with thyme.join("lisbon", data=tmp_path) as world:
            first = await world.insert(b"", tags=["goal"], oid="score")
            return [first, await world.insert(b"", tags=["goal"], updates=first)]

    async def go_on(made: list[thyme.Key]) -> None:
        async with thyme.join("lisbon", data=tmp_path) as world:
            for _ in range(3):
                made.append(await world.insert(b"", tags=["goal"], updates=made[0]))
                [latest] = await world.versions(made[0], limit=1)
                assert latest.key == made[-1]
            assert [each.key for each in await world.versions(made[0])] == made[::-1]

    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: right_ns() + 60 * 10**9)
        made = asyncio.run(begin())
    asyncio.run(go_on(made))


def test_an_object_is_updated_and_listed_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "score").write_text("1:0")
    make = ("--world", "lisbon", "--create", "--wid", "w", "--group", free_group(), "--memory")
    with running("node", *make) as node:
        publish = ["publish", str(tmp_path / "score"), "--tags", "score", "--node", node.url]
        assert main(publish) == 0
        first = capsys.readouterr().out.strip()
        assert main([*publish, "--updates", first]) == 0
        second = capsys.readouterr().out.strip()
        assert main(["versions", first, "--json", "--node", node.url]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["key"] for line in lines] == [second, first]
