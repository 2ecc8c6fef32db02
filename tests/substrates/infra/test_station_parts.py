"""The parts of a station: worlds, addresses, popularity, needs, time slots, wires."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALICE, BOB, key, photo
from thyme.model.errors import InputError, RejectedError
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.protocol.messages.common import Message, RouteToCell, RouteToNode
from thyme.protocol.messages.replies import Done
from thyme.protocol.messages.requests import FetchObject
from thyme.protocol.messages.stations import (
    COUNT_MAX,
    CellCycle,
    CellData,
    DownloadCount,
    StorageUpdate,
    SubscriptionNeeds,
    TagNeed,
    WorldEntry,
    WorldNeeds,
)
from thyme.protocol.node import Send
from thyme.protocol.outbox import Outbox
from thyme.protocol.results import Result
from thyme.protocol.retry import RetryPolicy
from thyme.sim.networks.wired_links import WireConfig, WiredLinks
from thyme.substrates.infra.requests import StationRequests, StationRequestTimer
from thyme.substrates.infra.station.addresses import LogicalAddress, MobileAddresses
from thyme.substrates.infra.station.mobile_sender import MobileSender
from thyme.substrates.infra.station.popularity import (
    PopularityTable,
    choose_popular,
    divide_by_weight,
)
from thyme.substrates.infra.station.subscription_needs import (
    NeedsTable,
    choose_items,
    entries_for_tag,
)
from thyme.substrates.infra.station.time_slots import next_slot_us, owner_of_slot
from thyme.substrates.infra.station.worlds import WORLDS_MAX, WorldTable
from thyme.substrates.infra.world_numbers import world_number

GOAL, SAVE = Tag("goal"), Tag("save")
STATION = NodeId(b"station")
CELL = CellId(2)


# Worlds (I3)


def test_i3_a_world_has_the_same_number_at_every_station() -> None:
    north, south = WorldTable(5, 4, 100), WorldTable(5, 4, 100)
    entry = north.create("match")

    assert entry == WorldEntry(world_number("match"), "match", 4)
    assert south.add(entry)
    assert not south.add(entry), "it is known"
    assert south.entries() == north.entries()


def test_i3_a_world_with_a_false_number_is_refused_and_worlds_are_bounded() -> None:
    table = WorldTable(5, 4, 100)

    assert not table.add(WorldEntry(7, "match", 4))
    for number in range(WORLDS_MAX):
        table.create(f"world {number}")
    with pytest.raises(RejectedError, match="worlds already"):
        table.create("one too many")


@pytest.mark.parametrize(
    ("population", "cells"), [(0, 4), (30, 4), (39, 4), (40, 8), (5_000, 100), (1, 4)]
)
def test_i3_the_number_of_cells_follows_the_population(population: int, cells: int) -> None:
    table = WorldTable(nodes_per_cell=5, cells_min=4, cells_max=100)
    world = table.create("match").world
    table.adapt_cells(world, population)

    assert table[world].cells == cells


# Addresses (I25, I8)


def test_i25_addresses_are_bounded_expire_and_are_refreshed_by_traffic() -> None:
    addresses = MobileAddresses(size_max=2, ttl_us=100)
    here = LogicalAddress(1, CELL)
    for node, at_us in ((ALICE, 0), (BOB, 10), (ALICE, 20), (STATION, 30)):
        addresses.refresh(node, here, at_us)

    assert not addresses.knows(BOB, 30), "the longest silent one had to go"
    assert addresses.nodes_in(1, CELL, 30) == [STATION, ALICE]
    assert addresses.knows(ALICE, 120)
    assert not addresses.knows(ALICE, 121)
    assert (addresses.hits, addresses.misses) == (1, 2)
    addresses.check()


def test_i8_the_stable_node_is_known_even_without_room_for_addresses() -> None:
    addresses = MobileAddresses(size_max=0, ttl_us=100)
    addresses.set_stable(1, CELL, ALICE, 0)
    addresses.refresh(ALICE, LogicalAddress(1, CELL), 0)

    assert addresses.stable_node(1, CELL, 100) == ALICE
    assert addresses.stable_node(1, CELL, 101) is None
    addresses.forget(ALICE)
    assert addresses.stable_node(1, CELL, 0) is None


class Sender:
    """A station's way to its mobile nodes, and what it sent."""

    def __init__(self, size_max: int = 10) -> None:
        self.outbox = Outbox()
        self.addresses = MobileAddresses(size_max, ttl_us=10**9)
        policy = RetryPolicy(tries_max=2, wait_us=100)
        self.requests = StationRequests(self.outbox, policy, Random(1))
        self.mobiles = MobileSender(STATION, self.addresses, self.requests)
        self.results: list[Result[Message]] = []

    def sent(self) -> list[tuple[NodeId, Message]]:
        actions = self.outbox.drain_actions()
        return [(each.to, each.message) for each in actions if isinstance(each, Send)]

    def request(self, node: NodeId | None) -> None:
        self.mobiles.request_from(
            1,
            Replica(CELL, node),
            lambda number: FetchObject(number, key(7)),
            0,
            lambda result, _now_us: self.results.append(result),
        )


