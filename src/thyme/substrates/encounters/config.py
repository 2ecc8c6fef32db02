"""Settings of the encounter substrates; the defaults are the values of the MobUser paper.

Entry points: `MobUserConfig`, `MfpsConfig`, `RapidConfig`, and `EncounterConfig`, which holds one
of them with the settings of every node.
Clauses: U1, U2, U3, U6, U7.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from thyme.model.errors import OptionError
from thyme.model.metadata import Limits
from thyme.model.tags import Tag
from thyme.model.time_frames import SECOND_US
from thyme.substrates.common.subscriber import SubscriberConfig
from thyme.substrates.encounters.memory_config import MEMORY_EVENTS, ListSizes, WhenFull

DISCOVERY_US = 300 * SECOND_US
"""The period of the discovery task (U1)."""
PROFILE_TOPICS_MAX = 256
"""Limit of the topics in a profile; a user's own topics are at most half of them."""
EVENTS_PER_EXCHANGE_MAX = 64
"""Limit of the events that a device sends to, and accepts from, one neighbour in one exchange."""
EXCHANGES_PER_MINUTE_MAX = 600
"""Limit of the exchanges that a device answers, against devices that flood it with profiles."""


class ExchangeMode(StrEnum):
    """How MobUser exchanges events (U3)."""

    WHOLE = "whole"
    """All matching events in one packet, as in the paper."""
    ONE_FOR_ONE = "one-for-one"
    """The next event only after one was received, against selfish devices; in the paper, too."""
    RECONCILE = "reconcile"
    """Devices compare their events first and send only what the other lacks: metadata first, then
    the bytes, small events before large ones."""


class MobUserConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of MobUser."""

    discovery_us: int = DISCOVERY_US
    lists: ListSizes = ListSizes()
    topics_added: int = 2
    """The least demanded topics in a generated profile; the paper gives no number (U2)."""
    topics_known: tuple[Tag, ...] = ()
    """Topics that all devices know from the start; others become known by received profiles."""
    exchange: ExchangeMode = ExchangeMode.WHOLE
    repeat_us: int = 0
    """How long a device remembers what it gave to a neighbour; within this time it sends only new
    events. 0, as in the paper: every discovery exchanges all."""

    def __post_init__(self) -> None:
        _check_period(self.discovery_us)
        if not 0 <= self.topics_added <= PROFILE_TOPICS_MAX // 2:
            raise OptionError(
                f"a generated profile adds 0 to {PROFILE_TOPICS_MAX // 2} topics, "
                f"not {self.topics_added}"
            )


class MfpsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of MFPS. The discovery period is the time in which the neighbours, at their mean
    speed, move `metres_per_period`, within bounds; 450 m give 300 s at 1.5 m/s (U7)."""

    memory_events: int = MEMORY_EVENTS
    when_full: WhenFull = WhenFull.REFUSE
    discovery_us_min: int = 200 * SECOND_US
    discovery_us: int = DISCOVERY_US
    """The period while the speed of the neighbours is unknown."""
    discovery_us_max: int = 400 * SECOND_US
    metres_per_period: float = 450.0

    def __post_init__(self) -> None:
        _check_period(self.discovery_us_min)
        if not self.discovery_us_min <= self.discovery_us <= self.discovery_us_max:
            raise OptionError("the discovery period must lie between its minimum and its maximum")


class RapidConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of RAPID. A device with n neighbours sends each event with probability
    min(1, `forwarders_expected` / n), so that about this many devices of a neighbourhood send
    it (U7)."""

    memory_events: int = MEMORY_EVENTS
    when_full: WhenFull = WhenFull.REFUSE
    discovery_us: int = DISCOVERY_US
    forwarders_expected: float = 2.0
    replies_us: int = SECOND_US
    """How long a device waits for the replies that tell it the number of its neighbours."""
    forward_us_max: int = SECOND_US
    """The longest random wait before a new event is forwarded."""

    def __post_init__(self) -> None:
        _check_period(self.discovery_us)
        if not self.forwarders_expected > 0:
            raise OptionError("the expected number of forwarders must be above 0")


def _check_period(period_us: int) -> None:
    if period_us < SECOND_US // 10:
        raise OptionError(f"a discovery period is at least 0.1 s, not {period_us} µs")


Protocol = MobUserConfig | MfpsConfig | RapidConfig


class EncounterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a node of an encounter substrate."""

    protocol: Protocol = MobUserConfig()
    limits: Limits = Limits(data_bytes_max=64 * 2**10, summary_bytes_max=4 * 2**10)
    """Events are small: an encounter lasts seconds."""
    subscriber: SubscriberConfig = SubscriberConfig()
    first_discovery_us: int | None = None
    """When the first discovery happens after the start; None: at random within one period, so
    that devices that start together do not discover each other together."""
    joules_per_hour: float | None = None
    """Energy that the device may spend on encounters (`battery`); None: no limit."""
    world_ends_us: int | None = None
