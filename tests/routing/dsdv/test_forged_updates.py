"""A forged route update does not last (B5, R1)."""

from __future__ import annotations

import pytest

from tests.routing.dsdv.test_protocol import ANN, BEN, CAT, ME, Node
from thyme.live.node_factory import DSDV_CONFIG
from thyme.model.ids import NodeId
from thyme.protocol.messages.common import RouteUpdate
from thyme.protocol.node import Send
from thyme.routing.dsdv.config import DumpTimer

NOW_US = 10**15
TRUE = 2 * (NOW_US // 1_000)
"""The sequence number of a node that starts now."""
DAY = 2 * 24 * 3_600 * 1_000
MALLORY = NodeId(b"mallory")
FORGED = [TRUE + 2, TRUE + DAY - 2, TRUE + DAY + 10, 2**61 - 2, 2**62 - 2]


def a_node() -> Node:
    node = Node(DSDV_CONFIG, at_us=NOW_US)
    node.hear(ANN, (ANN, TRUE, 1), (BEN, TRUE, 2), at_us=NOW_US)
    return node


@pytest.mark.parametrize("sequence", FORGED)
def test_b5_nobody_is_the_way_to_a_node_that_is_heard_itself(sequence: int) -> None:
    node = a_node()
    node.hear(MALLORY, (MALLORY, TRUE, 1), (ANN, sequence, 1), at_us=NOW_US + 1_000)

    way = node.way(ANN)
    assert way is not None
    assert way[0] == ANN


@pytest.mark.parametrize("sequence", [odd + 1 for odd in FORGED])
def test_b5_nobody_declares_a_node_lost_that_is_heard_itself(sequence: int) -> None:
    node = a_node()
    node.hear(MALLORY, (MALLORY, TRUE, 1), (ANN, sequence, 2), at_us=NOW_US + 1_000)

    assert node.way(ANN) is not None


def test_b5_a_number_that_its_node_cannot_have_reached_is_ignored() -> None:
    node = a_node()
    node.hear(MALLORY, (MALLORY, TRUE, 1), (BEN, TRUE + DAY + 10, 2), at_us=NOW_US + 1_000)
    node.hear(MALLORY, (MALLORY, TRUE, 1), (CAT, 2**62 - 2, 2), at_us=NOW_US + 2_000)

    assert node.way(BEN) == (ANN, TRUE, 2)
    assert node.way(CAT) is None
    assert node.dsdv.traffic.dropped["incredible route"] == 2


def test_b5_a_forged_route_ends_with_the_first_update_of_the_node_itself() -> None:
    node = Node(DSDV_CONFIG, at_us=NOW_US)
    node.hear(MALLORY, (MALLORY, TRUE, 1), (ANN, TRUE + DAY - 2, 2), at_us=NOW_US + 1_000)
    assert node.way(ANN) is not None

    node.hear(ANN, (ANN, TRUE, 1), at_us=NOW_US + 2_000)

    assert node.way(ANN) == (ANN, TRUE, 1)


def test_b5_a_node_learns_of_a_forged_number_and_continues_after_it() -> None:
    node = a_node()
    [told] = node.hear(MALLORY, (MALLORY, TRUE, 1), (ANN, TRUE + 2_000, 2), at_us=NOW_US + 1_000)
    assert told == Send(ANN, RouteUpdate(((ANN, TRUE + 2_000, 1),)))

    ann = Node(DSDV_CONFIG, at_us=NOW_US)  # as the node that is told
    ann.hear(BEN, (ME, TRUE + 2_000, 1), at_us=NOW_US + 2_000)
    [update] = ann.fire(DumpTimer())
    assert update.message.entries[0] == (ME, TRUE + 2_002, 1)  # type: ignore[union-attr]
