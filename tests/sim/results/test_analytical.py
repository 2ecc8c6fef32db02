"""S18, C16, C17: the formulas of Thyme (journal article) §8, compared with figures made by hand."""

from __future__ import annotations

import pytest

from thyme.model.errors import InputError
from thyme.model.tags import as_tags
from thyme.sim.results.analytical import (
    TIME_GROWTH,
    Approach,
    Growth,
    MessageEstimate,
    NetworkSize,
    Workload,
    estimate_all,
    estimate_messages,
    expected_network_size,
    notification_work_per_node,
    workload_of,
)
from thyme.traces.operations import InsertOperation, SubscribeOperation, UnsubscribeOperation
from thyme.traces.oracle import expected_notifications
from thyme.traces.trace import Trace

ES, LS, DCS = Approach.ES, Approach.LS, Approach.DCS
# 100 nodes: √n is 10. 25 cells: √ is 5, with 4 nodes each.
SCENE = NetworkSize(nodes=100, cells=25)
WORK = Workload(inserts=1_000, retrieves=200, subscribes=50, notifications=3_000)


@pytest.mark.parametrize(
    ("operation", "es", "ls", "dcs"),
    [
        ("insert", "O(√n)", "O(1)", "O(√n)"),
        ("delete", "O(√n)", "O(1)", "O(√n)"),
        ("retrieve", "O(√n)", "O(√n)", "O(√n)"),
        ("subscribe", "O(√n)", "O(n)", "O(√n)"),
        ("unsubscribe", "O(√n)", "O(n)", "O(√n)"),
    ],
)
def test_c17_time_grows_as_in_table_5(operation: str, es: str, ls: str, dcs: str) -> None:
    growth = TIME_GROWTH[operation]
    assert [growth[each].value for each in (ES, LS, DCS)] == [es, ls, dcs]


def test_growth_has_figures() -> None:
    assert [growth.evaluate(196) for growth in Growth] == [1, 14, 196]


def test_c17_es_as_in_table_6() -> None:
    assert estimate_messages(ES, WORK, SCENE) == MessageEstimate(
        insert=20_000,  # 2 · 1000 · 10
        retrieve=4_000,  # 2 · 200 · 10
        subscribe=1_000,  # 2 · 50 · 10
        notification=30_000,  # 3000 · 10
        hot_spot=4_250,  # 1000 + 200 + 50 + 3000
    )


def test_c17_ls_as_in_table_6() -> None:
    assert estimate_messages(LS, WORK, SCENE) == MessageEstimate(
        insert=0,
        retrieve=4_000,  # 2 · 200 · 10
        subscribe=5_000,  # 50 · 100
        notification=30_000,  # 3000 · 10
        hot_spot=3_250,  # 200 + 50 + 3000
    )


def test_c17_dcs_as_in_table_6() -> None:
    assert estimate_messages(DCS, WORK, SCENE) == MessageEstimate(
        insert=18_000,  # 2 · 1000 · 5 + 2 · 1000 · 4
        retrieve=3_800,  # 3 · 200 · 5 + 200 · 4
        subscribe=700,  # 2 · 50 · 5 + 50 · 4
        notification=15_000,  # 3000 · 5
        hot_spot=4_250,  # 1000 + 200 + 50 + 3000
    )


def test_the_table_has_all_three_and_totals() -> None:
    totals = {approach: row.total for approach, row in estimate_all(WORK, SCENE).items()}
    assert totals == {ES: 55_000, LS: 39_000, DCS: 37_500}


def test_deletes_and_unsubscribes_cost_what_inserts_and_subscribes_do() -> None:
    work = Workload(
        inserts=7, retrieves=0, subscribes=3, notifications=0, deletes=7, unsubscribes=3
    )
    for approach in Approach:
        row = estimate_messages(approach, work, SCENE)
        assert (row.delete, row.unsubscribe) == (row.insert, row.subscribe)
    assert estimate_messages(LS, work, SCENE).hot_spot == 6
    assert estimate_messages(DCS, work, SCENE).hot_spot == 20


