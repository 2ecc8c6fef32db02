"""Retrieving an object: the order in which its replicas are tried (D18)."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from tests.builders import ALICE, BOB, CAROL, photo
from tests.substrates.dcs.components import RecordingRouting, a_replica_store
from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId, IndexedMetadata, Replica
from thyme.protocol.outbox import Outbox
from thyme.protocol.retry import RetryPolicy
from thyme.substrates.dcs.client.cell_requests import CellRequests
from thyme.substrates.dcs.client.replica_announcements import PromptAnnouncer
from thyme.substrates.dcs.client.replica_locations import ReplicaLocations
from thyme.substrates.dcs.client.retrieve import Retriever
from thyme.substrates.dcs.config import ReplicationConfig
from thyme.substrates.dcs.state.small_objects import SmallObjects

LISTED = IndexedMetadata(
    photo(1),
    (Replica(CellId(99)),),
    (Replica(CellId(55), BOB), Replica(CellId(11), CAROL), Replica(CellId(3), ALICE)),
)


def plan_of(indexed: IndexedMetadata, tries_max: int) -> list[tuple[int, NodeId | None]]:
    routing = RecordingRouting()
    requests = CellRequests(routing, Outbox(), RetryPolicy(), Random(1))
    config = ReplicationConfig(retrieve_tries_max=tries_max)
    retriever = Retriever(
        ALICE,
        routing,
        requests,
        a_replica_store(),
        SmallObjects(0),
        ReplicaLocations(10),
        RetryPolicy(),
        config,
        PromptAnnouncer(routing),
    )
    return [(to.cell, to.node) for to in retriever.order_replicas(indexed)]


@pytest.mark.parametrize(
    ("tries_max", "plan"),
    [
        (1, [(99, None)]),
        (2, [(11, CAROL), (99, None)]),
        (3, [(11, CAROL), (55, BOB), (99, None)]),
        (5, [(11, CAROL), (55, BOB), (99, None), (99, None), (99, None)]),
    ],
)
def test_d18_replicas_are_tried_by_distance_and_the_active_cell_last(
    tries_max: int, plan: list[tuple[int, NodeId | None]]
) -> None:
    assert plan_of(LISTED, tries_max) == plan


def test_d18_an_active_cell_that_is_close_is_tried_by_distance_too() -> None:
    near = msgspec.structs.replace(LISTED, active=(Replica(CellId(1)),))
    assert plan_of(near, 3) == [(1, None), (11, CAROL), (55, BOB)]
