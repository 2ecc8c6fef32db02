"""Links over which packets are lost count as longer, so that routes avoid them (R1, L4)."""

from __future__ import annotations

import pytest

from tests.routing.dsdv.test_protocol import ANN, BEN, CAT, ME, Node, packet
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.routing.dsdv.config import ROBUST, DsdvConfig, DumpTimer
from thyme.routing.dsdv.link_quality import LinkQuality


@pytest.mark.parametrize(
    ("sent", "lost", "is_weak"), [(2, 1, False), (2, 2, True), (10, 2, True), (11, 2, False)]
)
def test_a_link_is_weak_once_a_fifth_of_its_packets_and_two_are_lost(
    sent: int, lost: int, is_weak: bool
) -> None:
    links = LinkQuality(2)
    for _ in range(sent):
        links.count_sent(ANN, 0)
    for _ in range(lost):
        links.count_lost(ANN, 0)
    assert links.extra_hops(ANN, 1) == (2 if is_weak else 0)
    assert links.extra_hops(BEN, 1) == 0


def test_losses_are_forgotten_after_a_while() -> None:
    links = LinkQuality(2)
    for second in (0, 60, 120, 180):
        links.count_lost(ANN, second * SECOND_US)
    assert links.extra_hops(ANN, 181 * SECOND_US) == 0


def test_a_weak_link_is_tried_again_and_avoided_for_longer_each_time() -> None:
    links, now_us, spans = LinkQuality(2), 0, []
    for _ in range(7):
        links.count_lost(ANN, now_us)
        links.count_lost(ANN, now_us)
        since_us = now_us
        while links.extra_hops(ANN, now_us):
            now_us += SECOND_US
        spans.append((now_us - since_us) // SECOND_US)
    assert spans == [60, 120, 240, 480, 960, 960, 960]


def weak_to_ann() -> Node:
    """A node that reaches Cat over Ann, to whom two packets were lost."""
    node = Node(ROBUST)
    node.hear(ANN, (ANN, 2, 1), (CAT, 2, 2))
    node.hear(BEN, (BEN, 2, 1))
    for _ in range(2):
        node.dsdv.send(packet(CAT), 1)
        node.dsdv.on_send_failed(ANN, packet(CAT), 2)
    node.take()
    return node


def test_r1_a_route_over_one_hop_more_is_preferred_to_a_weak_link() -> None:
    node = weak_to_ann()
    for _ in range(2):  # whoever is heard first
        node.hear(ANN, (ANN, 4, 1), (CAT, 4, 2), at_us=15 * SECOND_US)
        node.hear(BEN, (CAT, 4, 3), at_us=15 * SECOND_US + 1)
    assert node.way(CAT) == (BEN, 4, 3)


def test_r1_a_weak_link_is_used_where_no_other_leads() -> None:
    node = weak_to_ann()
    node.hear(ANN, (ANN, 4, 1), (CAT, 4, 2), at_us=15 * SECOND_US)
    assert node.way(CAT) == (ANN, 4, 4)
    [told] = [entry for entry in node.told(DumpTimer()) if entry[0] == CAT]
    assert told == (CAT, 4, 5), "others hear that the way is long"


def test_r3_by_default_a_link_counts_as_one_hop_whatever_is_lost() -> None:
    node = Node(DsdvConfig())
    node.hear(ANN, (ANN, 2, 1))
    for _ in range(50):
        node.dsdv.send(packet(ANN), 1)
        node.dsdv.on_send_failed(ANN, packet(ANN), 2)
    node.hear(ANN, (ANN, 4, 1), at_us=15 * SECOND_US)
    assert node.told(DumpTimer()) == [(ANN, 4, 2)]


def test_the_links_that_are_remembered_are_limited() -> None:
    links = LinkQuality(2)
    for number in range(2_000):
        links.count_lost(NodeId(number.to_bytes(2, "big")), 0)
    assert len(links._links) == 1_000
    assert ME not in links._links
