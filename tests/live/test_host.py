"""The host: what it stores, and what it sends before that."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import pytest

from tests.transport.pipe import ALICE, BOB, WORLD
from thyme.live.host import Host
from thyme.live.sockets import NetworkConfig, Sockets
from thyme.model.errors import ClosedError, ThymeError
from thyme.model.ids import NodeId
from thyme.protocol.app_interface import AppEvent
from thyme.protocol.messages.replies import Done
from thyme.protocol.node import Action, Input, PositionChanged
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import MemoryStore, RecordTable, Store
from thyme.transport.datagrams import FragmentAck, decode
from thyme.transport.link import Link
from thyme.transport.link_config import Address, LinkConfig

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


class SlowStore(MemoryStore):
    """A store whose commits take long."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._log = log

    def commit(self) -> None:
        time.sleep(0.002)
        self._log.append("commit")


class WatchedSockets(Sockets):
    """Sockets that are not opened: what is sent goes to the peer."""

    def __init__(self, log: list[str], peer: Link) -> None:
        super().__init__(NetworkConfig())
        self._log = log
        self._peer = peer

    def send(self, datagram: bytes, to: Address | None) -> None:
        if isinstance(decode(datagram).content, FragmentAck):
            self._log.append("ack")
        self._peer.receive_datagram(datagram, ("10.0.0.1", 1), time.time_ns() // 1_000)


def test_m25_a_message_is_acknowledged_to_the_link_before_a_long_commit() -> None:
    """The sender's link would take the duration of the commit for a queue on the network."""
    log: list[str] = []

    async def story() -> None:
        peer = Link(BOB, WORLD, b"87654321", LinkConfig())
        sockets = WatchedSockets(log, peer)
        store = SlowStore(log)
        host = Host(
            FailingNode(store), store, Ear(), Link(ALICE, WORLD, b"12345678", LinkConfig()), sockets
        )

        def deliver() -> None:
            for outgoing in peer.drain_datagrams():
                sockets.on_datagram(outgoing.datagram, ("10.0.0.2", 1))

        peer.tick(host.now_us())
        deliver()
        await asyncio.sleep(0.02)
        deliver()  # the peer's answer to the greeting of the host
        await asyncio.sleep(0.02)
        log.clear()
        peer.send(ALICE, Done(1), host.now_us())
        deliver()
        await asyncio.sleep(0.02)
        host.close()

    asyncio.run(story())
    assert log[:2] == ["ack", "commit"]
