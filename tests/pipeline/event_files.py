"""Event files for the tests of the analytics, and a follower in a process of its own.

    python -m tests.pipeline.event_files EVENTS OUT MASTER

follows EVENTS, one segment per batch, until it is killed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thyme.events.event import EVENT_VERSION, Event, encode_event
from thyme.pipeline.analytics import follow
from thyme.pipeline.analytics.follow import FollowConfig, Follower
from thyme.pipeline.analytics.measures import MEASURES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND_US = 1_000_000
WINDOW_US = 10 * SECOND_US
CONFIG = FollowConfig(window_us=WINDOW_US)
ALICE, BOB = "aa", "bb"


def event(seq: int, at_us: int, kind: str = "operation", writer: str = "w", **fields: Any) -> Event:
    """An event; by default an insert of bob's."""
    if kind == "operation":
        op = {"op": "insert", "code": "ok", "took_us": 2_000, "key": f"o{seq}@{BOB}"}
        fields = op | {"tags": ("goal",)} | fields
    node = fields.pop("node", BOB)
    return Event(
        v=EVENT_VERSION, writer=writer, seq=seq, at_us=at_us, node=node, world="lisbon",
        kind=kind, **fields,
    )  # fmt: skip


def notification(seq: int, at_us: int, published_us: int, **fields: Any) -> Event:
    """A notification that alice receives of an object of bob's."""
    given = {"node": ALICE, "sid": "s1", "tags": ("goal",), "past": False, "writer": "a"}
    return event(seq, at_us, "notification", published_us=published_us, **(given | fields))


def some_events(writer: str, first: int, last: int) -> list[Event]:
    """A mixture of events, three per second."""
    events = []
    for seq in range(first, last + 1):
        at_us = seq * SECOND_US // 3
        match seq % 5:
            case 0:
                found = event(seq, at_us, writer=writer, tags=("goal", f"t{seq % 7}"))
            case 1:
                found = notification(seq, at_us + seq * 37, at_us, writer=writer, key=f"o@{BOB}")
            case 2:
                found = event(seq, at_us, writer=writer, op="retrieve", took_us=seq * 11)
            case 3:
                found = event(seq, at_us, "load", writer, cell=seq % 3, sent=seq, received=1)
            case _:
                found = event(seq, at_us, "cache", writer, cache="node", code="hit", key="o@bb")
        events.append(found)
    return events


def write_segment(folder: Path, name: str, events: Iterable[Event], tail: bytes = b"") -> Path:
    """Writes a segment; `tail` follows the events as it is."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.jsonl"
    hidden = folder / f".{name}"
    hidden.write_bytes(b"".join(encode_event(each) + b"\n" for each in events) + tail)
    hidden.rename(path)
    return path


def rows_of(measures: DataFrame) -> list[tuple[Any, ...]]:
    """Measures as sorted tuples, as `analytics_reference.measure_files` gives them."""
    return sorted(tuple(row) for row in measures.select(MEASURES.names).collect())


def follow_once(spark: SparkSession, events: str, out: str) -> None:
    """Follows what is there, with small batches."""
    follow.BATCH_BYTES_MAX = 1
    Follower(spark, events, out, CONFIG).run_once()


def main(events: str, out: str, master: str) -> None:
    """Follows until it is killed, with small batches."""
    from tests.pipeline.sweeping import started

    follow.BATCH_BYTES_MAX = 1
    follower = Follower(
        started(master), events, out, CONFIG, lambda commit: print(commit.name, flush=True)
    )
    follower.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:4])
