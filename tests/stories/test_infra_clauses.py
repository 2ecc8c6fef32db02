"""Single promises of the clauses of Thyme-Infrastructure that no other story depends on."""

from __future__ import annotations

from tests.stories.test_infra_stories import BOTH, ONE_VENUE, TWO_VENUES, popular_photo
from tests.substrates.infra.venues import WORLD, Venues
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.metadata import Limits
from thyme.model.object_chunks import WHOLE_BYTES_MAX
from thyme.model.tags import as_tag
from thyme.protocol.app_interface import Failed, UploadChunk
from thyme.protocol.messages.stations import (
    CellData,
    ProvidedItem,
    ProvideItems,
    StoredObject,
    WorldList,
)
from thyme.protocol.node import Received, SetTimer
from thyme.protocol.results import Ok
from thyme.routing.cells import LogicalCells
from thyme.substrates.infra.station.sharing import SlotTimer
from thyme.substrates.infra.station.time_slots import owner_of_slot
from thyme.substrates.infra.world_numbers import world_number

NORTH, SOUTH = NodeId(b"north"), NodeId(b"south")
WORLD_NUMBER = world_number(WORLD)
GOAL1 = Key(ObjectId("goal1"), NodeId(b"ann"))
CELLS = LogicalCells(2)


def test_i2_a_probe_is_repeated_until_a_station_answers() -> None:
    net = Venues({"ann": "north"}, settle_s=0)
    net.stop_station("north")
    net.run(1)
    assert net.extensions["ann"].link.station is None

    net.start_station("north")
    net.run(5)

    assert net.extensions["ann"].link.station == NORTH


def test_i2_the_first_station_to_answer_is_used_and_later_answers_are_not() -> None:
    net = Venues({"ann": "north"}, stations=BOTH)
    ann = net.extensions["ann"]
    late = WorldList(ann.link._probe_id, (), 1, 1_000_000)

    ann.on_received(SOUTH, late, net.net.now_us)

    assert ann.link.station == NORTH


def test_i3_a_world_that_is_created_at_one_station_is_announced_to_the_others() -> None:
    net = Venues({"ann": "north"}, stations=BOTH, settle_s=3)

    [entry] = net.stations["south"].context.worlds.entries()
    assert (entry.world, entry.name) == (WORLD_NUMBER, WORLD)


def test_i5_an_object_with_several_tags_counts_once_and_one_of_another_venue_not_at_all() -> None:
    tag = next(f"tag{n}" for n in range(99) if CELLS.cell_of_key(f"tag{n}") == 1)
    assert CELLS.cell_of_key("goal") == 0
    net = Venues(TWO_VENUES, stations=BOTH)
    net.subscribe("eve", "goal")
    for name in ("ida", "joe"):  # Bob has a replica, as a node of Ann's cell
        net.subscribe(name, "goal")
    net.insert("ann", "goal1", "goal", tag)
    net.run(1)
    for name in ("ida", "joe"):
        net.retrieve(name, net.metadata(name, "goal1"))
    net.run(60)
    assert net.retrieve("eve", net.metadata("eve", "goal1")) == b"pixels"
    net.run(30)

    reports = {  # a report is repeated until it is confirmed
        (net.venue[name], message.cell, cycle.cycle): cycle.downloads
        for name, _, message in net.sent
        if isinstance(message, CellData)
        for cycle in message.cycles
    }
    downloads = [(*place[:2], each) for place, found in reports.items() for each in found]
    assert {(venue, cell, each.key) for venue, cell, each in downloads} == {("north", 0, GOAL1)}
    assert sum(each.count for _, _, each in downloads) == 2


def test_i8_the_station_talks_to_a_cell_through_the_node_that_reports_for_it() -> None:
    net = Venues(ONE_VENUE)
    net.run(25)

    [reporter] = {
        name for name, _, sent in net.sent if isinstance(sent, CellData) and sent.cell == 0
    }
    addresses = net.stations["north"].addresses
    assert addresses.stable_node(WORLD_NUMBER, CELLS.cell_of_key("goal"), net.net.now_us) == (
        reporter.encode()
    )


