"""Settings of a Thyme-DCS node, and the profiles `PAPER` and `ROBUST`.

Each part of the profile `robust` has its own setting, so that its benefit and its cost can be
measured separately.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec.structs import replace

from thyme.model.metadata import Limits
from thyme.model.time_frames import SECOND_US
from thyme.protocol.retry import RetryPolicy
from thyme.routing.cells.config import CellRoutingConfig
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.common.subscriber import SubscriberConfig


class KeyChoice(Enum):
    """How the key of a conjunction is chosen among its positive literals (D16)."""

    RANDOM = "random"
    RAREST = "rarest"
    """The literal that this node has seen least often; among equals the one with the closest cell
    (B10)."""
    NEAREST = "nearest"
    """The literal whose cell is closest."""
    FIRST = "first"
    """The first literal in order: equal conjunctions of different subscribers go to one cell."""


BEACON_NAMES_MAX = 30
"""How many names fit in a beacon."""


class AnnouncementConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Which passive replicas are announced, and when (D28)."""

    wanted: int = 2
    """How many of the readers that a cell notified of an object announce their replicas; a reader
    of a page does so if the page lists fewer."""
    delay_us: int = 10 * SECOND_US
    """How long announcements wait, so that those of several objects travel as one message."""


class ReplicationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The number of replicas of an object, and how they are found."""

    active_max: int | None = None
    """How many nodes of the owner's cell store an object, including the owner: None for all of
    them, 1 for no active replication (D14)."""
    crowded_nodes_min: int = 1
    """The number of nodes in a cell from which `active_max` applies; in a smaller cell all nodes
    store the object (B6)."""
    upkeep_us: int | None = None
    """The interval at which the holders of a partially replicated object replace holders that left
    the cell; None for never."""
    passive: bool = True
    """Whether a node that retrieved an object keeps it and announces its passive replica (D13)."""
    announcements: AnnouncementConfig | None = None
    """Which replicas are announced; None for every replica, to every tag cell and at once."""
    locate_again: bool = False
    """Whether a retrieve that every replica refused requests the replication list once more, since
    the object may have moved."""
    try_owner: bool = False
    """Whether a retrieve that a cell refused is sent to the owner in that cell next."""
    beacon_names_max: int = 0
    """How many objects that a node has retrieved its next beacon names at most, so that neighbours
    retrieve them there (`client.neighbour_replicas`); 0 for none."""
    ask_peers: bool = False
    """Whether the node that answers for its cell asks the other nodes of the cell for an object
    that it lacks, before the cell refuses (`service.peer_reads`)."""
    retrieve_tries_max: int = 5
    """The maximum number of attempts of one retrieve, over all replicas (D18)."""

    def __post_init__(self) -> None:
        if not 0 <= self.beacon_names_max <= BEACON_NAMES_MAX:
            raise ValueError(f"beacon_names_max is from 0 to {BEACON_NAMES_MAX}")


class CellJoiningConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a node joins its cell (D23)."""

    listen_us: int = 3 * SECOND_US
    """How long to listen for a beacon from the own cell."""
    tries_max: int = 3
    """How often the state of the cell is requested before the node starts without."""
    part_bytes_max: int = 1_200
    """The maximum size of one part of the state; a larger record is sent alone."""


class MovementConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a moving node settles in a cell (D20, D21)."""

    noise_m: float = 0.0
    """The standard error of the positions of a device, 0 if they are exact. With noise, a node
    changes its cell, and moves, with hysteresis (`membership.position_filter`)."""
    settle_us: int = 5 * SECOND_US
    """How long a device must be stationary before it joins the cell it is in."""
    announce_while_moving: bool = False
    """Whether a node announces the objects that no other node has at every cell boundary, not only
    once it has settled."""
    announce_on_start: bool = False
    """Whether a node that restarts with stored subscriptions announces its location."""


class BackupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the state of a small cell is backed up in another cell, in case its last nodes crash
    (B1)."""

    nodes_max: int = 1
    """The largest number of nodes in a cell that is backed up."""
    aggregation_us: int = SECOND_US
    """How long changes are collected before they are sent together."""
    refresh_us: int = 20 * SECOND_US
    """The interval at which an unchanged backup is confirmed to the cell that stores it."""
    ttl_us: int = 70 * SECOND_US
    """How long a backup is stored without being refreshed."""


class RecordCheckConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How often a node checks that cells know the records that it holds (D27)."""

    interval_us_min: int = 4 * SECOND_US
    """The time between two checks after a join or a re-announcement; it doubles after a few."""
    interval_us_max: int = 128 * SECOND_US
    """The time between two checks in a static network."""
    notifications: bool = False
    """Whether subscribers also check that they were notified of every match."""
    second_opinions: int = 0
    """How often a cell that has no match of a query is asked again: another of its nodes may have
    some."""
    compare_counts: bool = False
    """Whether a search also asks for the number of matches, beside the page: if another node of the
    cell counts more of them, the cell is asked again."""


class InsertPacingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a node slows its inserts down while the channel is busy (D28)."""

    prompt_us: int = SECOND_US
    """How long an insert takes at most that found the channel free."""
    interval_us_min: int = SECOND_US // 2
    """The time between two inserts after a late answer; it doubles with each further one."""
    interval_us_max: int = 16 * SECOND_US
    waiting_max: int = 16
    """How many inserts wait at most; further ones are refused."""
    wait_us_max: int = 30 * SECOND_US
    """How long an insert waits before it is refused."""


class NotificationDeliveryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How notifications are sent, acknowledged and sent again (D22, B3)."""

    wait_us_max: int = 60 * SECOND_US
    """How long an undelivered notification waits for the subscriber's location update; if
    notifications are acknowledged, how long a subscriber may be absent before it is suspected."""
    retry_us: int | None = None
    """How long to wait before an undelivered notification is sent again without a location update,
    longer after each attempt; None for never."""
    ack_timeout_us: int | None = None
    """How long to wait for an acknowledgement before a notification is sent again, longer after
    each attempt; None if notifications are not acknowledged (B3)."""
    ack_delay_us: int = 0
    """How long a subscriber collects acknowledgements, to send those for several messages as one;
    below half of `ack_timeout_us` (D28)."""
    tries_max: int = 4
    aggregation_us: int = 0
    """The shortest time between two messages to the same subscribers, while replies are slow if
    they are measured (`reply_wait_us_max`): notifications wait for it and travel as one (D28). Only
    where they are acknowledged."""
    busy_ack_delay_us: int = 0
    """How long a subscriber collects acknowledgements of notifications that follow each other
    within this time; a quarter of it while replies are measured and not slow. Needs
    `compact_messages` (D28)."""
    pending_max: int = 1_000
    """The maximum number of sent messages that are remembered, and of notifications that are
    pending."""
    destinations_max: int = 50
    """The maximum number of subscribers that one message notifies; for more, another message is
    sent (D9)."""


class DcsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a Thyme-DCS node; the defaults are the profile `PAPER`."""

    limits: Limits = Limits()
    retries: RetryPolicy = RetryPolicy()
    replication: ReplicationConfig = ReplicationConfig()
    joining: CellJoiningConfig = CellJoiningConfig()
    movement: MovementConfig = MovementConfig()
    backup: BackupConfig | None = None
    """Backups of small cells (`robust.cell_backup`); None for no backups."""
    broker: BrokerConfig = BrokerConfig(metadata_only=True)
    subscriber: SubscriberConfig = SubscriberConfig()
    retention: Retention = Retention()
    """The retention of the objects stored on a node: its own, active and passive replicas (M29)."""
    key_choice: KeyChoice = KeyChoice.RANDOM
    notification_delivery: NotificationDeliveryConfig = NotificationDeliveryConfig()
    insert_pacing: InsertPacingConfig | None = None
    """How inserts wait for a busy channel (`client.insert_pacing`); None: they do not."""
    reply_wait_us_max: int | None = None
    """How long a node waits at most before it repeats a request or a notification for the first
    time, if replies take long at present (`protocol.round_trip`, D28); None if the wait does not
    depend on it."""
    compact_messages: bool = False
    """Whether pages and notifications are sent in compact form (`messages.compact`, D28)."""
    small_object_bytes_max: int = 0
    """The size up to which an object is sent with its metadata, so that readers need not retrieve
    it; needs `compact_messages`. 0 for none, in all profiles: notifications carry metadata only
    (M16), and a reader could retrieve an object that was deleted meanwhile (M14)."""
    anti_entropy: bool = False
    """Whether cell peers remove differences between their states (`robust.anti_entropy`)."""
    reannounce: bool = False
    """Whether nodes announce their records again after topology changes (`robust.reannounce`)."""
    record_checks: RecordCheckConfig | None = None
    """Checks that cells know the records of a node (`robust.record_checks`); they need
    `reannounce`. None for no checks."""
    routing: CellRoutingConfig = CellRoutingConfig()
    """Settings of the cell routing."""
    world_ends_us: int | None = None
    in_chunks: bool = False
    """Whether large objects are sent in chunks (M37), not as a whole."""

    def __post_init__(self) -> None:
        if not self.broker.metadata_only:
            raise ValueError("cells store metadata only (D11): set broker.metadata_only")


