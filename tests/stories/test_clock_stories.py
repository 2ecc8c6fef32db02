"""M36: brokers whose clock is wrong go by the clocks of most nodes."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALICE, BOB, CAROL
from tests.links import Links
from tests.substrates.dcs.network import DcsNetwork, in_cell, tag_in
from thyme.live.clocks.clock_skew import agreed_ahead_us
from thyme.model.errors import RejectedError
from thyme.model.ids import NodeId, ObjectId
from thyme.model.tags import as_tags
from thyme.model.time_frames import ALWAYS, SECOND_US, TimeFrame
from thyme.protocol import app_interface as asked
from thyme.protocol.node import ClocksCompared
from thyme.query.query import Query
from thyme.storage.store import MemoryStore
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.dcs.config import ROBUST as DCS_ROBUST
from thyme.substrates.es import ROBUST as ES_ROBUST
from thyme.substrates.es import EsNode
from thyme.substrates.factory import with_dsdv

SERVER = NodeId(b"server")
SKEW_US = 5 * SECOND_US
WRONG_US = 600 * SECOND_US
EPOCH_S = 10_000
"""Time has passed when a story begins, so a clock that is behind is after the epoch."""
ES = msgspec.structs.replace(ES_ROBUST, broker=BrokerConfig(skew_us=SKEW_US))
DCS = msgspec.structs.replace(DCS_ROBUST, broker=BrokerConfig(skew_us=SKEW_US, metadata_only=True))

CLOCKS_US = st.integers(-(10**10), 10**10)


class EsNet:
    """A server whose clock can be wrong, and its clients."""

    def __init__(self, wrong_us: int) -> None:
        self.links = Links([(ALICE, SERVER), (BOB, SERVER), (CAROL, SERVER)])
        self.links.run(EPOCH_S)
        self.told: list[asked.AppEvent] = []
        self.store = MemoryStore()
        self._asks = 0
        self.start_server(wrong_us)
        for name in (ALICE, BOB, CAROL):
            rng = Random(name)
            node = EsNode(name, SERVER, MemoryStore(), rng, ES)
            self.links.add(with_dsdv(node, rng), self.told.append)
        self.links.run(20)

    def start_server(self, wrong_us: int) -> None:
        rng = Random(wrong_us)
        node = EsNode(SERVER, SERVER, self.store, rng, ES)
        self.links.add(with_dsdv(node, rng), lambda event: None, wrong_us)

    def compare(self, ahead_us: int) -> None:
        self.links.feed(SERVER, ClocksCompared(ahead_us))

    def ask(self, node: NodeId, request: asked.AppRequest) -> asked.AppEvent:
        self.links.ask(node, request)
        self.links.run(5)
        number = getattr(request, "request_id", None)
        [reply] = [one for one in self.told if getattr(one, "request_id", None) == number]
        return reply

    def insert(self, oid: str, ttl_us: int | None = None) -> asked.AppEvent:
        self._asks += 1
        return self.ask(
            ALICE,
            asked.Insert(
                request_id=self._asks,
                data=b"",
                tags=as_tags(["goal"]),
                oid=ObjectId(oid),
                ttl_us=ttl_us,
            ),
        )

    def subscribe(self, frame: TimeFrame = ALWAYS) -> None:
        conjunctions = Query("goal").conjunctions
        self._asks += 1
        request = asked.Subscribe(
            request_id=self._asks, conjunctions=conjunctions, frame=frame, batch=20
        )
        assert isinstance(self.ask(BOB, request), asked.Finished)

    def heard(self) -> list[str]:
        notes = [one for one in self.told if isinstance(one, asked.NotificationEvent)]
        return [note.notification.key.oid for note in notes]


def test_m36_a_server_whose_clock_is_behind_accepts_objects_as_most_clocks_say() -> None:
    net = EsNet(-WRONG_US)
    net.subscribe()
    refused = net.insert("too-early")
    assert isinstance(refused, asked.Failed)
    assert refused.code == RejectedError.code

    net.compare(WRONG_US)
    assert isinstance(net.insert("accepted"), asked.Finished)
    assert net.heard() == ["accepted"]
    net.compare(0)  # most clocks were wrong, and are corrected
    assert isinstance(net.insert("ahead-again"), asked.Failed)


@pytest.mark.parametrize("wrong_us", [-WRONG_US, WRONG_US])
def test_m36_life_spans_and_frames_follow_most_clocks(wrong_us: int) -> None:
    net = EsNet(wrong_us)
    net.compare(-wrong_us)
    now_us = net.links.kernel.now_us
    net.subscribe(TimeFrame(now_us - SECOND_US, now_us + 60 * SECOND_US))
    assert isinstance(net.insert("short", ttl_us=30 * SECOND_US), asked.Finished)
    assert net.heard() == ["short"]

    net.links.run(40)
    assert isinstance(net.insert("second"), asked.Finished)
    assert net.heard() == ["short", "second"]
    key = net.insert("third")
    assert isinstance(key, asked.Finished)
    net.links.run(60)
    assert isinstance(net.insert("after-the-frame"), asked.Finished)
    assert net.heard() == ["short", "second", "third"]


def test_m36_a_server_whose_clock_is_corrected_goes_on_with_the_right_time() -> None:
    net = EsNet(-WRONG_US)
    net.compare(WRONG_US)
    net.subscribe()
    net.insert("before")
    net.links.remove(SERVER)  # its host starts a new incarnation on the same store
    net.start_server(0)
    net.links.run(20)

    assert isinstance(net.insert("after"), asked.Finished)
    assert net.heard() == ["before", "after"]


def test_m36_a_cell_node_whose_clock_is_behind_does_not_refuse_what_most_clocks_accept() -> None:
    places = {"ann": in_cell(0), "bea": in_cell(2), "ben": in_cell(2, 1)}
    skews_s = dict.fromkeys(places, 0.0) | {"bea": -600.0, "ben": -600.0}
    tag = tag_in(2)

    def a_net() -> DcsNetwork:
        return DcsNetwork(places, config=DCS, skews_s=skews_s, start_s=EPOCH_S)

    net = a_net()
    assert net.fail("ann", asked.Insert, data=b"", tags=as_tags([tag])) == RejectedError.code
    for name in ("bea", "ben"):
        net.links.feed(NodeId(name.encode()), ClocksCompared(WRONG_US))
    net.insert("ann", "photo", tag)
    assert net.found("ann", tag) == {"photo"}


@given(st.lists(st.none() | CLOCKS_US, max_size=9), CLOCKS_US)
def test_m36_a_clock_differs_only_if_most_others_agree(
    clocks_us: list[int | None], wrong_us: int
) -> None:
    agreed_us = agreed_ahead_us(clocks_us)
    known_us = [0, *(one for one in clocks_us if one is not None)]
    assert 2 * sum(abs(one) >= abs(agreed_us) for one in known_us) >= len(known_us)
    assert agreed_us in known_us
    assert agreed_ahead_us([wrong_us]) == 0  # one other node alone
    assert agreed_ahead_us([wrong_us, 0]) == 0  # one node of three
    assert agreed_ahead_us([wrong_us, wrong_us]) == wrong_us
