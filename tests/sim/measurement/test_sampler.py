"""S14, S17, D3: the state that nodes hold during a run and at its end, and the figures of the
cells."""

from __future__ import annotations

import io
from functools import cache

import pytest

from tests.sim.runs import AT_ONCE, delete, insert, scenario, subscribe, trace
from thyme.map.recording import MessageSentEvent, Recording, ReplicaEvent
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.protocol.messages.cell_records import CellId, CellTarget, PerimeterState
from thyme.protocol.messages.common import CellPacket
from thyme.protocol.messages.description import is_perimeter
from thyme.protocol.messages.requests import FetchStatus
from thyme.routing.cells import Grid
from thyme.sim.measurement.sampler import StateSamples, StoredCounts
from thyme.sim.results.state_summary import (
    Divergence,
    HotSpot,
    find_hot_spot,
    load_by_cell,
    summarise_cells,
    summarise_storage,
)
from thyme.sim.results.summary import RunSummary, summarise_run
from thyme.sim.run import Run, run
from thyme.sim.scenario import Substrate

GRID = Grid(columns=4, rows=2)
NOTHING = trace(2)
A, B, C = CellId(1), CellId(2), CellId(5)


def a_tag(cell: CellId, which: int = 0) -> str:
    """A tag whose key cell is this one."""
    tags = (f"tag{number}" for number in range(1_000))
    return [tag for tag in tags if GRID.cell_of_key(tag) == cell][which]


def test_a_node_that_moved_counts_in_each_cell_for_the_time_it_was_there() -> None:
    stays = [{A: 3}, {A: 1, B: 3}, {}]

    assert load_by_cell(stays, [10.0, 100.0, 7.0]) == {A: 35.0, B: 75.0}


def test_cells_are_populated_while_somebody_works_for_them() -> None:
    samples = StateSamples(
        stored=(),
        sample_count=4,
        populated_samples={A: 4, B: 1},
        cell_records={A: (frozenset(),)},
        cell_residency=({A: 4},),
    )

    cells = summarise_cells(samples, [8.0], GRID, NOTHING)

    assert (cells.cells, cells.populated_mean, cells.populated_end) == (8, 1.25, 1)
    assert (cells.empty_mean, cells.empty_end) == (6.75, 7)
    assert [(state.cell, state.populated, state.load) for state in cells.by_cell] == [
        (A, 1.0, 8.0),
        (B, 0.25, 0.0),
    ]


def test_the_hot_spot_is_the_busiest_cell_with_the_tags_that_belong_to_it() -> None:
    often, seldom, elsewhere = a_tag(B), a_tag(B, 1), a_tag(A)
    done = trace(
        2,
        insert(1, 0, "one", often),
        insert(2, 0, "two", f"{often} {seldom} {elsewhere}"),
        subscribe(3, 1, "s", f"{seldom} & !{a_tag(B, 2)}"),
        insert(4, 0, "three", often),
    )

    assert find_hot_spot({A: 10.0, B: 30.0}, GRID, done) == HotSpot(
        cell=B, load=30.0, share=0.75, tags=(often, seldom)
    )
    assert find_hot_spot({}, GRID, done) is None


def test_b2_nodes_of_a_cell_differ_in_what_not_all_of_them_know() -> None:
    same, more = frozenset("xy"), frozenset("xyz")
    samples = StateSamples(
        stored=(),
        sample_count=1,
        populated_samples={A: 1, B: 1, C: 1},
        cell_records={A: (same, same, more), B: (same,), C: (more, more)},
    )

    cells = summarise_cells(samples, [], GRID, NOTHING)

    assert cells.divergence == Divergence(
        pairs=4, pairs_differing=2, share=0.5, records=3 + 2 + 3, records_differing=1
    )


def test_storage_is_spread_over_all_nodes() -> None:
    samples = StateSamples(
        stored=(StoredCounts(3, 300, 8, 1), StoredCounts(), StoredCounts(0, 0, 4, 1))
    )

    storage = summarise_storage(samples)

    assert (storage.objects.max, storage.objects.mean) == (3, 1)
    assert (storage.bytes.max, storage.metadata.mean) == (300, 4)
    assert storage.subscriptions.mean == pytest.approx(2 / 3)


