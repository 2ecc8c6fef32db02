"""Settings of a Thyme-DCS node, and the profiles `PAPER` and `ROBUST`.

Each part of the profile `robust` has its own setting, so that its benefit and its cost can be
measured separately.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from thyme.model.metadata import Limits
from thyme.model.time_frames import SECOND_US
from thyme.protocol.request_tracker import RetryPolicy
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
    passive_max: int = 5
    """The maximum number of passive replicas in a replication list; the most recent ones are kept
    (D12)."""
    locate_again: bool = False
    """Whether a retrieve that every replica refused requests the replication list once more, since
    the object may have moved."""
    try_owner: bool = False
    """Whether a retrieve that a cell refused is sent to the owner in that cell next."""
    retrieve_tries_max: int = 5
    """The maximum number of attempts of one retrieve, over all replicas (D18)."""
    locations_max: int = 10_000
    """The maximum number of objects whose replication list a node caches."""


class CellJoiningConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a node joins its cell (D23)."""

    listen_us: int = 3 * SECOND_US
    """How long to listen for a beacon from the own cell."""
    wait_us: int = SECOND_US
    """How long to wait for the next part of the cell state after the request or the previous
    part."""
    tries_max: int = 3
    part_bytes_max: int = 1_200
    """The maximum size of one part of the state; a larger record is sent alone."""


class MovementConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a moving node settles in a cell (D20, D21)."""

    settle_us: int = 5 * SECOND_US
    """How long a device must be stationary before it joins the cell it is in."""
    announce_while_moving: bool = False
    """Whether a node announces the objects that no other node has at every cell boundary, not only
    once it has settled."""
    announce_on_start: bool = False
    """Whether a node that restarts with stored subscriptions announces its location."""


class StateTransferConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How keys are transferred to their key cell, or its proxy, when cells fill and empty (D24,
    D25)."""

    check_us: int = SECOND_US
    """The interval at which a node checks whether its cell is still the proxy of its proxied
    cells."""
    rank_delay_us: int = SECOND_US
    """How long a node waits for each cell peer before it in rank to transfer the state first."""
    retry_us: int = 20 * SECOND_US
    """How long to wait before a state transfer is repeated, if no cell accepted it."""
    probe_delay_us: int = 5 * SECOND_US
    """How long after a new populated cell was seen a probe is sent to find a proxy that is out of
    sight: other cells must learn of the new cell first."""
    match_delay_us: int = SECOND_US // 2
    """How long to wait for further parts of a transferred state before it is matched with the local
    records."""
    tombstone_age_us_max: int = 900 * SECOND_US
    """The maximum age of tombstones included in a state transfer."""


class BackupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the state of a small cell is backed up in another cell, in case its last nodes crash
    (B1)."""

    nodes_max: int = 0
    """The largest number of nodes in a cell that is backed up; 0 for no backups."""
    aggregation_us: int = SECOND_US
    """How long changes are collected before they are sent together."""
    refresh_us: int = 20 * SECOND_US
    """The interval at which an unchanged backup is confirmed to the cell that stores it."""
    ttl_us: int = 70 * SECOND_US
    """How long a backup is stored without being refreshed."""
    cells_max: int = 64
    """The maximum number of cells for which a node stores a backup."""


class ReannounceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How nodes re-announce their records to cells that may have lost them (B1, B2)."""

    enabled: bool = False
    """Whether beacons carry the stamp of the latest topology change, and nodes re-announce their
    records after it."""
    quiet_us: int = 15 * SECOND_US
    """How long the topology must be unchanged before a node starts to re-announce; a random wait of
    at most the same length is added."""
    wait_us_max: int = 240 * SECOND_US
    """How long a node waits for such a quiet period at most."""
    batch_objects_max: int = 64
    """The maximum number of objects that a node announces at a time."""
    batch_pause_us: int = 3 * SECOND_US
    """The pause before the next objects are announced; a random wait of at most the same length is
    added."""
    deletions_max: int = 64
    deletions_age_us_max: int = 900 * SECOND_US
    """The maximum number and the maximum age of its own deletes that a node repeats."""
    deletions_recent_us: int = 60 * SECOND_US
    """The maximum age of deletes that are repeated while the topology still changes."""
    skew_us: int = 5 * SECOND_US
    """How far ahead the clocks of other nodes may be."""


class NotificationDeliveryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How notifications are sent, acknowledged and sent again (D22, B3)."""

    wait_us_max: int = 60 * SECOND_US
    """How long an undelivered notification waits for the subscriber's location update."""
    retry_us: int | None = None
    """How long to wait before an undelivered notification is sent again without a location update,
    longer after each attempt; None for never."""
    ack_timeout_us: int | None = None
    """How long to wait for an acknowledgement before a notification is sent again, longer after
    each attempt; None if notifications are not acknowledged (B3)."""
    tries_max: int = 4
    aggregation_us: int = 0
    """How long notifications are delayed so that those for the same subscribers travel as one; only
    where they are acknowledged."""
    pending_max: int = 1_000
    """The maximum number of sent messages that are remembered, and of notifications that are
    pending."""
    destinations_max: int = 50
    """The maximum number of subscribers that one message notifies; for more, another message is
    sent (D9)."""


class AntiEntropyConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the nodes of one cell remove differences between their states (B2)."""

    enabled: bool = False
    """Whether beacons carry a digest of the cell state, and cell peers that differ exchange missing
    records."""
    beacons_min: int = 2
    """How many consecutive beacons of a cell peer must differ, since an update may be on its
    way."""
    jitter_us: int = SECOND_US
    """The maximum random wait before a comparison, so that cell peers do not start at the same
    time."""
    pause_us: int = 2 * SECOND_US
    """The pause before the next comparison with the same cell peer, doubled after each comparison
    that left a difference."""
    pause_doublings_max: int = 6
    """The maximum number of times the pause is doubled."""
    record_hashes_max: int = 500
    """The maximum number of record hashes in one message."""
    part_bytes_max: int = 1_200
    suspects_max: int = 1_000
    late_window_us: int = 60 * SECOND_US
    """The maximum age of a node's own answer for which it still sends notifications when it
    receives a missing record."""


class DcsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a Thyme-DCS node; the defaults are the profile `PAPER`."""

    limits: Limits = Limits()
    retries: RetryPolicy = RetryPolicy()
    replication: ReplicationConfig = ReplicationConfig()
    joining: CellJoiningConfig = CellJoiningConfig()
    movement: MovementConfig = MovementConfig()
    state_transfer: StateTransferConfig = StateTransferConfig()
    backup: BackupConfig = BackupConfig()
    broker: BrokerConfig = BrokerConfig(metadata_only=True)
    subscriber: SubscriberConfig = SubscriberConfig()
    retention: Retention = Retention()
    """The retention of the objects stored on a node: its own, active and passive replicas (M29)."""
    key_choice: KeyChoice = KeyChoice.RANDOM
    key_choices_max: int = 10_000
    """For how many conjunctions the chosen key is remembered, in addition to those of the node's
    own subscriptions."""
    lookup_cells_max: int = 16
    notification_delivery: NotificationDeliveryConfig = NotificationDeliveryConfig()
    anti_entropy: AntiEntropyConfig = AntiEntropyConfig()
    reannounce: ReannounceConfig = ReannounceConfig()
    routing: CellRoutingConfig = CellRoutingConfig()
    """Settings of the cell routing."""
    race_window_us: int = SECOND_US // 2
    """How long the node that activated a subscription also matches objects that other nodes of the
    cell index: they may not have received the subscription yet (M26)."""
    world_ends_us: int | None = None

    def __post_init__(self) -> None:
        if not self.broker.metadata_only:
            raise ValueError("cells store metadata only (D11): set broker.metadata_only")


PAPER = DcsConfig()
"""The profile of the papers: notifications and broadcasts within a cell rely on the link layer."""

ROBUST = DcsConfig(
    replication=ReplicationConfig(
        active_max=3,
        crowded_nodes_min=5,
        upkeep_us=10 * SECOND_US,
        locate_again=True,
        try_owner=True,
    ),
    key_choice=KeyChoice.RAREST,
    notification_delivery=NotificationDeliveryConfig(
        retry_us=SECOND_US, ack_timeout_us=SECOND_US // 2, tries_max=8
    ),
    anti_entropy=AntiEntropyConfig(enabled=True),
    routing=CellRoutingConfig(
        always_perimeter=False,
        broadcast_reads=False,
        broadcast_redundant=False,
        broadcast_tries_max=5,
    ),
    movement=MovementConfig(announce_while_moving=True, announce_on_start=True),
    backup=BackupConfig(nodes_max=1, aggregation_us=3 * SECOND_US),
    reannounce=ReannounceConfig(enabled=True),
)
"""The profile with the extensions to the papers' protocol."""
