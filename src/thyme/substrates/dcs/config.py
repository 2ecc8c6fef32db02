"""The settings of a node of Thyme-DCS, with the profile of the documents.

Each part of the profile `robust` is a setting of its own, so that its worth and its cost can be
told apart.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from thyme.model.frames import SECOND_US
from thyme.model.metadata import Limits
from thyme.protocol.operations import RetryPolicy
from thyme.substrates.broker import BrokerConfig
from thyme.substrates.catalogue import Retention
from thyme.substrates.graveyard import Burial
from thyme.substrates.subscriber import SubscriberConfig


class KeyChoice(Enum):
    """Which of its positive literals a conjunction is keyed by (D16)."""

    RANDOM = "random"
    FIRST = "first"
    """The first in order: equal conjunctions of different subscribers meet in one cell."""


class ReplicationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How many copies of an object there are, and what is remembered of them."""

    active_max: int | None = None
    """How many nodes of the owner's cell keep an object, the owner among them: None for all of
    them, 1 for no active replication (D14)."""
    passive: bool = True
    """Whether one who retrieved an object keeps it and says so (D13)."""
    passive_max: int = 5
    """How many passive replicas a replication list names, the most recent ones (D12)."""
    retrieve_tries_max: int = 5
    """How often an object is asked for, whomever (D18)."""
    whereabouts_max: int = 10_000
    """Of how many objects a node remembers the replication list that it was notified of."""


class JoiningConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a node becomes one of its cell (D23)."""

    listen_us: int = 3 * SECOND_US
    """How long to listen for a beacon from the own cell."""
    wait_us: int = SECOND_US
    """How long to wait for the whole state after asking, or after a part of it came."""
    tries_max: int = 3
    part_bytes_max: int = 1_200
    """How large a part of the state is; a larger record comes alone."""


class ReturnedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of notifications that did not find their subscriber (D22)."""

    wait_us: int = 60 * SECOND_US
    """How long they wait to hear from the subscriber."""
    retry_us: int | None = None
    """After what time they are sent again nevertheless, longer each time; None for never."""
    tries_max: int = 4
    notes_max: int = 1_000
    """How many are remembered that may come back, and how many may wait."""


class DcsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a node of Thyme-DCS; the defaults are the profile `PAPER`."""

    limits: Limits = Limits()
    retries: RetryPolicy = RetryPolicy()
    replication: ReplicationConfig = ReplicationConfig()
    joining: JoiningConfig = JoiningConfig()
    broker: BrokerConfig = BrokerConfig(metadata_only=True)
    subscriber: SubscriberConfig = SubscriberConfig()
    retention: Retention = Retention()
    """Of the objects that a node holds for itself, its cell and others (M29)."""
    burial: Burial = Burial()
    key_choice: KeyChoice = KeyChoice.RANDOM
    keys_max: int = 10_000
    """For how many conjunctions the choice is remembered beyond the own subscriptions."""
    look_up_cells_max: int = 16
    notify_targets_max: int = 50
    """How many subscribers one notification goes to; for more, another is sent (D9)."""
    returned: ReturnedConfig = ReturnedConfig()
    seam_us: int = SECOND_US // 2
    """For how long whoever took a subscription up also watches what others of the cell are told:
    they may not have heard of the subscription yet (M26)."""
    world_ends_us: int | None = None

    def __post_init__(self) -> None:
        if not self.broker.metadata_only:
            raise ValueError("cells keep metadata only (D11)")


PAPER = DcsConfig()
"""As in the documents: notifications and spreading within a cell are up to the link."""
