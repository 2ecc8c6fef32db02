"""Stories of venues that meet, of cells without nodes, and of objects that are hard to find."""

from __future__ import annotations

from msgspec.structs import replace

from tests.stories.test_infra_stories import ONE_VENUE, TWO_VENUES, popular_photo
from tests.substrates.infra.venues import MOBILE, QUICK, WORLD, Venues
from thyme.model.ids import NodeId
from thyme.model.tags import as_tag
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.common import RouteToCell
from thyme.protocol.messages.stations import CellData, StorageUpdate, StoredObject
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.routing.cells import STATION_CELL, LogicalCells
from thyme.substrates.infra.mobile.cell_data import source_station
from thyme.substrates.infra.mobile.stability import StabilityPart, venue_number
from thyme.substrates.infra.world_numbers import world_number

WORLD_NUMBER = world_number(WORLD)


def test_i1_nodes_of_two_venues_that_meet_do_not_mix_their_cells() -> None:
    """All hear each other, as where two venues overlap; each belongs to its station's venue."""
    net = Venues(TWO_VENUES, stations=("north", "south"))
    popular_photo(net)
    net.overlap = True
    net.run(10)

    for name, venue in TWO_VENUES.items():
        routing = net.nodes[name].routing
        others = {
            node for cell in range(len(routing.cells)) for node in routing.nodes_in(CellId(cell))
        }
        strangers = {NodeId(n.encode()) for n, its in TWO_VENUES.items() if its != venue}
        assert not others & strangers, name


def test_i1_a_venue_has_a_number_and_a_node_without_a_station_has_none() -> None:
    north, south = NodeId(b"north"), NodeId(b"south")

    assert venue_number(None) == 0
    assert len({venue_number(north), venue_number(south), 0}) == 3
    part = StabilityPart(7, True, (3,), venue_number(north))
    assert StabilityPart.decode(part.encode()) == part


def test_b8_visitors_of_a_station_that_failed_stay_together_with_those_who_come() -> None:
    """A node that starts during the outage never had a station: it belongs to every venue."""
    net = Venues({**ONE_VENUE, "una": "north"})
    net.stop_station("north")
    net.run(8)
    net.go("una")
    net.come("una")
    net.run(8)
    popular_photo(net)

    assert net.found("una", "goal") == {"goal1"}


def test_i4_objects_of_another_venue_have_their_source_and_cells_know_what_is_cached() -> None:
    net = Venues(TWO_VENUES, stations=("north", "south"))
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)
    key = net.metadata("eve", "goal1").key

    assert source_station(net.nodes["eve"].index, key) in (None, NodeId(b"north"))
    south = [name for name, venue in TWO_VENUES.items() if venue == "south"]
    indexing = [name for name in south if net.nodes[name].index.get_object(key) is not None]
    assert indexing
    for name in indexing:
        [indexed] = [each for each in net.nodes[name].index.objects() if each.metadata.key == key]
        assert indexed.active[0].cell == STATION_CELL
        assert key in net.extensions[name].contents, "the nearest station has it"


def test_i5_i26_an_empty_cell_is_looked_after_by_another_for_stations_too() -> None:
    many = 64
    settings = replace(QUICK, cells_min=many, cells_max=many)
    mobile = replace(MOBILE, cells=many)
    net = Venues(ONE_VENUE, settings=settings, mobile=mobile)
    cells = LogicalCells(many)
    populated = {cells.cell_of_node(node_id) for node_id in (n.encode() for n in ONE_VENUE)}
    assert cells.cell_of_key("goal") not in populated
    popular_photo(net)
    net.run(40)

    station = net.stations["north"]
    assert station.context.content.statistics()["local_popularity"]["entries"] == 1
    assert net.messages(StorageUpdate), "the cells were told"
    assert station.mobiles.parked == 0


