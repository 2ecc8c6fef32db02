"""M34: a node whose process was stopped is notified of everything soon after it goes on."""

from __future__ import annotations

import pytest

from tests.builders import ALICE, BOB, CAROL
from tests.stories.sleepers import Sleepers
from thyme.model.ids import ObjectId
from thyme.model.tags import as_tags
from thyme.model.time_frames import SECOND_US, TimeFrame
from thyme.model.worlds import Area, WorldInfo
from thyme.protocol.app_interface import Insert, NotificationEvent, Subscribe
from thyme.protocol.node import Node
from thyme.query.query import Query
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.dcs.service.notification_delivery import WINDOW_BYTES_MAX

BEGIN_US = 1_700_000_000 * SECOND_US
WORLDS = {
    "es": WorldInfo("lisbon", "w1", substrate="es", server=ALICE),
    "ls": WorldInfo("lisbon", "w1", substrate="ls"),
    "dcs": WorldInfo("lisbon", "w1", substrate="dcs", area=Area(80, 40), cell_m=40),
}
OBJECTS = 40
SOON_S = 3.0
"""A route comes back with the next dump, after two seconds at most."""


@pytest.mark.parametrize("tick_first", [False, True])
@pytest.mark.parametrize("substrate", WORLDS)
def test_m34_a_node_that_slept_is_notified_of_everything_soon(
    substrate: str, tick_first: bool
) -> None:
    """Before it sleeps, the nodes have exchanged messages: were those sent later taken for old
    ones, it would learn nothing until as many had been lost."""
    network = Sleepers(WORLDS[substrate], ALICE, BOB, CAROL, begin_us=BEGIN_US)
    network.run(8)
    goal = Query("goal").conjunctions
    network.ask(BOB, Subscribe(request_id=1, conjunctions=goal, frame=TimeFrame(), batch=0))
    network.run(3)
    for number in range(100):
        insert(network, f"before-{number}")
    network.run(5)
    assert len(notified(network)) == 100

    network.stop(BOB)
    for number in range(OBJECTS):
        insert(network, f"meanwhile-{number}")
        network.run(1)
    network.go_on(BOB, tick_first=tick_first)
    network.run(SOON_S)
    insert(network, "after")
    network.run(SOON_S)

    oids = notified(network)
    assert sorted(oids) == sorted(set(oids))
    assert len(oids) == 100 + OBJECTS + 1


def test_m35_a_cell_sends_a_sleeper_few_bytes_without_acknowledgement() -> None:
    """Summaries of 60 kB: the rest waits in history (M34)."""
    network = Sleepers(WORLDS["dcs"], ALICE, BOB, CAROL, begin_us=BEGIN_US)
    network.run(8)
    goal = Query("goal").conjunctions
    network.ask(BOB, Subscribe(request_id=1, conjunctions=goal, frame=TimeFrame(), batch=0))
    network.run(3)
    network.stop(BOB)
    unacknowledged = []
    for number in range(60):
        insert(network, f"large-{number}", bytes(60_000))
        unacknowledged += map(pending_bytes, network.nodes.values())
    assert 0 < max(unacknowledged) < WINDOW_BYTES_MAX + 60_000

    network.go_on(BOB, tick_first=False)
    network.run(20)
    assert len(set(notified(network))) == len(notified(network)) == 60


def pending_bytes(node: Node) -> int:
    """The bytes of the summaries on the way to the subscriber."""
    assert isinstance(node, DcsNode)
    return node.service.notification_delivery._pending.of(BOB).summary_bytes


def insert(network: Sleepers, oid: str, summary: bytes = b"") -> None:
    number = 2 + len(network.told)
    tags = as_tags(["goal"])
    request = Insert(request_id=number, data=b"x", tags=tags, oid=ObjectId(oid), summary=summary)
    network.ask(ALICE, request)


def notified(network: Sleepers) -> list[str]:
    """The objects that the subscriber was notified of."""
    return [
        str(event.notification.metadata.key.oid)
        for name, event in network.told
        if name == BOB and isinstance(event, NotificationEvent)
    ]
