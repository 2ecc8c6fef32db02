"""P6, S14, S15, S18: the measures of a run made by hand."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from tests.sim.runs import AT_ONCE, SHORT, delete, insert, scenario, subscribe, trace
from thyme.model.time_frames import SECOND_US
from thyme.sim.measurement.measurements import TrafficCount, distribution_of
from thyme.sim.measurement.sampler import StoredCounts
from thyme.sim.results.measures import first_cells, measures_of, model_parts
from thyme.sim.results.summary import summarise_run
from thyme.sim.run import Run, run
from thyme.sim.scenario import Substrate
from thyme.sim.users import Attempt, ReceivedNotification
from thyme.traces.oracle import Expected

NODES = 3


def us(at_s: float) -> int:
    """An instant of the run, given from the start of the operations."""
    return SHORT.origin_us + round(at_s * SECOND_US)


@cache
def some_run(substrate: Substrate = Substrate.LS) -> Run:
    return run(scenario(substrate, nodes=NODES), trace(NODES, insert(1, 0, "o")))


def measured(found: Run) -> dict[str, float]:
    return measures_of(found, summarise_run(found))


def starting(measures: dict[str, float], *starts: str) -> dict[str, float]:
    return {name: value for name, value in measures.items() if name.startswith(starts)}


def attempt(kind: str, name: str, from_s: float, to_s: float | None, code: str = "ok") -> Attempt:
    return Attempt(kind, 0, name, us(from_s), None if to_s is None else us(to_s), code)


def test_operations_are_measured_by_kind_and_together() -> None:
    """The object was deleted, so not finding it counts as success; a kind not issued has none."""
    found = replace(
        some_run(),
        trace=trace(NODES, insert(1, 0, "o"), delete(3, 0, "o")),
        attempts=[
            attempt("insert", "o", 1, 1.5),
            attempt("delete", "o", 3, 5),
            attempt("retrieve", "o", 4, 5, "not_found"),
            attempt("retrieve", "other", 4, 5, "not_found"),
            attempt("retrieve", "third", 4, None, "pending"),
        ],
    )

    measures = starting(measured(found), "issued.", "succeeded.", "success.", "latency_ms_")

    def latencies(kind: str, mean: float, p50: float, p95: float, most: float) -> dict[str, float]:
        values = {"mean": mean, "p50": p50, "p95": p95, "max": most}
        return {f"latency_ms_{name}.{kind}": value for name, value in values.items()}

    assert measures == {
        "issued.insert": 1, "succeeded.insert": 1, "success.insert": 1.0,
        "issued.delete": 1, "succeeded.delete": 1, "success.delete": 1.0,
        "issued.retrieve": 3, "succeeded.retrieve": 1, "success.retrieve": 1 / 3,
        "issued.operation": 5, "succeeded.operation": 3, "success.operation": 3 / 5,
        **latencies("insert", 500, 500, 500, 500),
        **latencies("delete", 2_000, 2_000, 2_000, 2_000),
        **latencies("retrieve", 1_000, 1_000, 1_000, 1_000),
        **latencies("operation", 3_500 / 3, 1_000, 2_000, 2_000),
    }  # fmt: skip


DOWN = {
    1: [(us(4), us(8)), (us(18), None)],
    2: [(us(5), None)],
}
"""The device of user 1 is down for a while and then for good; that of user 2 for good."""


@pytest.mark.parametrize(
    ("user", "at_s", "due_s"),
    [(1, 3, 3), (1, 4, 8), (1, 7.9, 8), (1, 8, 8), (1, 17.9, 17.9), (0, 24.9, 24.9), (2, 4.9, 4.9)],
)
def test_s15_a_notification_is_due_when_the_device_is_up(
    user: int, at_s: float, due_s: float
) -> None:
    """It was told one second after it was due."""
    found = replace(
        some_run(),
        trace=trace(NODES, insert(1, 0, "o"), subscribe(0, user, "s")),
        expected=[Expected(round(at_s * SECOND_US), user, "s", "o", 0, False)],
        notifications=[ReceivedNotification(user, "s", "o", us(1), us(due_s + 1))],
        downtimes=DOWN,
    )

    measures = measured(found)

    assert (measures["expected.notification"], measures["delivered.notification"]) == (1, 1)
    assert (measures["success.notification"], measures["unexpected"]) == (1.0, 0)
    assert measures["latency_ms_max.notification"] == 1_000


@pytest.mark.parametrize(("user", "at_s"), [(1, 18), (2, 5), (0, 25)])
def test_s15_a_notification_is_not_due_after_the_last_up_time_or_the_end(
    user: int, at_s: float
) -> None:
    found = replace(
        some_run(),
        trace=trace(NODES, insert(1, 0, "o"), subscribe(0, user, "s")),
        expected=[Expected(round(at_s * SECOND_US), user, "s", "o", 0, False)],
        notifications=[ReceivedNotification(user, "s", "o", us(1), us(25))],
        downtimes=DOWN,
    )

    measures = measured(found)

    assert (measures["expected.notification"], measures["unexpected"]) == (0, 1)
    assert "success.notification" not in measures
    assert "latency_ms_max.notification" not in measures


def test_a_run_without_notifications_has_no_measures_of_them() -> None:
    found = replace(some_run(), expected=[], notifications=[])

    assert not starting(measured(found), "expected.", "delivered.", "spurious", "duplicates")


def test_wrong_and_repeated_notifications_are_counted() -> None:
    wrong = ReceivedNotification(1, "s", "unknown", us(1), us(2))
    found = replace(some_run(), expected=[], notifications=[wrong, wrong, wrong])

    assert starting(measured(found), "spurious", "duplicates", "unexpected", "expected") == {
        "expected.notification": 0, "spurious": 1, "unexpected": 0, "duplicates": 2,
    }  # fmt: skip


def with_loads(*loads: int) -> Run:
    """A run whose nodes sent so many notifications and received one each."""
    found = some_run()
    nodes = [
        replace(node, loads={"Packet/Notify": TrafficCount(load, 10 * load, 1, 10)})
        for node, load in zip(found.measurements.nodes, loads, strict=True)
    ]
    total = TrafficCount(sum(loads), 10 * sum(loads), len(loads), 10 * len(loads), 3, 60)
    hot_spot = distribution_of([load + 1 for load in loads])
    measurements = replace(
        found.measurements,
        nodes=tuple(nodes),
        loads={"Packet/Notify": total},
        total=total,
        control=TrafficCount(2, 100),
        frames=40,
        frame_bytes=4_000,
        retransmissions=5,
        dropped={"exceeded": 2, "full": 1},
        hot_spot=hot_spot,
    )
    return replace(found, measurements=measurements)


def test_s14_traffic_is_measured_for_the_radio_and_by_type() -> None:
    measures = measured(with_loads(1, 2, 6))
    control_bytes = measures["control_bytes"]

    assert starting(measures, "phy_", "mac_", "forwarded", "messages.", "bytes.") == {
        "phy_bytes": 4_000, "phy_frames": 40, "mac_retransmissions": 5, "mac_exceeded": 2,
        "forwarded_bytes": 60 + 3 * 28, "messages.Packet/Notify": 9, "bytes.Packet/Notify": 90,
    }  # fmt: skip
    assert control_bytes > 100
    assert measures["control_share"] == control_bytes / 4_000


def test_load_is_measured_by_node_and_by_first_cell() -> None:
    """The loads are 2, 3 and 7; the first and the last device started in the same cell."""
    near, far = (5.0, 5.0), (55.0, 55.0)
    found = replace(with_loads(1, 2, 6), positions=[near, far, near])

    cells = first_cells(found)
    measures = measured(found)

    assert cells[0] == cells[2] != cells[1]
    assert starting(measures, "load_max") == {"load_max.node": 7, "load_max.cell": 9}
    assert measures["load_gini.node"] == pytest.approx(2 * (2 + 6 + 21) / (3 * 12) - 4 / 3)
    assert measures["load_gini.cell"] == pytest.approx(2 * (3 + 18) / (2 * 12) - 3 / 2)


def test_energy_is_that_of_user_devices() -> None:
    """The server of ES, the last device, is mains-powered."""
    found = some_run(Substrate.ES)
    joules = [1.0, 2.0, 6.0, 100.0]
    nodes = [
        replace(node, energy=replace(node.energy, joules=each, battery_share=each / 1_000))
        for node, each in zip(found.measurements.nodes, joules, strict=True)
    ]
    found = replace(found, measurements=replace(found.measurements, nodes=tuple(nodes)))

    assert starting(measured(found), "energy", "battery") == {
        "energy_j_mean": 3.0, "energy_j_max": 6.0, "battery_share_max": 0.006,
    }  # fmt: skip


def test_storage_is_measured_over_all_nodes() -> None:
    found = some_run()
    stored = [StoredCounts(1, 100, 2, 0), StoredCounts(3, 300, 2, 0), StoredCounts(2, 500, 2, 0)]
    found = replace(found, samples=replace(found.samples, stored=stored))

    assert starting(measured(found), "storage") == {
        "storage_mean.objects": 2, "storage_max.objects": 3,
        "storage_mean.object_bytes": 300, "storage_max.object_bytes": 500,
        "storage_mean.metadata": 2, "storage_max.metadata": 2,
        "storage_mean.subscriptions": 0, "storage_max.subscriptions": 0,
    }  # fmt: skip


def test_s18_the_parts_of_the_workload_are_measured_by_formula_and_as_simulated() -> None:
    """LS of 3 nodes: a subscription floods them all; upkeep has no formula."""
    found = run(
        scenario(Substrate.LS, nodes=NODES, reaction=AT_ONCE),
        trace(NODES, subscribe(1, 1, "s"), insert(2, 0, "o")),
    )

    parts = {each.part: each for each in model_parts(summarise_run(found))}
    measures = measured(found)

    assert measures["formula.subscribe"] == 1 * NODES
    assert "formula.upkeep" not in measures
    assert measures["simulated.upkeep"] == parts["upkeep"].simulated > 0
    assert measures["simulated.hot_spot"] == measures["load_max.node"]
    for part, each in parts.items():
        assert measures.get(f"formula.{part}") == each.formula
        assert measures[f"simulated.{part}"] == each.simulated
