"""A page that opens gets the network as it is, then what happens, or the number of lost events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from thyme.map import hub as hub_module
from thyme.map.hub import MapAbout, MapHub
from thyme.map.recording import (
    AppRequestEvent,
    MoveEvent,
    NeighbourEvent,
    NodeEvent,
    PowerEvent,
    Recording,
    ReplicaEvent,
)

START_US = 1_000_000


def a_hub() -> MapHub:
    hub = MapHub(MapAbout(title="a park", range_m=50.0, area=(80.0, 40.0), grid=(2, 1, 40.0)))
    hub.publish(NodeEvent(0, 0, "aa", (1.0, 2.0)))
    hub.publish(NodeEvent(0, 1, "bb", (3.0, 4.0), "station"))
    return hub


async def read(hub: MapHub, batches: int, *events: Any) -> list[bytes]:
    """The lines of the first batches of a page that opens before some events."""
    lines: list[bytes] = []
    stream = hub.watch(START_US)
    for number in range(batches):
        lines += await anext(stream)
        if number == 0:
            for event in events:
                hub.publish(event)
    await stream.aclose()  # type: ignore[attr-defined]
    return lines


def test_a_page_that_opens_later_gets_nodes_neighbours_and_replicas_as_they_are() -> None:
    hub = a_hub()
    for event in (
        NeighbourEvent(5, 0, 1, True),
        ReplicaEvent(6, 0, "photo", "own"),
        ReplicaEvent(6, 0, "song", "active"),
        ReplicaEvent(7, 0, "song", ""),
        MoveEvent(8, 0, 8, (1.0, 2.0), (9.0, 2.0)),
        PowerEvent(9, 1, False),
    ):
        hub.publish(event)

    recording = Recording(asyncio.run(read(hub, 2, AppRequestEvent(START_US + 7, 0, "Insert"))))

    assert recording.header.nodes == ("aa", "bb")
    assert recording.header.places == ((9.0, 2.0), (3.0, 4.0))
    assert recording.header.roles == ("", "station")
    assert "CellBeacon" in recording.header.control
    assert list(recording) == [
        PowerEvent(0, 0, True),
        PowerEvent(0, 1, False),
        NeighbourEvent(0, 0, 1, True),
        ReplicaEvent(0, 0, "photo", "own"),
        AppRequestEvent(7, 0, "Insert"),
    ]
    assert not hub.watched


def test_a_page_that_is_too_slow_gets_the_number_of_lost_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_module, "QUEUE_MAX", 3)
    events = [AppRequestEvent(START_US + number, 0, "Insert") for number in range(10)]

    lines = asyncio.run(read(a_hub(), 2, *events))

    assert [json.loads(line)[0] for line in lines[-4:]] == ["ask", "ask", "ask", "gap"]
    assert json.loads(lines[-1]) == ["gap", 2, 7]


def test_instants_never_run_backwards() -> None:
    events = [AppRequestEvent(START_US + at_us, 0, "Insert") for at_us in (5, 3, 9)]

    lines = asyncio.run(read(a_hub(), 2, *events))

    assert [json.loads(line)[1] for line in lines[-3:]] == [5, 5, 9]