PAPER = DcsConfig()
"""The profile of the papers: notifications and broadcasts within a cell rely on the link layer."""

ROBUST = replace(
    PAPER,
    anti_entropy=True,
    reannounce=True,
    record_checks=RecordCheckConfig(),
    insert_pacing=InsertPacingConfig(),
    backup=BackupConfig(aggregation_us=3 * SECOND_US),
    notification_delivery=NotificationDeliveryConfig(
        wait_us_max=3600 * SECOND_US,
        retry_us=SECOND_US,
        ack_timeout_us=4 * SECOND_US // 5,
        ack_delay_us=7 * SECOND_US // 20,
        tries_max=8,
        pending_max=4_000,
        aggregation_us=3 * SECOND_US // 10,
        busy_ack_delay_us=4 * SECOND_US,
    ),
    reply_wait_us_max=4 * SECOND_US,
    compact_messages=True,
    replication=ReplicationConfig(
        active_max=3,
        crowded_nodes_min=5,
        upkeep_us=10 * SECOND_US,
        announcements=AnnouncementConfig(wanted=1),
        locate_again=True,
        try_owner=True,
        beacon_names_max=24,
        ask_peers=True,
    ),
    key_choice=KeyChoice.RAREST,
    movement=MovementConfig(announce_while_moving=True, announce_on_start=True),
    routing=CellRoutingConfig(
        beacon_gap_us_max=5 * SECOND_US // 4,
        share_hops=True,
        always_perimeter=False,
        broadcast_reads=False,
        broadcast_redundant=False,
        broadcast_tries_max=5,
    ),
)
"""`PAPER` plus the extensions to the papers' protocol: the components anti-entropy, re-announcement
and backups, acknowledged notifications, few but maintained replicas, and fewer broadcasts."""

LOGICAL_ROBUST = replace(
    ROBUST,
    joining=CellJoiningConfig(tries_max=10),
    replication=replace(
        ROBUST.replication, announcements=AnnouncementConfig(wanted=2), beacon_names_max=0
    ),
    notification_delivery=replace(
        ROBUST.notification_delivery,
        ack_timeout_us=3 * SECOND_US // 10,
        ack_delay_us=0,
        aggregation_us=0,
        busy_ack_delay_us=0,
    ),
    reply_wait_us_max=None,
    compact_messages=False,
    routing=replace(
        ROBUST.routing,
        broadcast_tries_max=10,
        answer_when_known=True,
        insert_wait_tries=4,
        confirm_replicas=True,
    ),
)
"""`ROBUST` for logical cells, which have no forwarding nodes that would repeat a lost message: new
objects are acknowledged, requests answered when all nodes of the cell know of them, joins are more
patient, and notifications are acknowledged at once, so that a lost one is sent again sooner."""