def test_i25_a_known_node_is_reached_directly_and_an_unknown_one_through_the_stable_node() -> None:
    net = Sender()
    net.addresses.set_stable(1, CELL, BOB, 0)
    net.addresses.refresh(ALICE, LogicalAddress(1, CELL), 0)

    net.request(ALICE)
    net.request(NodeId(b"carol"))

    (direct, first), (routed, second) = net.sent()
    assert (direct, type(first)) == (ALICE, FetchObject)
    assert routed == BOB
    assert isinstance(second, RouteToNode)
    assert (second.station, second.node) == (STATION, b"carol")
    assert net.mobiles.counts == {"direct": 1, "routed": 1}
    assert net.requests.on_reply(NodeId(b"carol"), second.message.request_id, Done(1), 1)  # type: ignore[union-attr]


def test_i25_without_any_way_the_request_fails_at_once() -> None:
    net = Sender()
    net.request(ALICE)
    net.request(None)

    assert net.sent() == []
    assert [getattr(result, "code", "") for result in net.results] == ["not_found", "not_found"]


def test_i26_to_a_cell_first_the_stable_node_then_others_in_turn_then_parked() -> None:
    net = Sender()
    update = StorageUpdate((key(7),), True)
    net.addresses.refresh(ALICE, LogicalAddress(1, CELL), 0)
    net.addresses.set_stable(1, CELL, BOB, 0)
    net.mobiles.send_to_cell(1, CELL, update, 0)

    receivers: list[NodeId] = []
    for now_us in range(100, 2_000, 100):
        for to, message in net.sent():
            assert isinstance(message, RouteToCell)
            receivers.append(to)
            number = message.request_id
        net.requests.on_timer(StationRequestTimer(number), now_us)
    assert receivers == [BOB, BOB, ALICE, ALICE], "two tries each"
    assert net.mobiles.parked == 1

    net.addresses.set_stable(1, CELL, NodeId(b"carol"), 2_000)
    net.mobiles.on_stable_node(1, CELL, 2_000)
    assert [to for to, _ in net.sent()] == [b"carol"]
    assert net.mobiles.parked == 0


def test_i27_a_request_is_repeated_until_its_answer_and_fails_after_the_last_try() -> None:
    net = Sender()
    number = net.requests.next_id()
    results: list[Result[Message]] = []
    net.requests.send(
        ALICE, number, FetchObject(number, key(7)), 0, lambda result, _: results.append(result)
    )
    net.requests.on_timer(StationRequestTimer(number), 100)
    assert len(net.sent()) == 2
    assert not net.requests.on_reply(BOB, number, Done(number), 150), "of another node"
    net.requests.on_timer(StationRequestTimer(number), 300)

    assert [getattr(result, "code", "") for result in results] == ["timeout"]
    assert not net.requests.on_reply(ALICE, number, Done(number), 400), "too late"
    assert (net.requests.retransmissions, net.requests.timeouts) == (1, 1)


# Popularity (I9)


def table_of(downloads: dict[tuple[int, str], tuple[int, int]]) -> PopularityTable:
    """A table from world and object to the number of downloads and the cycle of the last one."""
    table = PopularityTable(locations_max=2)
    for (world, oid), (count, cycle) in downloads.items():
        table.record((world, Key(oid, ALICE)), count, (Replica(CELL),), cycle)  # type: ignore[arg-type]
    return table


def test_i9_items_are_active_for_a_window_of_cycles() -> None:
    table = table_of({(1, "old"): (9, 3), (1, "edge"): (1, 4), (1, "new"): (1, 7)})

    assert [item[1].oid for item in table.active_items(cycle=7, window=3)] == ["edge", "new"]