def test_more_tags_and_keys_mean_more_cells_in_dcs_only() -> None:
    more = Workload(
        inserts=1_000,
        retrieves=200,
        subscribes=50,
        notifications=3_000,
        tags_per_object=3,
        keys_per_subscription=2,
    )
    row = estimate_messages(DCS, more, SCENE)
    assert row.insert == 46_000  # 1000 · (3 · 2 · 5 + (3 + 1) · 4)
    assert row.retrieve == 7_400  # 200 · (2 · 5 + 3 · 5 + 3 · 4)
    assert row.subscribe == 1_400  # 50 · 2 · (2 · 5 + 4)
    assert estimate_messages(ES, more, SCENE) == estimate_messages(ES, WORK, SCENE)
    assert estimate_messages(LS, more, SCENE) == estimate_messages(LS, WORK, SCENE)


def test_f_8_3_ls_grows_fastest_and_wins_where_inserts_are_many() -> None:
    """The conclusions of the journal article from the table."""
    many = Workload(inserts=10_000, retrieves=0, subscribes=10, notifications=0)
    few = Workload(inserts=10, retrieves=0, subscribes=10_000, notifications=0)
    rows = estimate_all(many, SCENE)
    assert rows[LS].total < min(rows[ES].total, rows[DCS].total)
    rows = estimate_all(few, SCENE)
    assert rows[LS].total > max(rows[ES].total, rows[DCS].total)
    larger = NetworkSize(nodes=400, cells=100)
    grown = {
        each: estimate_messages(each, few, larger).total / rows[each].total for each in Approach
    }
    assert grown[LS] == pytest.approx(4, rel=0.01)
    assert grown[ES] == pytest.approx(2)
    assert grown[DCS] < 2


def test_c16_notification_work_falls_with_the_nodes_of_the_cell() -> None:
    """Thyme (journal article), figure 8, for 100 notifications."""
    work = [notification_work_per_node(100, nodes) for nodes in (1, 2, 4, 5, 10)]
    assert work == [100, 50, 25, 20, 10]
    with pytest.raises(InputError):
        notification_work_per_node(100, 0.5)


def test_cells_that_nobody_is_in_do_not_count() -> None:
    """Two nodes on two cells: as often in one as in two."""
    assert expected_network_size(2, 2) == NetworkSize(nodes=2, cells=1.5)
    assert expected_network_size(2, 2).nodes_per_cell == pytest.approx(4 / 3)
    assert expected_network_size(5, 1) == NetworkSize(nodes=5, cells=1)
    # S12: 100 nodes on 50 cells of 40 m. 50 · (1 − 0.98¹⁰⁰) = 43.37.
    assert expected_network_size(100, 50).cells == pytest.approx(43.37, abs=0.01)


def test_the_workload_of_a_trace_is_counted() -> None:
    trace = Trace(
        2,
        (
            SubscribeOperation(0, 0, "s1", "goal"),
            SubscribeOperation(0, 0, "s2", "goal | eder"),
            InsertOperation(1, 1, "x", as_tags(["goal"]), 3),
            InsertOperation(2, 1, "y", as_tags(["eder", "final", "replay"]), 3),
            UnsubscribeOperation(3, 0, "s1"),
        ),
    )
    work = workload_of(trace, expected_notifications(trace), retrieve_probability=0.5)
    assert work == Workload(
        inserts=2,
        retrieves=1,  # half of two objects; one of them was notified twice
        subscribes=2,
        notifications=3,
        unsubscribes=1,
        tags_per_object=2,
        keys_per_subscription=1.5,
    )


@pytest.mark.parametrize(("nodes", "cells"), [(0, 1), (4, 0), (4, 5)])
def test_scenes_that_cannot_be_are_refused(nodes: int, cells: float) -> None:
    with pytest.raises(InputError):
        NetworkSize(nodes=nodes, cells=cells)


def test_a_workload_is_not_negative() -> None:
    with pytest.raises(InputError, match="inserts must not be negative"):
        Workload(inserts=-1, retrieves=0, subscribes=0, notifications=0)
