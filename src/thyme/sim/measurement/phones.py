"""Phones: the devices that the papers measured, as presets of the energy model.

Entry points: `NEXUS_6` and the other presets, `phone_by_name`. Batteries: Thyme (journal article),
Table 7; thesis, Table 5.1. Where a paper gives the energy of one per cent of a battery, the voltage
is chosen to agree; otherwise it is 3.8 V, usual for such batteries. The costs of operations were
measured on whole phones, radio included; the radio's part is smaller by three orders of magnitude,
so counting it twice makes no visible difference.
Clauses: S9, C20.
"""

from __future__ import annotations

from thyme.model.errors import InputError
from thyme.sim.measurement.energy import OperationCosts, Phone, RadioPower, RoleCosts

STANDBY_J_PER_MINUTE = 61.0
"""A Nexus 9 with Wi-Fi on and no work (Thyme (journal article), section 10.3.3)."""
REST_W = STANDBY_J_PER_MINUTE / 60 - RadioPower().idle_w
"""Standby power without the idle radio; used for all phones, as only the Nexus 9 was measured."""

# Thyme (journal article), section 10.3.3 (Nexus 9): about 2 J to issue an insert, the operation
# that costs most; about 1.5 J to process any request; slightly less to maintain the state of the
# cell: closed loops of ten minutes took 830 and 800 J. The text has no other figures, and none for
# forwarding.
_JOURNAL_COSTS = RoleCosts(issue=2.0, process=1.5, maintain=1.5 * 800 / 830)
JOURNAL_OPERATIONS = OperationCosts(
    insert=_JOURNAL_COSTS,
    delete=_JOURNAL_COSTS,
    subscribe=_JOURNAL_COSTS,
    unsubscribe=_JOURNAL_COSTS,
    retrieve=_JOURNAL_COSTS,
)

NEXUS_6_PERCENT_J = 440.0
"""Energy of one per cent of a Nexus 6's battery (thesis, section 5.4.2)."""


def _costs_from_percent(issue: int, route: int = 0, process: int = 0) -> RoleCosts:
    """Converts numbers of operations per one per cent of the battery to costs; 0: no cost."""
    return RoleCosts(
        issue=NEXUS_6_PERCENT_J / issue,
        route=NEXUS_6_PERCENT_J / route if route else 0.0,
        process=NEXUS_6_PERCENT_J / process if process else 0.0,
    )


# Thesis, Table 5.3 (Nexus 6): geographic Thyme, and Thyme with infrastructure.
THESIS_GEOGRAPHIC = OperationCosts(
    insert=_costs_from_percent(761, 481, 833),
    delete=_costs_from_percent(832, 506, 878),
    subscribe=_costs_from_percent(815, 497, 875),
    unsubscribe=_costs_from_percent(819, 499, 875),
    retrieve=_costs_from_percent(782, 493, 851),
)
THESIS_INFRASTRUCTURE = OperationCosts(
    insert=_costs_from_percent(761, process=833),
    delete=_costs_from_percent(528, process=878),
    subscribe=_costs_from_percent(493, process=812),
    unsubscribe=_costs_from_percent(819, process=829),
    retrieve=_costs_from_percent(782, process=851),
)
RETRIEVE_FROM_STATION_J = NEXUS_6_PERCENT_J / 873
"""Energy of a retrieve that a base station answers, for the phone (thesis, Table 5.3)."""
CELL_DATA_CHECK_J = NEXUS_6_PERCENT_J / 6500
"""Energy to check, once per cycle, that another node is the stable node of the cell (thesis,
section 5.4.2)."""
CELL_DATA_SEND_J = NEXUS_6_PERCENT_J / 853
"""Energy of the stable node to send the cell data to a base station, once per cycle (thesis,
section 5.4.2)."""

NEXUS_9 = Phone(
    name="HTC Nexus 9",
    battery_mah=6700,
    battery_v=3.98,  # one per cent is about 960 J (journal article, section 10.3.3)
    rest_w=REST_W,
    operations=JOURNAL_OPERATIONS,
)
NEXUS_6 = Phone(
    name="Motorola Nexus 6",
    battery_mah=3220,
    rest_w=REST_W,
    operations=THESIS_GEOGRAPHIC,
)
NEXUS_5X = Phone(name="LG Nexus 5X", battery_mah=2700, rest_w=REST_W, operations=THESIS_GEOGRAPHIC)
MOTO_G = Phone(
    name="Motorola Moto G (2nd gen.)",
    battery_mah=2070,
    rest_w=REST_W,
    operations=THESIS_GEOGRAPHIC,
)

PHONES = {"nexus-9": NEXUS_9, "nexus-6": NEXUS_6, "nexus-5x": NEXUS_5X, "moto-g": MOTO_G}
JOURNAL_TABLE_7 = (NEXUS_9, NEXUS_6, NEXUS_5X, MOTO_G)
THESIS_TABLE_5_1 = (NEXUS_6, MOTO_G)


def phone_by_name(name: str) -> Phone:
    """Returns the preset of a phone by its short name."""
    if name not in PHONES:
        raise InputError(f"a phone is one of {', '.join(PHONES)}, not {name!r}")
    return PHONES[name]
