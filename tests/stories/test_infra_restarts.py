"""Stories of stations that restart with what they have confirmed (B8, M24)."""

from __future__ import annotations

from msgspec.structs import replace

from tests.builders import key
from tests.stories.test_infra_stories import BOTH, ONE_VENUE, TWO_VENUES, popular_photo
from tests.substrates.infra.venues import QUICK, WORLD, Venues
from thyme.model.ids import NodeId
from thyme.model.tags import Tag
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.protocol.messages.common import Unpublish
from thyme.protocol.messages.requests import DeleteObject
from thyme.protocol.messages.stations import TagNeed, WorldEntry
from thyme.storage.store import MemoryStore
from thyme.substrates.infra.station.popularity import ItemPopularity
from thyme.substrates.infra.station.records import (
    CYCLES_KEPT,
    CyclesRecord,
    NeedRecord,
    PopularityRecord,
    StationRecords,
)
from thyme.substrates.infra.world_numbers import world_number

WORLD_NUMBER = world_number(WORLD)
GOAL = Tag("goal")


def test_b8_an_item_that_was_counted_before_a_restart_comes_to_the_other_venue() -> None:
    """The cells have dropped the counts that the station confirmed: it alone has them."""
    net = Venues(TWO_VENUES, stations=BOTH, durable=True)
    net.stop_station("south")
    popular_photo(net)
    net.run(15)
    assert net.stations["north"].context.popularity.all_items()
    net.stop_station("north")
    for name in BOTH:
        net.start_station(name)
    net.run(8)
    net.subscribe("eve", "goal")
    net.run(60)

    assert net.heard("eve") == ["goal1"]


def test_b8_the_needs_of_visitors_survive_the_restart_of_their_station() -> None:
    net = Venues(TWO_VENUES, stations=BOTH, durable=True)
    net.subscribe("eve", "goal")
    net.run(20)
    net.stop_station("south")
    net.start_station("south")
    popular_photo(net)
    net.run(60)

    assert net.heard("eve") == ["goal1"]


def test_i23_b8_a_delete_that_a_station_confirmed_reaches_the_others_after_a_restart() -> None:
    """The station fails before it could pass the delete on, and the owner is gone."""
    net = Venues(TWO_VENUES, stations=BOTH, durable=True)
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)
    photo_key = net.metadata("eve", "goal1").key
    net.stop_station("south")
    net.delete("ann", photo_key)
    net.go("ann")
    net.stop_station("north")
    for name in BOTH:
        net.start_station(name)
    net.run(60)

    assert net.stations["south"].context.is_unpublished(WORLD_NUMBER, photo_key)
    assert net.found("fay", "goal") == set()


def test_i23_m24_a_delete_made_without_a_station_survives_the_restart_of_its_owner() -> None:
    net = Venues(TWO_VENUES, stations=BOTH, durable=True)
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)
    photo_key = net.metadata("eve", "goal1").key
    net.stop_station("north")
    net.run(6)
    net.delete("ann", photo_key)
    net.go("ann")
    net.come("ann")
    net.run(2)
    net.start_station("north")
    net.run(60)

    assert net.stations["south"].context.is_unpublished(WORLD_NUMBER, photo_key)
    assert net.found("fay", "goal") == set()


def test_i3_worlds_and_their_cells_are_the_same_after_a_restart() -> None:
    settings = replace(QUICK, cells_min=1, cells_max=50, nodes_per_cell=2)
    names = [f"node{number}" for number in range(12)]
    net = Venues(dict.fromkeys(names, "north"), settings=settings, settle_s=30, durable=True)
    before = net.stations["north"].context.worlds.entries()
    assert before == (WorldEntry(WORLD_NUMBER, WORLD, 6),)
    net.stop_station("north")
    net.start_station("north")
    net.run(1)

    assert net.stations["north"].context.worlds.entries() == before


def test_b8_a_world_created_while_stations_were_cut_off_is_known_everywhere_afterwards() -> None:
    net = Venues({"ann": "north"}, stations=BOTH, settle_s=0)
    north = [NodeId(name.encode()) for name, venue in net.venue.items() if venue == "north"]
    net.net.partition(north)
    net.run(20)
    assert net.stations["north"].context.worlds.entries()
    assert not net.stations["south"].context.worlds.entries()
    net.net.heal()
    net.stations["south"].add_station(NodeId(b"north"), net.net.now_us)
    net.subscribe("ann", "goal")
    net.run(30)
    net.stations["south"].needs.record(1, TagNeed(GOAL, 1))
    net.run(30)

    assert [each.name for each in net.stations["south"].context.worlds.entries()] == [WORLD]


def test_i7_a_cycle_that_was_processed_before_a_restart_does_not_count_again() -> None:
    net = Venues(ONE_VENUE, durable=True)
    popular_photo(net)
    net.run(15)
    [(item, before)] = net.stations["north"].context.popularity.all_items().items()
    reporters = {name: dict(each.cell_data._unconfirmed) for name, each in net.extensions.items()}
    assert not any(reporters.values()), "all cycles are confirmed"
    net.stop_station("north")
    station = net.start_station("north")
    net.run(20)

    assert station.context.popularity.get(item) is not None
    assert station.context.popularity.all_items()[item].downloads == before.downloads


# Records


class FullStore(MemoryStore):
    """A store on a disk without space."""

    def has_space(self, size_bytes: int) -> bool:
        return False


CELL = (7, 4, CellId(2))
ITEM, OTHER = (7, key(1)), (7, key(2))
DOWNLOADS = ItemPopularity(3.0, 5, (Replica(CellId(1), None),))


def saved(store: MemoryStore) -> StationRecords:
    records = StationRecords(store)
    records.save_world(WorldEntry(7, "match", 5))
    records.save_delete(Unpublish(3, 7, (GOAL,), DeleteObject(3, key(9))))
    items, needs = {ITEM: DOWNLOADS, OTHER: DOWNLOADS}, {(7, GOAL): TagNeed(GOAL, 2)}
    records.save_cell_data(CELL, range(CYCLES_KEPT + 5), items, needs)
    return records


def test_records_are_read_as_they_were_saved_and_cycles_are_bounded() -> None:
    store = MemoryStore()
    saved(store)
    records = StationRecords(store)
    popularity = PopularityRecord(3.0, DOWNLOADS.replicas)

    assert list(records.load_worlds()) == [WorldEntry(7, "match", 5)]
    assert list(records.load_deletes()) == [Unpublish(0, 7, (GOAL,), DeleteObject(0, key(9)))]
    assert list(records.load_popularity()) == [(ITEM, popularity), (OTHER, popularity)]
    assert list(records.load_needs()) == [NeedRecord(7, TagNeed(GOAL, 2))]
    cycles = CyclesRecord(CELL, tuple(range(5, CYCLES_KEPT + 5)))
    assert list(records.load_cycles()) == [cycles]


def test_records_of_what_the_station_forgot_are_removed() -> None:
    store = MemoryStore()
    records = saved(store)
    records.keep_only([OTHER], [])
    records.remove_delete((7, key(9)))

    assert [item for item, _ in records.load_popularity()] == [OTHER]
    assert list(records.load_needs()) == list(records.load_deletes()) == []
    records.remove_item(OTHER)
    assert list(records.load_popularity()) == []


def test_m24_on_a_full_disk_deletes_are_saved_and_counts_are_not() -> None:
    records = saved(FullStore())

    assert len(list(records.load_deletes())) == len(list(records.load_worlds())) == 1
    assert list(records.load_popularity()) == list(records.load_cycles()) == []
    assert records.not_saved == 1
