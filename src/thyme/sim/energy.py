"""Energy: what a node's radio and work cost, in joules and as a share of its battery.

The radio draws a power in each of its states; operations cost what was measured on phones; the rest
of the device draws a constant power. Drivers keep counters of microseconds and hand them to an
`EnergyMeter`.
Clauses: S9, C20. Sources: F Table 7 and 10.3.3; V Tables 5.1 and 5.3, and 5.4.2.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from thyme.model.errors import InputError

Operation = Literal["insert", "delete", "subscribe", "unsubscribe", "retrieve"]
Role = Literal["issue", "route", "process", "maintain"]


class EnergyError(InputError):
    """Powers, costs or counters that cannot be (S9)."""

    code = "bad_energy"


def _check_figures(record: msgspec.Struct) -> None:
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, float | int) and not (math.isfinite(value) and value >= 0):
            raise EnergyError(f"{name} is 0 or more, not {value}")


class RadioPower(msgspec.Struct, frozen=True, kw_only=True):
    """What the radio draws in each state, in watts.

    The default is that of ns-3: 380, 313, 273 and 33 mA at 3 V. The documents measured phones as a
    whole, not their radios.
    """

    transmit_w: float = 1.14
    receive_w: float = 0.939
    idle_w: float = 0.819
    sleep_w: float = 0.099

    def __post_init__(self) -> None:
        _check_figures(self)

    def joules(self, *, tx_us: int, rx_us: int, total_us: int, sleep_us: int = 0) -> float:
        """The energy of a span of which the radio was busy for a part, and idle for the rest."""
        idle_us = total_us - tx_us - rx_us - sleep_us
        if min(tx_us, rx_us, sleep_us, idle_us) < 0:
            raise EnergyError(
                f"{tx_us} µs of sending, {rx_us} of receiving and {sleep_us} of sleep are no parts "
                f"of {total_us} µs"
            )
        return (
            tx_us * self.transmit_w
            + rx_us * self.receive_w
            + sleep_us * self.sleep_w
            + idle_us * self.idle_w
        ) / 1e6


class RoleCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What one operation costs a node by its part in it, in joules above being on."""

    issue: float = 0.0
    """To the node that asks for it."""
    route: float = 0.0
    """To a node that passes it on."""
    process: float = 0.0
    """To the node that answers it."""
    maintain: float = 0.0
    """To the other nodes of that node's cell."""

    def __post_init__(self) -> None:
        _check_figures(self)


class OperationCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What operations cost, each by role."""

    insert: RoleCosts = RoleCosts()
    delete: RoleCosts = RoleCosts()
    subscribe: RoleCosts = RoleCosts()
    unsubscribe: RoleCosts = RoleCosts()
    retrieve: RoleCosts = RoleCosts()

    def joules(self, operation: Operation, role: Role) -> float:
        """The cost of a part in an operation."""
        costs: RoleCosts = getattr(self, operation)
        joules: float = getattr(costs, role)
        return joules


class Phone(msgspec.Struct, frozen=True, kw_only=True):
    """A device and what it spends."""

    name: str
    battery_mah: float
    battery_v: float = 3.8
    rest_w: float = 0.0
    """What everything but the radio and the operations draws while the device is on."""
    radio: RadioPower = RadioPower()
    operations: OperationCosts = OperationCosts()

    def __post_init__(self) -> None:
        _check_figures(self)
        if self.battery_j == 0:
            raise EnergyError(f"{self.name} has no battery")

    @property
    def battery_j(self) -> float:
        """What a full battery holds."""
        return self.battery_mah * 3.6 * self.battery_v

    def battery_share(self, joules: float) -> float:
        """An energy as a share of a full battery; 0.01 is one per cent."""
        return joules / self.battery_j


class EnergyMeter:
    """Adds up what one node spends while it is on."""

    __slots__ = ("_phone", "operations_j", "rx_us", "sleep_us", "total_us", "tx_us")

    def __init__(self, phone: Phone) -> None:
        self._phone = phone
        self.tx_us = 0
        self.rx_us = 0
        self.sleep_us = 0
        self.total_us = 0
        self.operations_j = 0.0

    def add(self, *, tx_us: int, rx_us: int, total_us: int, sleep_us: int = 0) -> None:
        """Counts a span of time in which the node was on."""
        self.tx_us += tx_us
        self.rx_us += rx_us
        self.sleep_us += sleep_us
        self.total_us += total_us

    def count(self, operation: Operation, role: Role, times: int = 1) -> None:
        """Counts a node's part in operations."""
        self.operations_j += times * self._phone.operations.joules(operation, role)

    @property
    def radio_j(self) -> float:
        """What the radio has spent."""
        return self._phone.radio.joules(
            tx_us=self.tx_us, rx_us=self.rx_us, total_us=self.total_us, sleep_us=self.sleep_us
        )

    @property
    def joules(self) -> float:
        """What the node has spent."""
        rest_j = self._phone.rest_w * self.total_us / 1e6
        return self.radio_j + rest_j + self.operations_j

    @property
    def battery_share(self) -> float:
        """What the node has spent as a share of a full battery."""
        return self._phone.battery_share(self.joules)
