"""Thyme-LS over several hops: searches and first batches are complete, or say that they are not."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from tests.links import Links, a_row
from thyme.model.ids import NodeId, ObjectId
from thyme.model.tags import as_tags
from thyme.model.time_frames import SECOND_US, TimeFrame
from thyme.protocol import app_interface as app
from thyme.query.query import Query
from thyme.storage.store import MemoryStore
from thyme.substrates.factory import with_dsdv
from thyme.substrates.ls.config import ROBUST
from thyme.substrates.ls.flooded_queries import CollectionConfig
from thyme.substrates.ls.node import LsNode

ALICE, BOB, CAROL = NodeId(b"alice"), NodeId(b"bob"), NodeId(b"carol")
GOAL = Query("goal").conjunctions
HALF_A_SECOND = CollectionConfig(subscribe_wait_us=SECOND_US // 2, search_wait_us=SECOND_US // 2)


class Row:
    """Alice, Carol and Bob in a row; each has an object, except Carol."""

    def __init__(self) -> None:
        self.links = Links(a_row((ALICE, CAROL, BOB)))
        self.told: list[app.AppEvent] = []
        for name in (ALICE, CAROL, BOB):
            rng = Random(name)
            node = LsNode(name, MemoryStore(), rng, replace(ROBUST, collecting=HALF_A_SECOND))
            routed = with_dsdv(node, rng)
            node.ask_nodes_in_reach(lambda routed=routed: routed.routing.destinations)
            self.links.add(routed, self.told.append if name == ALICE else lambda told: None)
        self.links.run(40)
        for name in (ALICE, BOB):
            oid = ObjectId(name.decode())
            data = app.Insert(request_id=1, data=b"", tags=as_tags(["goal"]), oid=oid)
            self.links.ask(name, data)
        self.links.run(1)
        self.told.clear()

    def search(self, query: str = "goal", seconds: float = 60) -> app.SearchResult:
        conjunctions = Query(query).conjunctions
        frame = TimeFrame()
        self.links.ask(
            ALICE, app.Search(request_id=7, conjunctions=conjunctions, frame=frame, count=9)
        )
        self.links.run(seconds)
        result = self.value(7)
        assert isinstance(result, app.SearchResult)
        return result

    def subscribe(self, seconds: float = 60) -> app.CaughtUp:
        self.links.ask(
            ALICE, app.Subscribe(request_id=8, conjunctions=GOAL, frame=TimeFrame(), batch=20)
        )
        self.links.run(seconds)
        [caught_up] = [each for each in self.told if isinstance(each, app.CaughtUp)]
        return caught_up

    def value(self, number: int) -> app.ReplyValue:
        [value] = [
            each.value
            for each in self.told
            if isinstance(each, app.Finished) and each.request_id == number
        ]
        return value

    @property
    def heard(self) -> list[str]:
        events = [each for each in self.told if isinstance(each, app.NotificationEvent)]
        return [each.notification.key.oid for each in events]


def found(result: app.SearchResult) -> list[str]:
    return sorted(note.key.oid for note in result)


@pytest.mark.parametrize("delay_s", [0.0, 1.0, 2.0, 5.0])
def test_m20_a_search_waits_for_owners_in_reach_that_answer_late(delay_s: float) -> None:
    row = Row()
    row.links.delays_us[BOB] = round(delay_s * SECOND_US)
    result = row.search()
    assert (found(result), result.total) == (["alice", "bob"], 2)
    assert result.unanswered == 0


def test_m20_a_search_says_how_many_nodes_in_reach_did_not_answer() -> None:
    row = Row()
    row.links.delays_us[BOB] = 3_600 * SECOND_US
    result = row.search()
    assert (found(result), result.total, result.unanswered) == (["alice"], 1, 1)
    del row.links.delays_us[BOB]
    row.links.run(60)  # he gets routes to the others again
    row.told.clear()
    result = row.search()
    assert (result.total, result.unanswered) == (2, 0)


def test_l6_a_search_does_not_wait_for_nodes_out_of_reach() -> None:
    row = Row()
    row.links.remove(BOB)
    row.links.run(120)  # until the routes to him are gone
    result = row.search(seconds=0.6)
    assert (found(result), result.unanswered) == (["alice"], 0)


def test_m20_a_search_without_matches_ends_when_all_nodes_have_answered() -> None:
    result = Row().search("miss", seconds=0.6)
    assert (result.total, result.unanswered) == (0, 0)


def test_m34_caught_up_waits_for_owners_in_reach_that_answer_late() -> None:
    row = Row()
    row.links.delays_us[BOB] = 3 * SECOND_US
    caught_up = row.subscribe()
    assert (caught_up.total, caught_up.code) == (2, "")
    assert sorted(row.heard) == ["alice", "bob"]


def test_m34_caught_up_says_that_a_node_in_reach_did_not_answer() -> None:
    row = Row()
    row.links.delays_us[BOB] = 3_600 * SECOND_US
    caught_up = row.subscribe()
    assert (caught_up.total, caught_up.code) == (1, "timeout")
    assert row.heard == ["alice"]


def test_m17_the_next_page_fails_while_a_node_in_reach_does_not_answer() -> None:
    row = Row()
    row.links.delays_us[BOB] = 3_600 * SECOND_US
    sid = row.subscribe(seconds=25).sid
    more = app.FetchNextPage(request_id=9, sid=sid, count=5)
    row.links.ask(ALICE, more)
    row.links.run(25)
    [failed] = [each for each in row.told if isinstance(each, app.Failed)]
    assert failed.code == "timeout"
    del row.links.delays_us[BOB]
    row.links.run(60)  # he gets a route to her, and fetches her subscription
    row.links.ask(ALICE, replace(more, request_id=10))
    row.links.run(5)
    assert row.value(10) == 0
    assert row.heard == ["alice", "bob"]


def test_l6_the_next_page_of_a_node_out_of_reach_is_empty() -> None:
    row = Row()
    row.links.delays_us[BOB] = 3_600 * SECOND_US
    sid = row.subscribe(seconds=25).sid
    row.links.remove(BOB)
    row.links.run(120)
    row.links.ask(ALICE, app.FetchNextPage(request_id=9, sid=sid, count=5))
    row.links.run(60)
    assert row.value(9) == 0
