"""Thyme: time-aware reactive storage for devices near each other.

async with thyme.join("lisbon") as world:
    await world.insert(photo, tags=["goal", "eder"])
    async for note in await world.subscribe("goal & !replay"):
        data = await world.retrieve(note)
"""

from thyme.api.callbacks import CallbackWorld
from thyme.api.join import connect, join, join_network, live_worlds, worlds
from thyme.api.session import Outcome
from thyme.api.subscription import Overflow, Subscription
from thyme.api.world import World
from thyme.distribution import VERSION
from thyme.model import errors
from thyme.model.errors import (
    InputError,
    OperationError,
    QueryError,
    QuerySyntaxError,
    StoreError,
    ThymeError,
)
from thyme.model.ids import Key
from thyme.model.metadata import Limits, Metadata
from thyme.model.object_versions import version_tag
from thyme.model.subscriptions import Conjunction, Notification
from thyme.model.time_frames import TimeFrame
from thyme.model.worlds import WorldInfo
from thyme.query.explain import Explanation
from thyme.query.query import Query, tag
from thyme.substrates.common.catalogue import Retention

__version__ = VERSION

__all__ = [
    "CallbackWorld",
    "Conjunction",
    "Explanation",
    "InputError",
    "Key",
    "Limits",
    "Metadata",
    "Notification",
    "OperationError",
    "Outcome",
    "Overflow",
    "Query",
    "QueryError",
    "QuerySyntaxError",
    "Retention",
    "StoreError",
    "Subscription",
    "ThymeError",
    "TimeFrame",
    "World",
    "WorldInfo",
    "connect",
    "errors",
    "join",
    "join_network",
    "live_worlds",
    "tag",
    "version_tag",
    "worlds",
]