def test_i9_each_world_gets_its_share_and_cached_items_are_left_out() -> None:
    table = table_of(
        {
            (1, "a"): (50, 1), (1, "b"): (20, 1), (1, "c"): (5, 1),
            (2, "x"): (15, 1), (2, "y"): (10, 1),
        }
    )  # fmt: skip
    active = table.active_items(1, 3)
    cached = {(1, Key("a", ALICE))}  # type: ignore[arg-type]

    chosen = choose_popular(active, 4, cached.__contains__)

    assert [(world, each.oid) for world, each in chosen] == [(1, "b"), (1, "c"), (2, "x")]


def test_i9_the_most_downloaded_items_of_a_world_are_chosen() -> None:
    active = table_of({(1, "a"): (1, 1), (1, "b"): (9, 1), (1, "c"): (5, 1)}).active_items(1, 3)

    assert [each.oid for _, each in choose_popular(active, 2, lambda _: False)] == ["b", "c"]


@given(st.integers(0, 1000), st.dictionaries(st.integers(0, 9), st.floats(0, 1e6), max_size=6))
def test_i9_shares_never_exceed_the_whole_and_are_off_by_less_than_one(
    total: int, weights: dict[int, float]
) -> None:
    shares, whole = divide_by_weight(total, weights), sum(weights.values())

    assert sum(shares.values()) == (total if whole else 0)
    if whole:
        assert all(abs(shares[n] - total * weights[n] / whole) < 1.001 for n in weights)


def test_i9_replicas_are_bounded_and_the_latest_come_first() -> None:
    table = PopularityTable(locations_max=2)
    for cell in (1, 2, 3):
        table.record((1, key(7)), 1, (Replica(CellId(cell)),), 0)

    popularity = table.get((1, key(7)))
    assert popularity is not None
    assert (popularity.downloads, popularity.replicas) == (
        3,
        (Replica(CellId(3)), Replica(CellId(2))),
    )


def test_b8_popularity_decays() -> None:
    table = PopularityTable(2, decay=0.5)
    table.record((1, key(7)), 8, (), 0)
    for _ in range(3):
        table.end_cycle()

    assert table.get((1, key(7))).downloads == 1  # type: ignore[union-attr]


# Needs (I17, I18)


def test_i17_needs_are_summed_by_world_and_tag_with_the_widest_frame() -> None:
    table = NeedsTable()
    table.record(1, TagNeed(GOAL, 2, 10, 20))
    table.record(1, TagNeed(GOAL, 3, 5, None))
    table.record(2, TagNeed(GOAL, 1, None, 30))

    assert table.as_message(50) == SubscriptionNeeds(
        6,
        50,
        (WorldNeeds(1, (TagNeed(GOAL, 5, 5, None),)), WorldNeeds(2, (TagNeed(GOAL, 1, None, 30),))),
    )
    table.end_frames(31)
    assert len(table) == 1
    assert NeedsTable().as_message(50) is None


def test_p9_popular_tags_are_needed_as_much_as_all_subscriptions_together() -> None:
    table = NeedsTable()
    table.record(1, TagNeed(GOAL, 200, 10, 20))
    table.set_popular({(1, GOAL): 3.0, (1, Tag("eder")): 1.0, (2, Tag("rare")): 0.001})

    assert table.as_message(50) == SubscriptionNeeds(
        400, 50, (WorldNeeds(1, (TagNeed(GOAL, 350, None, None), TagNeed(Tag("eder"), 50))),)
    )
    table.set_popular({})
    assert table.as_message(50) == SubscriptionNeeds(
        200, 50, (WorldNeeds(1, (TagNeed(GOAL, 200, 10, 20),)),)
    )


def test_i18_the_example_of_the_thesis() -> None:
    assert entries_for_tag(prefetch_max=50, count=70, total=100, available=200) == 35
    assert entries_for_tag(50, 70, 100, available=8) == 8


def photos(tag: str, *instants: int) -> list[Metadata]:
    return [photo(number, tags=[tag], at_us=at_us) for number, at_us in enumerate(instants)]


def test_i18_items_are_inside_the_frame_newest_first_and_not_omitted() -> None:
    found = photos("goal", 5, 10, 15, 20, 25)
    needs = SubscriptionNeeds(1, 3, (WorldNeeds(1, (TagNeed(GOAL, 1, 10, 22),)),))

    chosen = choose_items(
        needs,
        lambda world, tag: found if (world, tag) == (1, GOAL) else [],
        lambda _, k: k == found[2].key,
    )

    assert [metadata.published_us for _, metadata in chosen] == [20, 10]


