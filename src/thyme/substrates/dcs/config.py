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
from thyme.routing.cells.config import CellsConfig
from thyme.substrates.broker import BrokerConfig
from thyme.substrates.catalogue import Retention
from thyme.substrates.graveyard import Burial
from thyme.substrates.subscriber import SubscriberConfig


class KeyChoice(Enum):
    """Which of its positive literals a conjunction is keyed by (D16)."""

    RANDOM = "random"
    RAREST = "rarest"
    """The one that was heard of least often, of several the one whose cell is closest (B10)."""
    NEAREST = "nearest"
    """The one whose cell is closest."""
    FIRST = "first"
    """The first in order: equal conjunctions of different subscribers meet in one cell."""


class ReplicationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How many copies of an object there are, and what is remembered of them."""

    active_max: int | None = None
    """How many nodes of the owner's cell keep an object, the owner among them: None for all of
    them, 1 for no active replication (D14)."""
    crowded_min: int = 1
    """From how many nodes in the cell on there are at most `active_max`; in a smaller one all keep
    it (B6)."""
    keep_up_us: int | None = None
    """How often those who hold one of few copies look whether the others are still there, and make
    another one if not; None for never."""
    passive: bool = True
    """Whether one who retrieved an object keeps it and says so (D13)."""
    passive_max: int = 5
    """How many passive replicas a replication list names, the most recent ones (D12)."""
    look_again: bool = False
    """Whether one who was refused by all asks once more where an object is: it may have moved."""
    ask_owner: bool = False
    """Whether one who was refused by a cell asks the owner in it."""
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


class MovingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a node that moves comes to rest (D20, D21)."""

    settle_us: int = 5 * SECOND_US
    """How long it must stand until it joins the cell it is in."""
    tell_objects: bool = False
    """Whether it says at each border, and not only when it stands, where the objects are that
    nobody else has."""
    renew: bool = False
    """Whether a node that comes up with subscriptions of an earlier life says where it is."""


class HandOverConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How keys find the cell where they belong, when cells fill and empty (D24, D25)."""

    check_us: int = SECOND_US
    """How often a node looks whether cells around it have filled."""
    turn_us: int = SECOND_US
    """How long the second of a cell waits for the first to hand over, the third for both."""
    again_us: int = 20 * SECOND_US
    """After what time it is tried again, where nobody took it."""
    ask_us: int = 5 * SECOND_US
    """How long after a cell came into sight those out of sight are asked, too, who should have the
    keys: others have to learn of them first."""
    match_us: int = SECOND_US // 2
    """After what time without more of it, what was handed over is matched with what was here."""
    graves_us: int = 900 * SECOND_US
    """How long ago something may have left that is told along with what is there."""


class BackupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the state of a cell is kept elsewhere, too, in case its last nodes die (B1)."""

    nodes_max: int = 0
    """In how small a cell; 0 for never."""
    gather_us: int = SECOND_US
    """How long changes wait for others, to travel as one."""
    refresh_us: int = 20 * SECOND_US
    """How often who keeps it hears that it is still needed."""
    life_us: int = 70 * SECOND_US
    """How long it is kept without hearing so."""
    cells_max: int = 64
    """For how many cells a node keeps it."""


class RenewalConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How cells that lost something hear of it again from those who have it (B1, B2)."""

    on: bool = False
    """Whether beacons tell of unrest, and nodes say afterwards what cells should know of them."""
    calm_us: int = 15 * SECOND_US
    """For how long nothing must have happened until they begin; at most twice as long."""
    wait_us: int = 240 * SECOND_US
    """How long they wait for that."""
    keys_max: int = 64
    """Of how many objects a node tells at a time."""
    pace_us: int = 3 * SECOND_US
    """How long it then waits to tell of others; at most twice as long."""
    deletions_max: int = 64
    deletions_us: int = 900 * SECOND_US
    """How many deletions of its own a node says again, and for how long."""
    deletions_new_us: int = 60 * SECOND_US
    """For how long it says so while it is not calm, too."""
    skew_us: int = 5 * SECOND_US
    """How far ahead clocks may be."""


class ReturnedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of notifications that did not find their subscriber (D22)."""

    wait_us: int = 60 * SECOND_US
    """How long they wait to hear from the subscriber."""
    retry_us: int | None = None
    """After what time they are sent again nevertheless, longer each time; None for never."""
    receipt_us: int | None = None
    """After what time without a word from the subscriber they are sent again, longer each time;
    None if nobody says that they came (B3)."""
    tries_max: int = 4
    gather_us: int = 0
    """For how long notifications are kept back, so that those for the same subscribers travel as
    one; only where they are acknowledged."""
    notes_max: int = 1_000
    """How many are remembered that may come back, and how many may wait."""
    targets_max: int = 50
    """How many subscribers one notification goes to; for more, another is sent (D9)."""


class RepairConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How nodes of one cell come to know the same (B2)."""

    digests: bool = False
    """Whether beacons carry a digest, and who differs is told what it lacks."""
    beacons_min: int = 2
    """How many beacons in a row must differ: news may be on their way."""
    jitter_us: int = SECOND_US
    """How long at most to wait for others who may do the same."""
    pause_us: int = 2 * SECOND_US
    """How long to leave a colleague alone after that; twice as long each time it was no use."""
    tries_max: int = 6
    """How often the pause is doubled."""
    marks_max: int = 500
    """How many marks are sent at once."""
    part_bytes_max: int = 1_200
    doubts_max: int = 1_000
    late_us: int = 60 * SECOND_US
    """How long ago a node may have answered for what it learns only now, to make up for it."""


class DcsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a node of Thyme-DCS; the defaults are the profile `PAPER`."""

    limits: Limits = Limits()
    retries: RetryPolicy = RetryPolicy()
    replication: ReplicationConfig = ReplicationConfig()
    joining: JoiningConfig = JoiningConfig()
    moving: MovingConfig = MovingConfig()
    hand_over: HandOverConfig = HandOverConfig()
    backup: BackupConfig = BackupConfig()
    broker: BrokerConfig = BrokerConfig(metadata_only=True)
    subscriber: SubscriberConfig = SubscriberConfig()
    retention: Retention = Retention()
    """Of the objects that a node holds for itself, its cell and others (M29)."""
    burial: Burial = Burial()
    key_choice: KeyChoice = KeyChoice.RANDOM
    keys_max: int = 10_000
    """For how many conjunctions the choice is remembered beyond the own subscriptions."""
    look_up_cells_max: int = 16
    returned: ReturnedConfig = ReturnedConfig()
    repair: RepairConfig = RepairConfig()
    renewal: RenewalConfig = RenewalConfig()
    cells: CellsConfig = CellsConfig()
    """Of the routing."""
    seam_us: int = SECOND_US // 2
    """For how long whoever took a subscription up also watches what others of the cell are told:
    they may not have heard of the subscription yet (M26)."""
    world_ends_us: int | None = None

    def __post_init__(self) -> None:
        if not self.broker.metadata_only:
            raise ValueError("cells keep metadata only (D11)")


PAPER = DcsConfig()
"""As in the documents: notifications and spreading within a cell are up to the link."""

ROBUST = DcsConfig(
    replication=ReplicationConfig(
        active_max=3, crowded_min=5, keep_up_us=10 * SECOND_US, look_again=True, ask_owner=True
    ),
    key_choice=KeyChoice.RAREST,
    returned=ReturnedConfig(retry_us=SECOND_US, receipt_us=SECOND_US // 2, tries_max=8),
    repair=RepairConfig(digests=True),
    cells=CellsConfig(
        loop_always=False, spread_questions=False, spread_known=False, spread_tries_max=5
    ),
    moving=MovingConfig(tell_objects=True, renew=True),
    backup=BackupConfig(nodes_max=1, gather_us=3 * SECOND_US),
    renewal=RenewalConfig(on=True),
)
"""With what the documents left open."""
