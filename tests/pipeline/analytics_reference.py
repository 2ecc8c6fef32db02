"""The measures of event files by a plain loop, without Spark: what the stream must equal (P9)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = tuple[Any, ...]


def measure_files(folder: Path, window_us: int) -> list[Row]:
    """The measures of all events in a folder, each event once, sorted."""
    values: dict[Row, list[int | None]] = defaultdict(list)
    seen: set[tuple[str, int]] = set()
    for path in sorted(folder.rglob("*.jsonl")):
        written_us = path.stat().st_mtime_ns // 1_000
        for line in path.read_text().splitlines():
            event = valid_event(line)
            if event is not None and (event["writer"], event["seq"]) not in seen:
                seen.add((event["writer"], event["seq"]))
                for key, value in rows_of_event(event, written_us, window_us):
                    values[key].append(value)
    return sorted((*key, *_sum(found)) for key, found in values.items())


def valid_event(line: str) -> dict[str, Any] | None:
    """The event in a line; None if it is not one of version 1."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and event.get("v") == 1 else None


def rows_of_event(
    event: dict[str, Any], written_us: int, window_us: int
) -> Iterator[tuple[Row, int | None]]:
    """The measures that an event adds to, each with its value."""
    at_us, kind, node = event["at_us"], event["kind"], event["node"]
    code = event.get("code", "-")

    def row(measure: str, name: str, detail: str, length_us: int = window_us) -> Row:
        return measure, at_us // length_us * length_us, event["world"], name, detail

    yield row("event", node, kind), None
    used = kind if kind == "notification" else None
    if kind == "operation":
        yield row("operation", event["op"], code), event.get("took_us")
        if code == "ok":
            yield row("latency", event["op"], bucket(event["took_us"])), event["took_us"]
            used = event["op"] if event["op"] in ("insert", "retrieve") else None
    if kind == "notification" and not event.get("past"):
        took_us = at_us - event["published_us"]
        yield row("latency", kind, bucket(took_us)), took_us
        yield row("clock", event.get("key", "-").split("@")[-1], node, 3_600_000_000), took_us
    if kind == "cache":
        yield row("cache", event["cache"], code), None
    if kind == "neighbour":
        yield row("neighbour", node, code), None
    if kind == "load":
        cell = str(event.get("cell", "-"))
        for unit, names in {
            "messages": ("sent", "received"),
            "bytes": ("sent_bytes", "received_bytes"),
        }.items():
            yield row("load", cell, unit), sum(event.get(name, 0) for name in names)
        if "neighbours" in event:
            yield row("load", cell, "neighbours"), event["neighbours"]
    if used is not None:
        for tag in event.get("tags", ()):
            yield row("tag", tag, used), None
    if at_us - written_us >= 1_000_000:
        yield row("ahead", node, "-"), at_us - written_us


def bucket(value: int) -> str:
    """The logarithmic bucket of a latency: sixteen for each power of two."""
    if value < 0:
        return "negative"
    shift = 0
    while value >> shift >= 32:
        shift += 1
    return str(16 * shift + (value >> shift))


def _sum(values: list[int | None]) -> tuple[int, int, int | None, int | None]:
    known = [value for value in values if value is not None]
    return len(values), sum(known), min(known, default=None), max(known, default=None)
