"""The host: what a node could not finish is not stored."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tests.live.pipe import ALICE, WORLD
from thyme.live.host import Host
from thyme.live.link import Link
from thyme.live.sockets import Place, Sockets
from thyme.live.terms import LinkConfig
from thyme.model.errors import EndedError, ThymeError
from thyme.model.ids import NodeId
from thyme.protocol.node import Action, Input, Moved
from thyme.protocol.requests import Told
from thyme.storage.sqlite import SqliteStore
from thyme.storage.store import Shelf, Store

SHELF = Shelf("test", bytes)


class Clumsy:
    """A node that writes something down, and stumbles once it is moved."""

    node_id: NodeId = ALICE

    def __init__(self, store: Store) -> None:
        self._store = store

    def handle(self, event: Input, now_us: int) -> list[Action]:
        self._store.put(SHELF, type(event).__name__, b"x")
        if isinstance(event, Moved):
            raise IndexError("stumbled")
        return []

    def check(self) -> None:
        """Nothing to check."""


class Ear:
    def __init__(self) -> None:
        self.broken: list[ThymeError] = []

    def on_told(self, told: Told) -> None:
        raise AssertionError("nothing is told")

    def on_broken(self, error: ThymeError) -> None:
        self.broken.append(error)


def test_m24_a_mistake_stops_the_node_and_stores_nothing_of_the_input(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, ear = tmp_path / "store", Ear()

    async def story() -> None:
        store, sockets = SqliteStore(path), Sockets(Place(interface="127.0.0.1"))
        await sockets.open()
        link = Link(ALICE, WORLD, b"12345678", LinkConfig())
        host = Host(Clumsy(store), store, link, sockets, ear)
        await asyncio.sleep(0.05)
        host.move((1.0, 1.0))
        await asyncio.sleep(0.05)
        with pytest.raises(EndedError, match="stumbled"):
            host.ask(None)  # type: ignore[arg-type]

    with caplog.at_level(logging.CRITICAL, "thyme"):
        asyncio.run(story())

    assert [type(error) for error in ear.broken] == [EndedError]
    store = SqliteStore(path)
    assert [key for key, _ in store.load(SHELF)] == ["Started"]
    store.close()
