"""The host: an input that a node could not finish is not stored."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tests.transport.pipe import ALICE, WORLD
from thyme.live.host import Host
from thyme.live.sockets import NetworkConfig, Sockets
from thyme.model.errors import ClosedError, ThymeError
from thyme.model.ids import NodeId
from thyme.protocol.app_interface import AppEvent
from thyme.protocol.node import Action, Input, PositionChanged
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import RecordTable, Store
from thyme.transport.link import Link
from thyme.transport.link_config import LinkConfig

TABLE = RecordTable("test", bytes)


class FailingNode:
    """A node that writes to its store, and raises when its position changes."""

    node_id: NodeId = ALICE

    def __init__(self, store: Store) -> None:
        self._store = store

    def handle(self, event: Input, now_us: int) -> list[Action]:
        self._store.put(TABLE, type(event).__name__, b"x")
        if isinstance(event, PositionChanged):
            raise IndexError("stumbled")
        return []

    def check(self) -> None:
        """Nothing to check."""


class Ear:
    def __init__(self) -> None:
        self.broken: list[ThymeError] = []

    def on_event(self, told: AppEvent) -> None:
        raise AssertionError("nothing is told")

    def on_node_failed(self, error: ThymeError) -> None:
        self.broken.append(error)


def test_m24_a_mistake_stops_the_node_and_stores_nothing_of_the_input(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, ear = tmp_path / "store", Ear()

    async def story() -> None:
        store, sockets = SqliteStore(path), Sockets(NetworkConfig())
        await sockets.open()
        link = Link(ALICE, WORLD, b"12345678", LinkConfig())
        host = Host(FailingNode(store), store, ear, link, sockets)
        await asyncio.sleep(0.05)
        host.move_to((1.0, 1.0))
        await asyncio.sleep(0.05)
        with pytest.raises(ClosedError, match="stumbled"):
            host.send_request(None)  # type: ignore[arg-type]

    with caplog.at_level(logging.CRITICAL, "thyme"):
        asyncio.run(story())

    assert [type(error) for error in ear.broken] == [ClosedError]
    store = SqliteStore(path)
    assert [key for key, _ in store.load(TABLE)] == ["Started"]
    store.close()
