"""A full disk: inserts are refused, everything else goes on, nothing is lost (M24, M25)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from tests.builders import BOB, conjunctions, key, photo, subscribe
from thyme.model.errors import DiskFullError
from thyme.model.time_frames import ALWAYS
from thyme.protocol.messages import common as wire
from thyme.protocol.node import Send
from thyme.protocol.outbox import Outbox
from thyme.protocol.reliable_send import ReliableSender
from thyme.protocol.request_tracker import RequestTracker
from thyme.protocol.retry import RetryPolicy
from thyme.storage.sqlite.disk_reserve import RESERVE_BYTES, DiskReserve
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import MemoryStore
from thyme.substrates.chunks.exchange import ChunkExchange
from thyme.substrates.common.broker import Broker, BrokerConfig
from thyme.substrates.common.broker_service import BrokerService
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.common.notification_sender import NotificationSender
from thyme.substrates.dcs.state.replica_store import ReplicaRole, ReplicaStore, StoredReplica

MIB = 2**20


class SmallStore(MemoryStore):
    """A store on a disk with a settable amount of free space."""

    space_bytes = 10

    def has_space(self, size_bytes: int) -> bool:
        return size_bytes <= self.space_bytes


def replies(service: BrokerService, outbox: Outbox, *requests: wire.BrokerRequest) -> list[object]:
    for request in requests:
        service.handle_request(BOB, request, 0)
    sent = [action.message for action in outbox.drain_actions() if isinstance(action, Send)]
    return [message for message in sent if not isinstance(message, wire.Notify)]


def test_m25_a_broker_with_a_full_disk_refuses_objects_and_goes_on() -> None:
    store, outbox = SmallStore(), Outbox()
    broker = Broker(store, BrokerConfig(), 0)
    letters = ReliableSender(outbox, RetryPolicy(), Random(1))
    chunks = ChunkExchange(
        BOB,
        store,
        outbox,
        RequestTracker(outbox, RetryPolicy(), Random(1)),
        lambda key: key.owner,
        BrokerConfig().limits,
    )
    sender = NotificationSender(BOB, broker, store, outbox, letters)
    service = BrokerService(broker, outbox, sender, chunks.cache, chunks.fetcher)
    small, large = photo(1, data=b"0123456789"), photo(2, data=b"0123456789a")

    told = replies(
        service,
        outbox,
        wire.InsertObject(1, small, b"0123456789"),
        wire.InsertObject(2, large, b"0123456789a"),
        wire.StartSubscription(3, subscribe(by=BOB), 9),
        wire.FetchObject(4, small.key),
        wire.DeleteObject(5, small.key),
    )
    store.space_bytes = 11
    told += replies(service, outbox, wire.InsertObject(6, large, b"0123456789a"))

    words = f"the disk is full here: no room for {large.key}"
    assert told == [
        wire.Done(1),
        wire.Refused(2, "store_full", words),
        wire.Page(3, 1, (small,), False),
        wire.ObjectData(4, small.key, b"0123456789"),
        wire.Done(5),
        wire.Done(6),
    ]


def test_m25_an_object_that_was_refused_leaves_no_trace() -> None:
    store = SmallStore()
    broker = Broker(store, BrokerConfig(), 0)
    with pytest.raises(DiskFullError):
        broker.insert(photo(data=b"0123456789a"), BOB, b"0123456789a", 0)

    assert len(broker.catalogue) == 0
    assert broker.catalogue.state(key()) == "unknown"
    assert broker.read_page(conjunctions("goal"), ALWAYS, 9, None, 0).total == 0


def test_m25_a_replica_for_which_there_is_no_room_is_refused() -> None:
    replicas = ReplicaStore(SmallStore(), Retention())

    with pytest.raises(DiskFullError):
        replicas.add_replica(StoredReplica(photo(data=b"x" * 11), ReplicaRole.ACTIVE), b"x" * 11, 0)

    assert len(replicas) == 0


def a_disk_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int, reserve_bytes: int
) -> DiskReserve:
    disk = SimpleNamespace(f_bavail=free_bytes // 4_096, f_frsize=4_096)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    return DiskReserve(tmp_path, reserve_bytes)


@pytest.mark.parametrize(
    ("size", "freed", "has"),
    [
        (1 * MIB, 0, True),
        (4 * MIB, 0, False),  # twice that, in the log and in the file, and the reserve is less
        (4 * MIB, 5 * MIB, True),  # after a delete, only the log has to grow
        (13 * MIB, 99 * MIB, False),  # and the log must not fill the disk either
    ],
)
def test_m25_objects_leave_a_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, freed: int, has: bool
) -> None:
    space = a_disk_space(tmp_path, monkeypatch, 20 * MIB, 16 * MIB)

    assert space.fits(size, lambda: freed) is has


@pytest.mark.parametrize("size", [100_000, 1_000_000, 3_000_000])
def test_m25_a_delete_makes_room_for_an_object_of_that_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Its pages are free then; its ends shared pages with other records."""
    store = SqliteStore(tmp_path / "node.thyme")
    try:
        for name in ("one", "two"):
            store.put_data(name, bytes(size))
        store.commit()
        disk = SimpleNamespace(f_bavail=RESERVE_BYTES // 4_096, f_frsize=4_096)
        monkeypatch.setattr(os, "statvfs", lambda _: disk)
        assert not store.has_space(size)
        store.remove_data("one")
        store.commit()

        assert store.has_space(size)
        assert not store.has_space(2 * size)
    finally:
        store.close()


def test_m25_what_shares_a_commit_shares_the_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = a_disk_space(tmp_path, monkeypatch, 20 * MIB, 16 * MIB)
    space.add_pending(MIB)

    assert not space.fits(MIB, lambda: 0)
    space.clear_pending()
    assert space.fits(MIB, lambda: 0)


def test_m25_a_live_node_on_a_full_disk_goes_on_and_takes_more_once_there_is_space(
    tmp_path: Path,
) -> None:
    """A real file system of 96 MiB."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a file system of its own needs root and unshare")
    mount = f"mount -t tmpfs -o size=96m tmpfs '{tmp_path}'"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    program = Path(__file__).with_name("full_disk.py")
    run = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            f"{mount} && exec '{sys.executable}' '{program}' '{tmp_path}'",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    told = json.loads(run.stdout)

    assert "the disk is full" in told["words"]
    assert told["first"] >= 8
    assert told["after deletes"] >= 3
    assert told["after others made room"] >= 16
    assert [told[name] for name in ("readable", "past", "intact", "sound")] == [True] * 4
