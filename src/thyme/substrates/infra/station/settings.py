"""Settings of a station: sizes, periods, limits and switches; all of them have defaults.

Entry points: `StationSettings`, and the profiles `PAPER` and `ROBUST`. `thyme.substrates.infra.
config_file` reads them from a file, together with addresses and ports.
Clauses: I28, B8.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from thyme.model.errors import InputError
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CELLS_MAX
from thyme.protocol.messages.stations import CYCLE_US_MAX, CYCLE_US_MIN
from thyme.substrates.infra.caches.config import PAPER_CACHES, ROBUST_CACHES, CachesConfig


class StationConfigError(InputError):
    """A setting of a station is missing, unknown, or out of range (I28)."""

    code = "bad_station_config"


class PopularitySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How popular items come into the station (I9, I10)."""

    decision_period_us: int = 30 * SECOND_US
    items_max: int = 100
    """The maximum number of items requested in one cycle."""
    active_window: int = 3
    """The number of cycles after which an item without downloads is no longer active."""
    batch_inserts: int = 3
    """The number of batch inserts in a cycle."""
    locations_max: int = 10
    """The maximum number of replicas remembered for an item."""
    ranking: bool = True
    """Whether items are ranked; without, all downloaded items are requested (C24)."""
    decay: float = 1.0
    """What remains of a count after each cycle; 1 for no decay (B8)."""


class GlobalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Publish/subscribe between stations (I17–I20)."""

    needs_period_us: int = 60 * SECOND_US
    reply_window_us: int = 60 * SECOND_US
    """The length of a station's time slot (I20)."""
    consumption_notices: bool = True
    consumed_ignore_cycles: int = 5
    """How many answers omit an item that a station has consumed (I19)."""
    page_items_max: int = 20
    """The maximum number of items in one message (B8)."""


class StationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a station except addresses."""

    caches: CachesConfig = PAPER_CACHES
    mobile_addresses: int = 1_000
    """The size of the mobile address translation store (I25)."""
    mobile_address_ttl_us: int = 300 * SECOND_US
    popularity: PopularitySettings = PopularitySettings()
    sharing: GlobalSettings = GlobalSettings()
    mobile_timeout_us: int = 3 * SECOND_US
    station_timeout_us: int = 3 * SECOND_US
    tries_max: int = 3
    mobile_requests_max: int = 1_000
    """The maximum number of requests to mobile nodes under way at the same time."""
    station_requests_max: int = 1_000
    """The maximum number of requests to other stations under way at the same time."""
    nodes_per_cell: int = 5
    """The number of mobile nodes for which a world gets one more cell (I3)."""
    cells_min: int = 4
    cells_max: int = 1_000
    cell_data_period_us: int | None = None
    """The length of a cycle of cell data (I7); None for the mobile nodes' own setting."""

    def __post_init__(self) -> None:
        check_settings(self)


_ENTRIES_MAX = 10_000_000
_PERIOD_US_MAX = 24 * 3600 * SECOND_US


def check_settings(settings: StationSettings) -> None:
    """Raises `StationConfigError` for a value out of range; names the setting."""
    popularity, sharing = settings.popularity, settings.sharing
    ranges: list[tuple[str, float, float, float]] = [
        ("mobile_addresses.size", settings.mobile_addresses, 0, _ENTRIES_MAX),
        ("mobile_addresses.ttl_ms", settings.mobile_address_ttl_us, 1, _PERIOD_US_MAX),
        ("popularity.decision_period_ms", popularity.decision_period_us, 1, _PERIOD_US_MAX),
        ("popularity.items_max", popularity.items_max, 0, _ENTRIES_MAX),
        ("popularity.active_window", popularity.active_window, 0, _ENTRIES_MAX),
        ("popularity.batch_inserts", popularity.batch_inserts, 1, 1_000),
        ("popularity.locations_max", popularity.locations_max, 1, 1_000),
        ("popularity.decay", popularity.decay, 0.0, 1.0),
        ("sharing.needs_period_ms", sharing.needs_period_us, 1, _PERIOD_US_MAX),
        ("sharing.reply_window_ms", sharing.reply_window_us, 1, _PERIOD_US_MAX),
        ("sharing.consumed_ignore_cycles", sharing.consumed_ignore_cycles, 0, 1_000_000),
        ("sharing.page_items_max", sharing.page_items_max, 1, 10_000),
        ("requests.mobile_timeout_ms", settings.mobile_timeout_us, 1, _PERIOD_US_MAX),
        ("requests.station_timeout_ms", settings.station_timeout_us, 1, _PERIOD_US_MAX),
        ("requests.tries_max", settings.tries_max, 1, 100),
        ("requests.mobile_max", settings.mobile_requests_max, 1, 1_000_000),
        ("requests.station_max", settings.station_requests_max, 1, 1_000_000),
        ("worlds.nodes_per_cell", settings.nodes_per_cell, 1, 100_000),
        ("worlds.cells_min", settings.cells_min, 1, CELLS_MAX - 1),
        (
            "worlds.cell_data_period_ms",
            CYCLE_US_MIN if settings.cell_data_period_us is None else settings.cell_data_period_us,
            CYCLE_US_MIN,
            CYCLE_US_MAX,
        ),
        ("worlds.cells_max", settings.cells_max, settings.cells_min, CELLS_MAX - 1),
    ]
    for name, value, lowest, highest in ranges:
        if not lowest <= value <= highest:
            unit = 1_000 if name.endswith("_ms") else 1  # durations are in microseconds here
            lowest, highest, value = (each / unit for each in (lowest, highest, value))
            raise StationConfigError(
                f"{name}: from {lowest:.12g} to {highest:.12g}, not {value:.12g}"
            )


PAPER = StationSettings()
ROBUST = replace(PAPER, caches=ROBUST_CACHES, popularity=replace(PAPER.popularity, decay=0.9))
"""`PAPER` with better caches and popularity that decays (B8)."""
