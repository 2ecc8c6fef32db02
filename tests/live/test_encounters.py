"""Two devices meet on a network: `thyme node --substrate mobuser` (U2, U10, C44)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from tests.builders import BOB
from tests.live.nodes import NodeProcess, free_group, running
from thyme.cli import main
from thyme.live import link_renewal
from thyme.live.link_renewal import renew_links
from thyme.model.ids import NodeId

THYME = [sys.executable, "-m", "thyme.cli"]


def test_u10_two_devices_that_meet_exchange_what_they_want(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second device starts near the first, which published before anybody was there."""
    note, copy, group = tmp_path / "note.txt", tmp_path / "copy.txt", free_group()
    note.write_text("good coffee")
    options = ("--world", "café", "--substrate", "mobuser", "--group", group)
    with running("node", *options, "--data", tmp_path / "a", "--position", "3,4") as one:
        assert main(["publish", str(note), "--tags", "coffee", "--node", one.url]) == 0
        key = capsys.readouterr().out.strip()
        with running("node", *options, "--data", tmp_path / "b") as other:
            link_id = other.wait_for("neighbour_came")["node"]
            with subprocess.Popen(
                [*THYME, "subscribe", "coffee", "--follow", "--json", "--node", other.url],
                stdout=subprocess.PIPE,
                text=True,
            ) as terminal:
                assert terminal.stdout is not None
                found = json.loads(terminal.stdout.readline())
                terminal.terminate()
            assert (found["key"], found["tags"]) == (key, ["coffee", "geo:0:3:4"])
            assert main(["retrieve", key, "-o", str(copy), "--node", other.url]) == 0
            assert copy.read_text() == "good coffee"
            check_refused_delete(capsys, key, one)
        assert link_id != one.ready["node"], "the identifier on air is not that of the publisher"


def check_refused_delete(capsys: pytest.CaptureFixture[str], key: str, owner: NodeProcess) -> None:
    assert main(["delete", key, "--node", owner.url]) == 2
    assert "time to live" in capsys.readouterr().err


class FakeLink:
    """A link with given neighbours."""

    def __init__(self) -> None:
        self.neighbours: list[NodeId] = []
        self.has_pending = False


class FakeHost:
    """A host that closes after some renewals."""

    def __init__(self) -> None:
        self.closed = False
        self.links: list[FakeLink] = []

    def replace_link(self, link: FakeLink) -> None:
        self.links.append(link)


async def renewals(monkeypatch: pytest.MonkeyPatch, script: list[list[NodeId]]) -> int:
    """How many links a device uses while its neighbours are those of a script, poll by poll."""
    host, links, polls = FakeHost(), [FakeLink()], iter(script)

    async def poll(_: float) -> None:
        links[-1].neighbours = next(polls, [])
        host.closed = len(host.links) > 9 or links[-1].neighbours == [END]

    def renew() -> tuple[FakeLink, NodeId]:
        links.append(FakeLink())
        return links[-1], NodeId(b"own" + bytes([len(links)]))

    monkeypatch.setattr(link_renewal.asyncio, "sleep", poll)
    first: Any = (links[0], NodeId(b"own\x01"))
    await renew_links(cast("Any", host), first, cast("Any", renew))
    return len(host.links)


END = NodeId(b"end of the script")


@pytest.mark.parametrize(
    ("script", "renewed"),
    [
        ([[], [], [], [END]], 0),
        ([[BOB], [BOB], [BOB], [END]], 0),
        ([[BOB], [], [], [], [END]], 1),
        ([[BOB], [], [BOB], [], [END]], 2),
        ([[BOB], [], [NodeId(b"own\x01")], [], [END]], 1),  # an echo of its own last identifier
    ],
)
def test_u2_after_each_encounter_a_device_has_another_identifier(
    monkeypatch: pytest.MonkeyPatch, script: list[list[NodeId]], renewed: int
) -> None:
    assert asyncio.run(renewals(monkeypatch, script)) == renewed