def test_i18_an_answer_to_a_total_that_is_too_low_fits_the_prefetch_cache() -> None:
    needs = SubscriptionNeeds(1, 3, (WorldNeeds(1, (TagNeed(GOAL, 1), TagNeed(SAVE, 1))),))
    found = {GOAL: photos("goal", 1, 2, 3), SAVE: [photo(9, tags=["save"], at_us=4)]}

    chosen = choose_items(needs, lambda _, tag: found[tag], lambda _world, _key: False)

    assert [metadata.published_us for _, metadata in chosen] == [3, 2, 1]


@given(
    st.integers(0, 40),
    st.lists(st.integers(1, 50), min_size=1, max_size=4),
    st.integers(0, 30),
)
def test_i18_an_answer_fits_the_prefetch_cache(size: int, counts: list[int], found: int) -> None:
    tags = [Tag(f"tag{number}") for number in range(len(counts))]
    needs = SubscriptionNeeds(
        sum(counts),
        size,
        (WorldNeeds(1, tuple(TagNeed(t, c) for t, c in zip(tags, counts, strict=True))),),
    )
    items = {tag: photos(tag, *range(found)) for tag in tags}

    assert len(choose_items(needs, lambda _, tag: items[tag], lambda _world, _key: False)) <= size


@given(st.integers(1, COUNT_MAX), st.integers(1, COUNT_MAX))
def test_i5_counts_in_cell_data_are_bounded(one: int, other: int) -> None:
    joined = TagNeed(GOAL, one).joined_with(TagNeed(GOAL, other))

    assert joined.count == min(one + other, COUNT_MAX)
    with pytest.raises(ValueError, match="a count is from 1"):
        DownloadCount(key(7), COUNT_MAX + 1, ())


def test_i5_cell_data_name_the_cells_of_replicas() -> None:
    data = CellData(
        1, CELL, 4, (CellCycle(3, (DownloadCount(key(7), 1, (Replica(CellId(9)),)),), ()),)
    )

    assert list(data.cells_referenced()) == [9]


# Time slots (I20)


@given(
    st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=6, unique=True),
    st.integers(1, 10**9),
    st.integers(0, 10**15),
)
def test_i20_slots_do_not_overlap_and_come_in_turn(
    names: list[bytes], window_us: int, now_us: int
) -> None:
    stations = [NodeId(name) for name in names]
    starts = {each: next_slot_us(stations, each, window_us, now_us) for each in stations}

    assert sorted(starts.values())[-1] - now_us <= len(stations) * window_us
    assert all(at_us > now_us and at_us % window_us == 0 for at_us in starts.values())
    assert len(set(starts.values())) == len(stations)
    assert all(owner_of_slot(stations, window_us, at) == each for each, at in starts.items())


def test_b8_slots_of_a_station_that_joins_do_not_overlap_either() -> None:
    two = [NodeId(b"a"), NodeId(b"c")]
    three = [*two, NodeId(b"b")]

    assert [next_slot_us(two, each, 10, 100) for each in two] == [120, 110]
    assert [next_slot_us(three, each, 10, 100) for each in three] == [120, 110, 130]


# Wires


def test_wires_have_latency_bandwidth_and_loss() -> None:
    wires = WiredLinks([ALICE, BOB], WireConfig(latency_us=5_000, bits_per_s=8_000_000), seed=1)

    assert wires.joins(ALICE, BOB)
    assert not wires.joins(ALICE, STATION)
    assert wires.arrival_us(ALICE, BOB, 1_000, now_us=0) == 6_000
    assert wires.arrival_us(ALICE, BOB, 1_000, now_us=0) == 7_000, "after the first one"
    assert wires.arrival_us(BOB, ALICE, 1_000, now_us=0) == 6_000, "the other direction is free"
    assert wires.bytes_sent == {ALICE: 2_000, BOB: 1_000}
    lossy = WiredLinks([ALICE, BOB], WireConfig(loss=0.5), seed=1)
    lost = sum(lossy.arrival_us(ALICE, BOB, 10, 0) is None for _ in range(1_000))
    assert lost == lossy.lost
    assert 400 < lost < 600
    with pytest.raises(InputError, match="a wire has"):
        WireConfig(loss=1.0)
