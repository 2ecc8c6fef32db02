"""Energy: joules worked out by hand, and the figures of the papers."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.model.errors import InputError
from thyme.model.time_frames import SECOND_US
from thyme.sim.measurement.energy import (
    EnergyError,
    EnergyMeter,
    OperationCosts,
    OperationName,
    OperationRole,
    Phone,
    RadioPower,
    RoleCosts,
)
from thyme.sim.measurement.phones import (
    CELL_DATA_CHECK_J,
    CELL_DATA_SEND_J,
    JOURNAL_TABLE_7,
    MOTO_G,
    NEXUS_5X,
    NEXUS_6,
    NEXUS_9,
    PHONES,
    RETRIEVE_FROM_STATION_J,
    THESIS_GEOGRAPHIC,
    THESIS_INFRASTRUCTURE,
    THESIS_TABLE_5_1,
    phone_by_name,
)

S = SECOND_US
ROUND = RadioPower(transmit_w=2.0, receive_w=1.0, idle_w=0.5, sleep_w=0.1)


def test_s9_each_state_of_the_radio_costs_its_power() -> None:
    # 1 s at 2 W, 3 s at 1 W, 2 s at 0.1 W, and the other 4 s at 0.5 W.
    spent = ROUND.joules(tx_us=1 * S, rx_us=3 * S, sleep_us=2 * S, total_us=10 * S)
    assert spent == pytest.approx(2 + 3 + 0.2 + 2)


def test_s9_a_frame_of_300_bytes_costs_half_a_millijoule() -> None:
    # 518 µs of sending at 1.14 W, 50 µs of receiving the acknowledgement at 0.939 W.
    spent = RadioPower().joules(tx_us=518, rx_us=50, total_us=568)
    assert spent == pytest.approx(590.52e-6 + 46.95e-6)


def test_s9_the_radio_of_ns3_draws_its_currents_at_3_volts() -> None:
    radio = RadioPower()
    powers = (radio.transmit_w, radio.receive_w, radio.idle_w, radio.sleep_w)
    assert powers == pytest.approx([3 * amperes for amperes in (0.380, 0.313, 0.273, 0.033)])


@given(
    st.lists(st.tuples(*[st.integers(0, 10**9)] * 4), max_size=20),
)
def test_s9_a_meter_adds_spans_like_one_long_span(spans: list[tuple[int, int, int, int]]) -> None:
    meter = EnergyMeter(Phone(name="test", battery_mah=1000, radio=ROUND, rest_w=0.25))
    for tx_us, rx_us, sleep_us, idle_us in spans:
        total_us = tx_us + rx_us + sleep_us + idle_us
        meter.add_time(tx_us=tx_us, rx_us=rx_us, sleep_us=sleep_us, total_us=total_us)
    tx_s, rx_s, sleep_s, idle_s = (sum(s[i] for s in spans) / 1e6 for i in range(4))
    radio_j = 2 * tx_s + rx_s + 0.1 * sleep_s + 0.5 * idle_s
    assert meter.radio_j == pytest.approx(radio_j)
    assert meter.joules == pytest.approx(radio_j + 0.25 * (tx_s + rx_s + sleep_s + idle_s))


def test_s9_a_meter_counts_operations_by_role() -> None:
    costs = OperationCosts(
        insert=RoleCosts(issue=2.0, process=1.5), retrieve=RoleCosts(issue=1.0, maintain=0.25)
    )
    meter = EnergyMeter(Phone(name="test", battery_mah=1000, battery_v=1.0, operations=costs))
    meter.add_operations("insert", "issue", times=3)
    meter.add_operations("insert", "process")
    meter.add_operations("retrieve", "maintain", times=2)
    meter.add_operations("subscribe", "issue", times=100)
    assert meter.joules == 3 * 2.0 + 1.5 + 2 * 0.25
    assert meter.battery_share == pytest.approx(8.0 / 3600)


def test_s9_counters_that_do_not_fit_together_are_refused() -> None:
    meter = EnergyMeter(NEXUS_9)
    meter.add_time(tx_us=6, rx_us=5, total_us=10)
    with pytest.raises(EnergyError, match="do not fit into 10 µs"):
        assert meter.joules
    with pytest.raises(EnergyError, match="do not fit"):
        ROUND.joules(tx_us=-1, rx_us=0, total_us=10)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_s9_powers_and_costs_that_cannot_be_are_refused(value: float) -> None:
    with pytest.raises(EnergyError, match="idle_w must be 0 or more"):
        RadioPower(idle_w=value)
    with pytest.raises(EnergyError, match="issue must be 0 or more"):
        RoleCosts(issue=value)
    with pytest.raises(EnergyError, match="rest_w must be 0 or more"):
        Phone(name="test", battery_mah=1000, rest_w=value)
    with pytest.raises(EnergyError, match="has no battery"):
        Phone(name="test", battery_mah=0)


# The papers' figures


def test_s9_the_phones_have_the_batteries_of_the_tables() -> None:
    assert [phone.battery_mah for phone in JOURNAL_TABLE_7] == [6700, 3220, 2700, 2070]
    assert [phone.battery_mah for phone in THESIS_TABLE_5_1] == [3220, 2070]
    assert tuple(PHONES.values()) == JOURNAL_TABLE_7 == (NEXUS_9, NEXUS_6, NEXUS_5X, MOTO_G)
    assert phone_by_name("nexus-6") is NEXUS_6
    with pytest.raises(InputError, match="one of nexus-9, nexus-6, nexus-5x, moto-g, not 'brick'"):
        phone_by_name("brick")


def test_s9_one_per_cent_of_a_battery_is_what_the_documents_say() -> None:
    assert NEXUS_9.battery_j / 100 == pytest.approx(960, rel=0.001)
    assert NEXUS_6.battery_j / 100 == pytest.approx(440, rel=0.002)


def test_c20_a_nexus_9_on_standby_uses_61_joules_a_minute() -> None:
    meter = EnergyMeter(NEXUS_9)
    meter.add_time(tx_us=0, rx_us=0, total_us=60 * S)
    assert meter.joules == pytest.approx(61)


def test_c20_ten_minutes_of_closed_loop_use_take_2_7_per_cent_of_a_nexus_9() -> None:
    assert NEXUS_9.battery_share(950 + 830 + 800) == pytest.approx(0.027, abs=0.0005)


def test_c20_an_insert_costs_2_joules_to_issue_and_1_5_to_process() -> None:
    costs = NEXUS_9.operations
    assert costs.joules("insert", "issue") == 2.0
    assert costs.joules("insert", "process") == 1.5
    assert 1.4 < costs.joules("insert", "maintain") < 1.5


def test_s9_the_costs_on_a_nexus_6_have_the_means_of_the_document() -> None:
    def mean(role: OperationRole) -> float:
        costs = [THESIS_GEOGRAPHIC.joules(operation, role) for operation in get_args(OperationName)]
        return sum(costs) / len(costs)

    assert mean("issue") == pytest.approx(0.55, abs=0.005)
    assert mean("process") == pytest.approx(0.51, abs=0.005)
    assert mean("route") == pytest.approx(0.89, abs=0.005)


def test_s9_with_infrastructure_phones_route_nothing_and_pay_more_for_subscribing() -> None:
    assert {
        THESIS_INFRASTRUCTURE.joules(operation, "route") for operation in get_args(OperationName)
    } == {0}
    for operation in ("subscribe", "delete"):
        before = THESIS_GEOGRAPHIC.joules(operation, "issue")
        assert THESIS_INFRASTRUCTURE.joules(operation, "issue") / before == pytest.approx(
            1.61, abs=0.05
        )
    assert pytest.approx(0.5, abs=0.01) == RETRIEVE_FROM_STATION_J
    assert CELL_DATA_CHECK_J < 0.1 < CELL_DATA_SEND_J
