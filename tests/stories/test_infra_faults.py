"""Stories of stations that fail, are cut off, restart or lie, and of crowds that grow (B8)."""

from __future__ import annotations

from msgspec.structs import replace

from tests.stories.test_infra_stories import BOTH, ONE_VENUE, TWO_VENUES, popular_photo
from tests.substrates.infra.plain_content import PlainContent
from tests.substrates.infra.venues import QUICK, WORLD, Venues
from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.common import ToStation
from thyme.protocol.messages.stations import (
    CellCycle,
    CellData,
    ConsumptionNotice,
    DownloadCount,
    ProvideItems,
    SubscriptionNeeds,
    WorldList,
)
from thyme.protocol.node import Received
from thyme.routing.cells import LogicalCells
from thyme.sim.networks.ideal_network import LinkConditions
from thyme.substrates.dcs.config import LOGICAL_ROBUST
from thyme.substrates.infra.caches.config import CachesConfig
from thyme.substrates.infra.world_numbers import world_number

NORTH, SOUTH = NodeId(b"north"), NodeId(b"south")
WORLD_NUMBER = world_number(WORLD)


def stations_of(net: Venues) -> set[NodeId | None]:
    return {each.link.station for each in net.extensions.values()}


def test_i2_without_a_station_the_nodes_of_a_venue_work_peer_to_peer() -> None:
    net = Venues(ONE_VENUE, stations=())
    popular_photo(net)

    assert stations_of(net) == {None}
    assert net.found("joe", "goal") == {"goal1"}


def test_b8_a_subscription_made_just_after_the_loss_gets_what_the_station_had() -> None:
    """Cells may still leave out objects that were in the station."""
    net = Venues({**ONE_VENUE, "una": "north"})
    popular_photo(net)
    net.run(40)
    net.stop_station("north")

    assert net.subscribe("una", "goal").total == 1
    assert net.heard("una") == ["goal1"]


def test_b8_a_station_that_restarts_unnoticed_is_not_taken_for_the_old_one() -> None:
    net = Venues({**ONE_VENUE, "una": "north"})
    popular_photo(net)
    net.run(40)
    net.stop_station("north")
    net.start_station("north")
    net.run(6)

    assert net.subscribe("una", "goal").total == 1
    assert net.heard("una") == ["goal1"], "from the cells: the station is empty"


def test_i23_b8_a_delete_reaches_a_station_that_was_cut_off() -> None:
    net = Venues(TWO_VENUES, stations=BOTH)
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)
    key = net.metadata("eve", "goal1").key
    north = [NodeId(name.encode()) for name, venue in net.venue.items() if venue == "north"]
    net.net.partition(north)

    net.delete("ann", key)
    net.run(20)
    assert net.stations["south"].context.content.read_item(WORLD_NUMBER, key) is not None
    assert net.stations["north"].operations.unconfirmed == 1

    net.net.heal()
    net.run(60)
    assert net.stations["south"].context.content.read_item(WORLD_NUMBER, key) is None
    assert net.stations["north"].operations.unconfirmed == 0
    assert net.found("fay", "goal") == set()


def test_i23_b8_a_delete_made_without_a_station_is_sent_to_the_next_one() -> None:
    net = Venues(TWO_VENUES, stations=BOTH)
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)
    key = net.metadata("eve", "goal1").key
    net.stop_station("north")
    net.run(6)
    net.delete("ann", key)

    net.start_station("north")
    net.run(60)

    assert net.stations["south"].context.is_unpublished(WORLD_NUMBER, key)
    assert net.found("fay", "goal") == set()


def test_i23_b8_a_station_that_returns_learns_the_deletes_that_it_missed() -> None:
    net = Venues(TWO_VENUES, stations=BOTH)
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)
    key = net.metadata("eve", "goal1").key
    net.stop_station("south")
    net.delete("ann", key)
    net.run(5)

    net.start_station("south")
    net.run(60)

    assert net.stations["south"].context.is_unpublished(WORLD_NUMBER, key)
    assert net.found("fay", "goal") == set()


def test_b8_a_station_joins_running_ones_and_learns_their_worlds() -> None:
    net = Venues(ONE_VENUE, stations=BOTH)
    east = NodeId(b"east")
    now_us = net.net.now_us
    net.all_stations = (*BOTH, "east")
    net.venue["east"] = "east"
    net.start_station("east")
    for name in BOTH:
        net.stations[name].add_station(east, now_us)
    net.run(3)

    assert [entry.name for entry in net.stations["east"].context.worlds.entries()] == [WORLD]
    net.stations["north"].remove_station(east, now_us)
    assert list(net.stations["north"].context.stations) == [SOUTH]


