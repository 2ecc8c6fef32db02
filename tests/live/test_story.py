"""Node processes in two terminals, used by the commands of the README."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from signal import SIGTERM
from urllib.request import urlopen

import aiohttp
import pytest

import thyme
from tests.live.nodes import NodeProcess, free_group, running
from thyme.api.remote import NodeUnreachableError, fetch_status
from thyme.cli import main, node_commands

THYME = [sys.executable, "-m", "thyme.cli"]
PHOTO = b"\xff\xd8 a photo " + bytes(range(256)) * 40


def test_one_publishes_and_the_other_hears_of_the_past_and_of_the_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """M13, M15, M19, M21: the example of the README, with LS."""
    photo, copy, group = tmp_path / "photo.jpg", tmp_path / "copy.jpg", free_group()
    photo.write_bytes(PHOTO)
    make = ("--world", "lisbon", "--create", "--wid", "w", "--group", group)
    with (
        running("node", *make, "--data", tmp_path / "a") as one,
        running("node", "--world", "lisbon", "--group", group, "--data", tmp_path / "b") as other,
    ):
        other.wait_for("neighbour_came")
        publish = ("publish", str(photo), "--tags", "goal,eder", "--node", one.url)
        assert main([*publish, "--summary", "79' Éder!"]) == 0
        past = capsys.readouterr().out.strip()

        hear = ["subscribe", "goal & !replay", "--follow", "--json", "--since", "2h"]
        with subprocess.Popen(
            [*THYME, *hear, "--node", other.url],
            stdout=subprocess.PIPE,
            text=True,
        ) as terminal:
            assert terminal.stdout is not None
            first = json.loads(terminal.stdout.readline())
            assert main([*publish, "--tags", "late"]) == 0
            second = json.loads(terminal.stdout.readline())
            assert json.loads(urlopen(f"{other.url}/v1/status").read())["subscriptions_own"] == 1
            terminal.terminate()
            assert terminal.wait() == 128 + SIGTERM
        assert json.loads(urlopen(f"{other.url}/v1/status").read())["subscriptions_own"] == 0
        new = capsys.readouterr().out.strip()

        assert (first["key"], first["past"], first["summary"]) == (past, True, "79' Éder!")
        assert (second["key"], second["past"]) == (new, False)
        assert main(["retrieve", past, "-o", str(copy), "--node", other.url]) == 0
        assert copy.read_bytes() == PHOTO

        assert main(["delete", past, "--node", other.url]) == 2
        assert "only" in capsys.readouterr().err
        assert main(["delete", past, "--node", one.url, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"key": past}
        monkeypatch.setattr(node_commands, "NODE_TIMEOUT_S", 0.1)
        assert main(["retrieve", new, "--node", "http://127.0.0.1:1"]) == 2
        assert "no node answers" in capsys.readouterr().err
        assert main(["status", "--node", one.url]) == 0
        assert "lisbon (ls)" in capsys.readouterr().out
        around = ["--interface", "127.0.0.1", "--group", group, "--seconds", "1.5"]
        assert main(["worlds", *around]) == 0
        assert capsys.readouterr().out == "lisbon  ls  w\n"


def test_a_command_waits_for_a_node_that_is_coming_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both lines of a terminal may be pasted at once."""
    tries = []

    async def ask() -> str:
        tries.append(1)
        if len(tries) < 3:
            async with aiohttp.ClientSession() as session:
                await fetch_status(session, "http://127.0.0.1:1")
        return "here"

    async def ask_another() -> str:
        raise NodeUnreachableError("that is no node")

    assert asyncio.run(node_commands.retry_until_up(ask)) == "here"
    assert capsys.readouterr().err == "thyme: waiting for a node, 10 s at most\n"
    with pytest.raises(NodeUnreachableError, match="that is no node"):
        asyncio.run(node_commands.retry_until_up(ask_another))


def test_a_server_that_is_killed_comes_back_with_what_it_acknowledged(tmp_path: Path) -> None:
    """E5, M24, M27: kill -9 of the server of ES, and of its client."""
    group = free_group()
    serve = (
        "server",
        "--world",
        "lisbon",
        "--wid",
        "w",
        "--group",
        group,
        "--data",
        tmp_path / "s",
    )
    join = ("node", "--world", "lisbon", "--group", group, "--data", tmp_path / "c")
    server = NodeProcess(*serve)
    client = NodeProcess(*join)
    try:
        assert client.ready["server"] == server.ready["node"]

        async def before() -> tuple[str, str, thyme.Key]:
            async with (
                thyme.connect(client.url, world="lisbon") as world,
                thyme.connect(server.url, world="lisbon") as other,
            ):
                subscription = await world.subscribe("goal")
                await subscription.caught_up()
                heard = await other.insert(b"heard", tags=["goal"])
                note = await asyncio.wait_for(anext(subscription), 10)
                assert note.key == heard
                missed = await other.insert(PHOTO, tags=["goal"])
                return subscription.sid, str(world.node_id.hex()), missed

        sid, name, missed = asyncio.run(before())
        for node in (server, client):
            node.kill()
        server, client = NodeProcess(*serve), NodeProcess(*join)
        assert client.ready["node"] == name

        async def after() -> None:
            async with thyme.connect(client.url, world="lisbon") as world:
                subscription = await world.resume(sid)
                note = await asyncio.wait_for(anext(subscription), 20)
                assert note.key == missed
                assert await world.retrieve(note) == PHOTO

        asyncio.run(after())
        assert server.stop() == 0
        assert client.stop() == 0
    finally:
        server.stop()
        client.stop()


def test_b5_a_node_with_the_wrong_secret_is_told_so_in_words(tmp_path: Path) -> None:
    """The node was a member before, so it knows the world; now its user mistypes the secret."""
    secret = tmp_path / "secret"
    secret.write_text("correct horse")
    common = ["--world", "stadium", "--secret-file", secret, "--group", free_group()]
    with running("node", *common, "--create", "--data", tmp_path / "first") as first:
        with running("node", *common, "--data", tmp_path / "second"):
            first.wait_for("neighbour_came")
        secret.write_text("wrong horse")
        with running("node", *common, "--data", tmp_path / "second") as second:
            told = second.wait_for("not_understood")

    assert "is the secret the right one?" in told["why"]
    assert told["level"] == "warning"
