"""Settings of Thyme-LS, and its profiles `PAPER` and `ROBUST`.

Decision: docs/decisions/0009-local-storage.md.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from thyme.model.metadata import Limits
from thyme.model.time_frames import SECOND_US
from thyme.protocol.retry import RetryPolicy
from thyme.routing.flooding import FloodingConfig
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.common.subscriber import SubscriberConfig
from thyme.substrates.ls.flooded_queries import CollectionConfig
from thyme.substrates.ls.subscription_comparison import ComparisonConfig
from thyme.substrates.ls.subscription_fetch import LsJoiningConfig


class LsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a node of Thyme-LS; the defaults are the profile `PAPER`."""

    limits: Limits = Limits()
    retries: RetryPolicy = RetryPolicy()
    notify_retries: RetryPolicy = RetryPolicy(tries_max=1)
    """Retries of notifications and pages until they are acknowledged; with 1 try there is no
    acknowledgement, and delivery is up to the link."""
    flooding: FloodingConfig = FloodingConfig()
    joining: LsJoiningConfig = LsJoiningConfig()
    comparing: ComparisonConfig | None = None
    """Comparison of subscriptions with neighbours; None if a node never compares them."""
    collecting: CollectionConfig = CollectionConfig()
    broker: BrokerConfig = BrokerConfig()
    subscriber: SubscriberConfig = SubscriberConfig()
    world_ends_us: int | None = None
    in_chunks: bool = False
    """Whether large objects are sent in chunks (M37), not as a whole."""
    late_batch: int = 20
    """Number of stored matches that a node sends for a subscription that it received by joining."""


PAPER = LsConfig()
"""As in the papers: floods are sent once, and delivery of notifications is up to the link."""
ROBUST = replace(
    PAPER,
    notify_retries=RetryPolicy(tries_max=8, wait_us=SECOND_US // 4, backoff=1.25),
    flooding=FloodingConfig(repeats=3, received_enough=3, repeat_us=SECOND_US // 4),
    joining=LsJoiningConfig(reply_later=True),
    comparing=ComparisonConfig(),
    collecting=CollectionConfig(subscribe_wait_us=2 * SECOND_US, search_wait_us=2 * SECOND_US),
)
"""For lossy networks: floods that are repeated until neighbours repeat them, acknowledged
notifications, and compared subscriptions."""