def test_i10_items_are_inserted_in_batches_with_slack_and_late_ones_are_ignored() -> None:
    net = Venues(ONE_VENUE)
    items = net.stations["north"].popular_items
    decisions_us: list[int] = []
    batches_us: list[int] = []
    decide, insert = items.on_decision_timer, items.on_batch_timer
    items.on_decision_timer = lambda now_us: (decisions_us.append(now_us), decide(now_us))[1]  # type: ignore[method-assign]
    items.on_batch_timer = lambda timer, now_us: (  # type: ignore[method-assign]
        batches_us.append(now_us),
        insert(timer, now_us),
    )[1]
    popular_photo(net)
    net.run(45)

    period_us, slack_us = QUICK.popularity.decision_period_us, SECOND_US
    assert QUICK.popularity.batch_inserts == 3
    first_us = decisions_us[1]  # the first one only counts
    assert decisions_us[2] - first_us == period_us
    within = [at_us - first_us for at_us in batches_us if 0 <= at_us - first_us < period_us]
    assert within == [(period_us - slack_us) * number // 3 for number in (1, 2, 3)]

    [photo] = net.stations["north"].context.content.find_popular(WORLD_NUMBER, as_tag("goal"))
    net.stations["north"].context.content.purge(WORLD_NUMBER, photo.key)
    late = Ok(StoredObject(1, photo, b"pixels"))
    assert items._accept((WORLD_NUMBER, photo.key), items.cycle - 1, late)
    assert net.stations["north"].context.counts["popular item too late"] == 1
    assert not items._arrived


def test_i22_a_download_goes_on_when_the_replica_it_was_to_come_from_moves_away() -> None:
    """The reader is told of replicas that leave before it asks; the station asks the owner."""
    net = Venues(TWO_VENUES, stations=("north", "south"))
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)
    metadata = net.metadata("eve", "goal1")
    for station in net.stations.values():
        station.context.content.purge(WORLD_NUMBER, metadata.key)
        station.context.popularity.forget((WORLD_NUMBER, metadata.key))

    assert net.retrieve("eve", metadata, seconds=20.0) == b"pixels"


def test_b8_a_download_without_a_known_source_asks_all_stations() -> None:
    net = Venues(TWO_VENUES, stations=("north", "south"))
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)
    metadata = net.metadata("eve", "goal1")
    south = net.stations["south"]
    south.context.content.purge(WORLD_NUMBER, metadata.key)
    south.context.sources.clear()
    net.extensions["eve"].objects._replica_locations.forget(metadata.key)
    for name in net.nodes:
        if net.venue[name] == "south":
            net.nodes[name].index.delete_object(metadata.key, metadata.owner, net.net.now_us, None)

    assert net.retrieve("eve", metadata, seconds=30.0) == b"pixels"
    assert south.context.counts["forced downloads"] == 1


def test_b8_a_retrieve_that_fails_asks_a_station_that_was_found_meanwhile() -> None:
    net = Venues({**ONE_VENUE, "una": "north"})
    popular_photo(net)
    net.run(40)
    net.subscribe("una", "goal")
    una, metadata = net.extensions["una"], net.metadata("una", "goal1")
    waiting: list[OnResult[bytes]] = []
    results: list[Result[bytes]] = []

    class Nobody:
        def retrieve(self, _: object, now_us: int, on_result: OnResult[bytes]) -> None:
            waiting.append(on_result)

    una.objects._objects = Nobody()  # type: ignore[assignment]
    una.link.station = None
    una.objects.retrieve(metadata, net.net.now_us, lambda result, _: results.append(result))
    una.link.station = NodeId(b"north")
    waiting[0](Failure("timeout", "nobody answered"), net.net.now_us)
    net.run(5)

    assert results == [Ok(b"pixels")]


def test_i6_a_node_that_claims_to_be_stable_and_never_reports_is_not_waited_for() -> None:
    net = Venues(ONE_VENUE)
    liars = [  # of each cell, the node with the lowest id among equals
        min(
            (name for name in ONE_VENUE if net.nodes[name].routing.cell == cell),
            key=str.encode,
        )
        for cell in {net.nodes[name].routing.cell for name in ONE_VENUE}
    ]
    for name in liars:
        net.extensions[name].cell_data.report = lambda now_us: None  # type: ignore[method-assign]
    popular_photo(net)
    net.run(60)
    station = net.stations["north"]
    senders = {name for name, _ in net.messages(CellData)}

    assert senders
    assert not senders & set(liars)
    assert station.context.content.statistics()["local_popularity"]["entries"] == 1


def test_i23_a_delete_goes_to_each_known_node_of_the_cells() -> None:
    """So that none misses it, if a broadcast in its cell is lost."""
    net = Venues(TWO_VENUES, stations=("north", "south"))
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)
    key = net.metadata("eve", "goal1").key
    net.sent.clear()
    net.delete("ann", key)
    net.run(5)

    cells = LogicalCells(2)
    indexing = [
        n for n in TWO_VENUES if cells.cell_of_node(NodeId(n.encode())) == cells.cell_of_key("goal")
    ]
    routed = {to for name, to in net.messages(RouteToCell) if name in ("north", "south")}
    assert routed == set(indexing)
    assert all(net.nodes[name].index.get_object(key) is None for name in TWO_VENUES)