def test_i9_the_first_decision_only_counts() -> None:
    net = Venues({"ann": "north"}, settle_s=1)
    station = net.stations["north"]
    items, now_us = station.popular_items, net.net.now_us
    station.context.popularity.record((WORLD_NUMBER, GOAL1), 1, (), 0)

    items.on_decision_timer(now_us)
    assert not items.requested_per_cycle
    items.on_decision_timer(now_us)
    assert dict(items.requested_per_cycle) == {2: 1}


def test_i11_cells_are_told_what_comes_into_the_station_and_what_leaves_it() -> None:
    net = Venues(ONE_VENUE)
    popular_photo(net)
    net.run(40)
    indexing = [name for name in ONE_VENUE if net.nodes[name].index.get_object(GOAL1) is not None]

    assert indexing
    assert all(GOAL1 in net.extensions[name].contents for name in indexing)

    net.stations["north"].context.content.purge(WORLD_NUMBER, GOAL1)  # as if evicted
    net.run(5)
    assert not any(GOAL1 in net.extensions[name].contents for name in indexing)


def test_i19_items_of_other_stations_are_prefetched_and_move_when_they_are_downloaded() -> None:
    net = Venues(TWO_VENUES, stations=BOTH)
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)
    content = net.stations["south"].context.content

    assert content.cache_of(WORLD_NUMBER, GOAL1) == "prefetch"
    net.retrieve("eve", net.metadata("eve", "goal1"))
    assert content.cache_of(WORLD_NUMBER, GOAL1) == "global"


def test_i20_b8_a_station_that_joins_moves_the_slots_of_the_others_at_once() -> None:
    net = Venues({"ann": "north"}, stations=BOTH)
    north, now_us = net.stations["north"], net.net.now_us
    window_us = north.context.settings.sharing.reply_window_us
    everybody = (NORTH, SOUTH, NodeId(b"east"))

    north.add_station(NodeId(b"east"), now_us)

    [slot] = [
        action.at_us
        for action in north.context.outbox.drain_actions()
        if isinstance(action, SetTimer) and isinstance(action.timer, SlotTimer)
    ]
    assert slot > now_us
    assert owner_of_slot(everybody, window_us, slot) == NORTH


def test_i23_an_unpublished_item_does_not_come_back_from_a_station_or_a_node() -> None:
    """The copies were on their way when the object was deleted."""
    net = Venues(TWO_VENUES, stations=BOTH)
    popular_photo(net)
    net.run(40)
    north, south = net.stations["north"], net.stations["south"]
    [photo] = north.context.content.find_popular(WORLD_NUMBER, as_tag("goal"))
    net.delete("ann", photo.key)
    net.run(5)

    items = ProvideItems(0, 1, (ProvidedItem(WORLD_NUMBER, photo, b"pixels"),))
    south.handle(Received(NORTH, items), net.net.now_us)
    popular = north.popular_items
    arrived = Ok(StoredObject(1, photo, b"pixels"))
    assert popular._accept((WORLD_NUMBER, photo.key), popular.cycle, arrived)
    net.run(15)

    for station in (north, south):
        assert station.context.content.read_item(WORLD_NUMBER, photo.key) is None
    assert south.context.counts["item not wanted"] == 1
    assert net.found("eve", "goal") == set()


def test_m37_objects_go_whole_and_chunks_are_refused_with_the_limit() -> None:
    """A station caches and passes on whole objects."""
    net = Venues(ONE_VENUE)
    refused = net.ask("ann", UploadChunk(request_id=900, upload="video", data=b"pixels"))
    assert isinstance(refused, Failed)
    assert refused.code == "unsupported"
    assert f"at most {Limits().data_bytes_max} bytes, as a whole" in refused.detail

    large = bytes(WHOLE_BYTES_MAX + 1)
    net.insert("ann", "video", "goal", data=large)
    net.subscribe("joe", "goal")
    assert net.retrieve("joe", net.metadata("joe", "video")) == large
