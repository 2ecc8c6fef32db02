"""What a live node receives, sends and is asked becomes the events of the map."""

from __future__ import annotations

import asyncio

from tests.map.test_hub import START_US
from thyme.map.hub import MapAbout, MapHub
from thyme.map.node_observer import NeighbourFacts, NodeObserver
from thyme.map.recording import (
    AppEventRecord,
    AppRequestEvent,
    MessageDroppedEvent,
    MessageReceivedEvent,
    MessageSentEvent,
    MoveEvent,
    NeighbourEvent,
    NodeEvent,
    PowerEvent,
    RecordedEvent,
    Recording,
    ReplicaEvent,
)
from thyme.model.ids import Key, NodeId
from thyme.model.tags import as_tag
from thyme.protocol.app_interface import Finished, Insert
from thyme.protocol.messages.cells import CellBeacon
from thyme.protocol.messages.requests import FetchObject
from thyme.protocol.node import (
    Action,
    AppRequested,
    Broadcast,
    Emit,
    Input,
    PositionChanged,
    Received,
    Send,
    SendFailed,
)
from thyme.wire.codec import size_of

ANA, BEN = NodeId(b"ana"), NodeId(b"ben")
KEY = Key("photo", ANA)  # type: ignore[arg-type]
FETCH = FetchObject(1, KEY)  # type: ignore[arg-type]
BEACON = CellBeacon(0, True, b"", b"")  # type: ignore[arg-type]
INSERT = Insert(request_id=7, data=b"x", tags=(as_tag("goal"),))


class EchoNode:
    """A node that answers every input with the same actions."""

    node_id = ANA

    def __init__(self, *actions: Action) -> None:
        self.actions = list(actions)

    def handle(self, event: Input, now_us: int) -> list[Action]:
        return self.actions

    def check(self) -> None:
        pass


def events_of(*steps: tuple[Input, list[Action]]) -> list[RecordedEvent]:
    """The events that a page gets while a node handles inputs, one per microsecond."""

    async def story() -> list[RecordedEvent]:
        hub = MapHub(MapAbout(title="a park"))
        observer = NodeObserver(hub, ANA, (0.0, 0.0))
        observer.sample([NeighbourFacts(BEN, (5.0, 5.0))], {}, 1)
        stream = hub.watch(START_US)
        lines = await anext(stream)
        snapshot = len(lines)
        for number, (event, actions) in enumerate(steps, start=1):
            node = observer.wrap(EchoNode(*actions))
            assert node.handle(event, START_US + number) == actions
        lines += await anext(stream)
        return list(Recording(lines))[snapshot - 1 :]

    return asyncio.run(story())


def test_a_message_to_a_neighbour_and_one_from_it() -> None:
    found = events_of((Received(BEN, FETCH), [Send(BEN, FETCH), Broadcast(BEACON)]))

    fetch, beacon = size_of(FETCH), size_of(BEACON)
    assert found == [
        MessageSentEvent(1, 1, 1, 0, "FetchObject", fetch, False, ("photo",)),
        MessageReceivedEvent(1, 1, (0,)),
        MessageSentEvent(1, 2, 0, 1, "FetchObject", fetch, False, ("photo",)),
        MessageSentEvent(1, 3, 0, None, "CellBeacon", beacon, False, ()),
    ]


def test_a_message_that_was_not_acknowledged_is_dropped() -> None:
    asked = AppRequested(INSERT)

    found = events_of((asked, [Send(BEN, FETCH)]), (SendFailed(BEN, FETCH), []))

    assert found[-1] == MessageDroppedEvent(2, 1, "unacknowledged")


def test_a_reply_names_the_object_and_the_duration_of_its_request() -> None:
    found = events_of(
        (AppRequested(INSERT), []), (PositionChanged((1.0, 2.0)), [Emit(Finished(7, KEY))])
    )

    assert found == [
        AppRequestEvent(1, 0, "Insert", ()),
        MoveEvent(2, 0, 2, (0.0, 0.0), (1.0, 2.0)),
        AppEventRecord(2, 0, "Finished", ("photo",), "Insert", 1),
    ]


def test_neighbours_and_replicas_that_come_and_go() -> None:
    hub = MapHub(MapAbout(title="a park"))
    observer = NodeObserver(hub, ANA, (0.0, 0.0))
    found: list[RecordedEvent] = []
    hub.publish = found.append  # type: ignore[method-assign]
    ben = NeighbourFacts(BEN, (5.0, 5.0), "station")
    for neighbours, replicas in (([ben], {"photo": "own"}), ([], {})):
        before = len(found)
        observer.sample(neighbours, replicas, START_US)
        for event in found[before:]:
            hub.state.apply(event)

    assert found == [
        NodeEvent(START_US, 1, BEN.hex(), (5.0, 5.0), "station"),
        PowerEvent(START_US, 1, True),
        NeighbourEvent(START_US, 0, 1, True),
        ReplicaEvent(START_US, 0, "photo", "own"),
        NeighbourEvent(START_US, 0, 1, False),
        PowerEvent(START_US, 1, False),
        ReplicaEvent(START_US, 0, "photo", ""),
    ]


def test_while_nobody_watches_nothing_is_observed() -> None:
    hub = MapHub(MapAbout(title="a park"))
    observer = NodeObserver(hub, ANA, (0.0, 0.0))
    hub.publish = None  # type: ignore[assignment, method-assign]

    assert observer.wrap(EchoNode()).handle(Received(BEN, FETCH), START_US) == []


def test_a_mistake_in_the_map_does_not_stop_the_node() -> None:
    class Broken(NodeObserver):
        def observe(self, event: Input, actions: list[Action], now_us: int) -> None:
            raise ZeroDivisionError

    node = Broken(MapHub(MapAbout(title="a park")), ANA, (0.0, 0.0)).wrap(EchoNode())

    assert node.handle(Received(BEN, FETCH), START_US) == []
    assert node.handle(Received(BEN, FETCH), START_US) == []
