"""Stories of Thyme-Infrastructure: one venue with a station, and two that are joined by wire."""

from __future__ import annotations

from msgspec.structs import replace

from tests.substrates.infra.venues import QUICK, WORLD, Venues
from thyme.protocol.app_interface import Retrieve
from thyme.protocol.messages.cells import CellPage
from thyme.protocol.messages.common import RouteToNode
from thyme.protocol.messages.requests import FetchPage
from thyme.protocol.messages.stations import (
    CellData,
    ConsumptionNotice,
    ForceFetch,
    ProvideItems,
    StorageUpdate,
)
from thyme.substrates.infra.world_numbers import world_number

# In each venue two nodes of cell 0, which looks after "goal", and two of cell 1.
ONE_VENUE = dict.fromkeys(("ann", "bob", "ida", "joe"), "north")
TWO_VENUES = {**ONE_VENUE, **dict.fromkeys(("eve", "fay", "max", "tom"), "south")}
BOTH = ("north", "south")


def popular_photo(net: Venues, oid: str = "goal1") -> None:
    """Ann publishes a photo that the others of her venue retrieve."""
    for name in ("bob", "ida", "joe"):
        if not any(True for _ in net.heard(name)):
            net.subscribe(name, "goal")
    net.insert("ann", oid, "goal")
    net.run(1)
    for name in ("bob", "ida", "joe"):
        assert net.retrieve(name, net.metadata(name, oid)) == b"pixels"


def test_i2_i3_nodes_find_their_station_create_the_world_and_work() -> None:
    net = Venues(ONE_VENUE)

    assert {link.link.station for link in net.extensions.values()} == {b"north"}
    [entry] = net.stations["north"].context.worlds.entries()
    assert (entry.world, entry.name) == (world_number(WORLD), WORLD)

    net.subscribe("bob", "goal")
    net.insert("ann", "goal1", "goal")
    net.run(1)

    assert net.heard("bob") == ["goal1"]
    assert net.retrieve("bob", net.metadata("bob", "goal1")) == b"pixels"


def test_i5_i9_i11_what_is_retrieved_often_comes_into_the_station() -> None:
    net = Venues(ONE_VENUE)
    popular_photo(net)
    net.run(40)  # cell data, the first decision, which only counts, and the second

    assert net.messages(CellData)
    station = net.stations["north"]
    [found] = station.context.content.find_popular(world_number(WORLD), "goal")  # type: ignore[arg-type]
    assert found.oid == "goal1"
    assert net.messages(StorageUpdate)


def test_i21_a_late_subscriber_gets_a_cached_photo_once_and_from_the_station() -> None:
    net = Venues({**ONE_VENUE, "una": "north"})
    popular_photo(net)
    net.run(40)
    net.sent.clear()

    started = net.subscribe("una", "goal")

    assert started.total == 1
    assert net.heard("una") == ["goal1"]
    assert ("una", "north") in net.messages(FetchPage)
    pages = [page for _, _, page in net.sent if isinstance(page, CellPage)]
    assert not any(page.items for page in pages), "cells leave out what the station has"


def test_i22_a_download_is_served_by_the_station_first() -> None:
    net = Venues({**ONE_VENUE, "una": "north"})
    popular_photo(net)
    net.run(40)
    net.subscribe("una", "goal")

    assert net.retrieve("una", net.metadata("una", "goal1")) == b"pixels"
    assert net.extensions["una"].objects.served_by_station == 1


def test_i17_i18_i19_a_popular_photo_reaches_subscribers_in_another_venue() -> None:
    net = Venues(TWO_VENUES, stations=BOTH)
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)

    assert net.heard("eve") == ["goal1"]
    assert ("north", "south") in net.messages(ProvideItems)

    assert net.retrieve("eve", net.metadata("eve", "goal1")) == b"pixels"
    net.run(1)
    assert ("south", "north") in net.messages(ConsumptionNotice)


def test_i22_a_forced_download_goes_to_the_source_station() -> None:
    net = Venues(TWO_VENUES, stations=BOTH)
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)
    world = world_number(WORLD)
    photo = net.metadata("eve", "goal1")
    net.stations["south"].context.content.purge(world, photo.key)  # as if evicted

    assert net.retrieve("eve", photo) == b"pixels"

    assert ("eve", "south") in net.messages(ForceFetch)
    assert net.stations["south"].context.content.read(world, photo.key) == (b"pixels", False)


def test_i23_an_unpublished_photo_disappears_in_all_venues() -> None:
    net = Venues({**TWO_VENUES, "una": "south"}, stations=BOTH)
    net.subscribe("eve", "goal")
    popular_photo(net)
    net.run(60)
    key = net.metadata("eve", "goal1").key

    net.delete("ann", key)
    net.run(60)

    world = world_number(WORLD)
    for station in net.stations.values():
        assert station.context.content.read_item(world, key) is None
        assert station.context.is_unpublished(world, key)
    assert net.subscribe("una", "goal").total == 0
    assert net.found("tom", "goal") == set()
    assert net.fail("fay", Retrieve, metadata=net.metadata("eve", "goal1")) == "not_found"


def test_b8_a_venue_works_on_when_its_station_dies_and_uses_it_when_it_returns() -> None:
    net = Venues(ONE_VENUE)
    popular_photo(net)
    net.run(40)

    net.stop_station("north")
    net.run(5)
    assert {link.link.station for link in net.extensions.values()} == {None}
    net.insert("bob", "goal2", "goal")
    net.run(1)
    assert net.heard("ida") == ["goal1", "goal2"]
    assert net.found("joe", "goal") == {"goal1", "goal2"}

    net.start_station("north")
    net.run(15)
    assert {link.link.station for link in net.extensions.values()} == {b"north"}


def test_b8_a_node_that_walks_to_another_venue_is_served_there() -> None:
    net = Venues(TWO_VENUES, stations=BOTH)
    net.subscribe("ann", "save")
    net.insert("ann", "mine", "goal")
    net.walk("ann", "south")
    net.run(25)

    assert net.extensions["ann"].link.station == b"south"
    net.insert("eve", "save1", "save")
    net.run(1)

    assert net.heard("ann") == ["save1"]
    assert net.found("fay", "goal") == {"mine"}


def test_i25_without_a_known_address_the_stable_node_passes_requests_on() -> None:
    settings = replace(QUICK, mobile_addresses=0)
    net = Venues(ONE_VENUE, settings=settings)
    popular_photo(net)
    net.run(40)

    assert net.messages(RouteToNode), "InfraRouting"
    assert list(net.stations["north"].context.content.find_popular(world_number(WORLD), "goal"))  # type: ignore[arg-type]