DONE = trace(
    6,
    subscribe(1, 1, "all", "goal | save"),
    insert(3, 0, "kept", "goal", size=500),
    insert(4, 2, "gone", "save"),
    delete(8, 2, "gone"),
)


@cache
def short_run(substrate: Substrate) -> Run:
    """Six nodes in six cells within range of each other; one inserts, one retrieves."""
    return run(scenario(substrate, nodes=6, area_m=(120.0, 80.0), reaction=AT_ONCE), DONE)


@cache
def outcome(substrate: Substrate) -> RunSummary:
    return summarise_run(short_run(substrate))


def test_s14_the_server_of_es_keeps_everything() -> None:
    holdings = short_run(Substrate.ES).samples.stored

    assert holdings[-1] == StoredCounts(objects=1, bytes=500, metadata=1, subscriptions=1)
    assert set(holdings[:-1]) == {StoredCounts()}
    assert outcome(Substrate.ES).cells is None


def test_s14_nodes_of_ls_keep_what_is_theirs_and_everybodys_subscriptions() -> None:
    holdings = short_run(Substrate.LS).samples.stored

    assert holdings[0] == StoredCounts(objects=1, bytes=500, metadata=1, subscriptions=1)
    assert {held.subscriptions for held in holdings} == {1}
    assert sum(held.objects for held in holdings) == 1


def test_s17_a_recording_of_dcs_says_who_has_which_object_and_which_steps_go_around() -> None:
    file = io.BytesIO()
    settled = scenario(Substrate.DCS, nodes=6, area_m=(120.0, 80.0), reaction=AT_ONCE)
    found = run(settled, DONE, recording_file=file)
    events = list(Recording(file.getvalue().splitlines()))

    kept = [event for event in events if isinstance(event, ReplicaEvent)]
    assert {event.oid for event in kept} == {"kept", "gone"}
    assert [(event.node, event.role) for event in kept if event.role == "own"] == [
        (0, "own"),
        (2, "own"),
    ]
    assert (1, "passive") in {(event.node, event.role) for event in kept}
    assert ("gone", 2, "") in {(event.oid, event.node, event.role) for event in kept}
    sent = [event for event in events if isinstance(event, MessageSentEvent)]
    assert {event.perimeter for event in sent if event.kind == "CellBeacon"} == {False}
    assert found.samples == short_run(Substrate.DCS).samples  # recording changes nothing


def test_d5_a_packet_goes_around_if_one_of_its_targets_does() -> None:
    perimeter = PerimeterState(CellId(0), CellId(1), CellId(0), CellId(1))
    targets = CellTarget(CellId(4)), CellTarget(CellId(5), None, perimeter)
    question = FetchStatus(1, Key(ObjectId("any"), NodeId(b"a")))

    def packet(*targets: CellTarget) -> CellPacket:
        return CellPacket(NodeId(b"a"), CellId(0), 1, 0, targets, question)

    assert is_perimeter(packet(*targets))
    assert not is_perimeter(packet(targets[0]))
    assert not is_perimeter(question)


def test_s14_a_run_of_dcs_has_figures_of_its_cells() -> None:
    run_of_dcs, cells = short_run(Substrate.DCS), outcome(Substrate.DCS).cells
    assert cells is not None

    assert cells.cells == 6
    assert cells.populated_end == len(run_of_dcs.samples.cell_records) > 0
    assert cells.populated_end + cells.empty_end == 6
    assert cells.hot_spot is not None
    assert cells.hot_spot.load == cells.load.max == max(state.load for state in cells.by_cell)
    assert cells.divergence.records >= 3  # the object's metadata, and two conjunctions
    # The owner has its object; the retriever still has the object deleted since (D13, D15).
    holdings = run_of_dcs.samples.stored
    assert (holdings[0].objects, holdings[0].bytes) == (1, 500)
    assert (holdings[1].objects, holdings[1].bytes) == (2, 600)
    assert outcome(Substrate.DCS).storage.metadata.max >= 1
