"""Energy: computes the energy that a node spends, in joules and as a share of its battery.

Entry point: `EnergyMeter`. The radio draws a power that depends on its state; each operation costs
the energy that was measured on phones; the rest of the device draws a constant power.
`thyme.sim.measurement.measurements` counts the times and operations; `thyme.sim.measurement.phones`
has the figures of real phones.
Clauses: S9, C20. Sources: Thyme (journal article), Table 7 and section 10.3.3; thesis, Tables 5.1
and 5.3 and section 5.4.2.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from thyme.model.errors import InputError

OperationName = Literal["insert", "delete", "subscribe", "unsubscribe", "retrieve"]
OperationRole = Literal["issue", "route", "process", "maintain"]


class EnergyError(InputError):
    """Powers, costs or times are negative, not finite or contradictory (S9)."""

    code = "bad_energy"


def _check_not_negative(record: msgspec.Struct) -> None:
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, float | int) and not (math.isfinite(value) and value >= 0):
            raise EnergyError(f"{name} must be 0 or more, not {value}")


class RadioPower(msgspec.Struct, frozen=True, kw_only=True):
    """The power of the radio in each state, in watts.

    The default is that of ns-3: 380, 313, 273 and 33 mA at 3 V. The papers measured whole phones,
    not their radios.
    """

    transmit_w: float = 1.14
    receive_w: float = 0.939
    idle_w: float = 0.819
    sleep_w: float = 0.099

    def __post_init__(self) -> None:
        _check_not_negative(self)

    def joules(self, *, tx_us: int, rx_us: int, total_us: int, sleep_us: int = 0) -> float:
        """Returns the energy of a time span; the time not listed otherwise counts as idle."""
        idle_us = total_us - tx_us - rx_us - sleep_us
        if min(tx_us, rx_us, sleep_us, idle_us) < 0:
            raise EnergyError(
                f"{tx_us} µs of sending, {rx_us} of receiving and {sleep_us} of sleep do not fit "
                f"into {total_us} µs"
            )
        return (
            tx_us * self.transmit_w
            + rx_us * self.receive_w
            + sleep_us * self.sleep_w
            + idle_us * self.idle_w
        ) / 1e6


class RoleCosts(msgspec.Struct, frozen=True, kw_only=True):
    """The energy of one operation by the role of the node, in joules above standby."""

    issue: float = 0.0
    """Cost for the node that issues the operation."""
    route: float = 0.0
    """Cost for a node that forwards the request."""
    process: float = 0.0
    """Cost for the node that answers the request."""
    maintain: float = 0.0
    """Cost for each other node of the answering node's cell."""

    def __post_init__(self) -> None:
        _check_not_negative(self)


class OperationCosts(msgspec.Struct, frozen=True, kw_only=True):
    """The energy of each kind of operation, by role."""

    insert: RoleCosts = RoleCosts()
    delete: RoleCosts = RoleCosts()
    subscribe: RoleCosts = RoleCosts()
    unsubscribe: RoleCosts = RoleCosts()
    retrieve: RoleCosts = RoleCosts()

    def joules(self, operation: OperationName, role: OperationRole) -> float:
        """Returns the energy of a role in an operation."""
        costs: RoleCosts = getattr(self, operation)
        joules: float = getattr(costs, role)
        return joules


class Phone(msgspec.Struct, frozen=True, kw_only=True):
    """A device model: its battery and the energy it spends."""

    name: str
    battery_mah: float
    battery_v: float = 3.8
    rest_w: float = 0.0
    """Power of the device without radio and operations, while it is on."""
    radio: RadioPower = RadioPower()
    operations: OperationCosts = OperationCosts()

    def __post_init__(self) -> None:
        _check_not_negative(self)
        if self.battery_j == 0:
            raise EnergyError(f"{self.name} has no battery")

    @property
    def battery_j(self) -> float:
        """Energy of a full battery."""
        return self.battery_mah * 3.6 * self.battery_v

    def battery_share(self, joules: float) -> float:
        """Converts an energy to a share of a full battery; 0.01 is one per cent."""
        return joules / self.battery_j


class EnergyMeter:
    """Adds up the energy that one node spends while it is on."""

    __slots__ = ("_phone", "operations_j", "rx_us", "sleep_us", "total_us", "tx_us")

    def __init__(self, phone: Phone) -> None:
        self._phone = phone
        self.tx_us = 0
        self.rx_us = 0
        self.sleep_us = 0
        self.total_us = 0
        self.operations_j = 0.0

    def add_time(self, *, tx_us: int, rx_us: int, total_us: int, sleep_us: int = 0) -> None:
        """Adds a span of time in which the node was on."""
        self.tx_us += tx_us
        self.rx_us += rx_us
        self.sleep_us += sleep_us
        self.total_us += total_us

    def add_operations(self, operation: OperationName, role: OperationRole, times: int = 1) -> None:
        """Adds operations in which the node had a role."""
        self.operations_j += times * self._phone.operations.joules(operation, role)

    @property
    def radio_j(self) -> float:
        """Energy that the radio has spent."""
        return self._phone.radio.joules(
            tx_us=self.tx_us, rx_us=self.rx_us, total_us=self.total_us, sleep_us=self.sleep_us
        )

    @property
    def joules(self) -> float:
        """Energy that the node has spent."""
        rest_j = self._phone.rest_w * self.total_us / 1e6
        return self.radio_j + rest_j + self.operations_j

    @property
    def battery_share(self) -> float:
        """Energy that the node has spent, as a share of a full battery."""
        return self._phone.battery_share(self.joules)