def test_a_message_of_a_station_that_is_not_in_the_list_is_dropped_and_counted() -> None:
    net = Venues(ONE_VENUE)
    north = net.stations["north"]
    for message in (
        SubscriptionNeeds(1, 9, ()),
        ProvideItems(0, 1, ()),
        ConsumptionNotice(()),
        WorldList(0, (), 1),
    ):
        north.handle(Received(NodeId(b"stranger"), message), net.net.now_us)

    assert north.dropped == {"not a station of the list": 4}


def test_forged_cell_data_have_a_bounded_effect() -> None:
    net = Venues(ONE_VENUE)
    popular_photo(net)
    net.run(25)
    north = net.stations["north"]
    ghost = replace(net.metadata("ida", "goal1").key, oid="ghost")
    own = LogicalCells(2).cell_of_node(NodeId(b"joe"))
    forged = CellData(1, own, 2, (CellCycle(1, (DownloadCount(ghost, 1_000_000, ()),), ()),))
    for cell in (own, CellId(9)):
        message = ToStation(WORLD_NUMBER, cell, replace(forged, cell=cell))
        north.handle(Received(NodeId(b"joe"), message), net.net.now_us)
    net.run(40)

    assert north.dropped == {"cell data of an unknown cell": 1}
    found = [each.oid for each in north.context.content.find_popular(WORLD_NUMBER, "goal")]  # type: ignore[arg-type]
    assert found == ["goal1"], "there is no ghost, and the photo is cached all the same"


def test_caches_of_size_0_are_of_no_use_and_of_no_harm() -> None:
    none = CachesConfig(
        local_popularity_size=0,
        prefetch_metadata_size=0,
        prefetch_data_size=0,
        global_metadata_size=0,
        global_data_size=0,
    )
    net = Venues(TWO_VENUES, stations=BOTH, settings=replace(QUICK, caches=none))
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)

    assert net.heard("eve") == []
    assert net.found("joe", "goal") == {"goal1"}


def test_i3_the_number_of_cells_grows_with_the_crowd_and_nothing_is_lost() -> None:
    settings = replace(QUICK, cells_min=1, cells_max=50, nodes_per_cell=2)
    names = [f"node{number}" for number in range(12)]
    net = Venues(
        dict.fromkeys(names, "north"), settings=settings, config=LOGICAL_ROBUST, settle_s=4
    )
    net.insert("node0", "goal1", "goal")
    net.subscribe("node1", "save")
    net.run(60)

    [entry] = net.stations["north"].context.worlds.entries()
    assert entry.cells == 6
    assert {node.routing.cell for node in net.nodes.values()} - {0}, "nodes are in several cells"
    net.insert("node2", "save1", "save")
    net.run(2)

    assert net.heard("node1") == ["save1"]
    assert net.found("node3", "goal") == {"goal1"}


def test_i19_a_consumed_item_is_not_sent_again_for_some_cycles() -> None:
    def items_sent(*, notices: bool) -> list[int]:
        sharing = replace(QUICK.sharing, consumption_notices=notices)
        net = Venues(TWO_VENUES, stations=BOTH, settings=replace(QUICK, sharing=sharing))
        net.subscribe("eve", "goal")
        popular_photo(net)
        net.run(60)
        net.retrieve("eve", net.metadata("eve", "goal1"))
        net.stations["north"].sharing.items_per_answer.clear()
        net.run(61)
        return net.stations["north"].sharing.items_per_answer

    assert items_sent(notices=False) == [1] * 6
    assert items_sent(notices=True) == [0] * 5 + [1]


def test_the_caches_and_their_unlimited_twin_tell_the_same_story() -> None:
    def story(net: Venues) -> tuple[list[str], object]:
        net.subscribe("eve", "goal")
        popular_photo(net)
        net.run(60)
        data = net.retrieve("eve", net.metadata("eve", "goal1"))
        net.delete("ann", net.metadata("eve", "goal1").key)
        net.run(20)
        return net.heard("eve"), (data, net.found("tom", "goal"))

    limited = Venues(TWO_VENUES, stations=BOTH)
    unlimited = Venues(TWO_VENUES, stations=BOTH, make_content=PlainContent)
    assert story(limited) == story(unlimited) == (["goal1"], (b"pixels", set()))


def test_two_venues_with_loss_everywhere_still_share_what_is_popular() -> None:
    lossy = LinkConditions(loss=0.1, delay_us_min=500, delay_us_max=50_000)
    net = Venues(TWO_VENUES, stations=BOTH, config=LOGICAL_ROBUST, conditions=lossy, settle_s=15)
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(120)

    assert net.heard("eve") == ["goal1"]
