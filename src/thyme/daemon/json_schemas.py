"""JSON schemas: the request and response bodies of the HTTP API.

Class names and class docstrings are part of the OpenAPI document (`openapi`).
Entry point: `parse_json`.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from thyme.api.arguments import BATCH_MAX
from thyme.model.errors import InputError
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Notification
from thyme.model.time_frames import INSTANT_MAX_US

T = TypeVar("T")
InstantUs = Annotated[int, Meta(ge=-INSTANT_MAX_US, le=INSTANT_MAX_US)]
Count = Annotated[int, Meta(ge=0, le=BATCH_MAX)]
LengthM = Annotated[float, Meta(ge=-1e9, le=1e9)]


class JsonError(InputError):
    """A request body that is not valid JSON or does not match its schema."""

    code = "bad_json"


class ObjectBody(msgspec.Struct, frozen=True, kw_only=True):
    """An object's metadata."""

    key: str
    tags: tuple[str, ...]
    summary: str
    """Base64."""
    summary_text: str | None
    """The summary as text; None if it is not valid UTF-8."""
    published_us: int
    size: int
    owner: str
    digest: str
    """SHA-256 of the object's bytes, in hexadecimal."""

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> ObjectBody:
        """Makes the JSON record of an object's metadata."""
        return cls(
            key=str(metadata.key),
            tags=metadata.tags,
            summary=b64encode(metadata.summary).decode(),
            summary_text=_as_text(metadata.summary),
            published_us=metadata.published_us,
            size=metadata.size,
            owner=metadata.owner.hex(),
            digest=metadata.digest.hex(),
        )


class NotificationBody(msgspec.Struct, frozen=True, kw_only=True):
    """A notification."""

    sid: str
    object: ObjectBody
    arrived_us: int
    past: bool
    """Whether the object was stored before the subscription was made (a past match)."""

    @classmethod
    def from_notification(cls, notification: Notification) -> NotificationBody:
        """Makes the JSON record of a notification."""
        return cls(
            sid=notification.sid,
            object=ObjectBody.from_metadata(notification.metadata),
            arrived_us=notification.arrived_us,
            past=notification.from_history,
        )


class InsertedBody(msgspec.Struct, frozen=True, kw_only=True):
    """An object is stored."""

    key: str


class SearchBody(msgspec.Struct, frozen=True, kw_only=True):
    """A search's answer: the most recent matches, and how many there are. There may be more if
    `unanswered`, the number of nodes in reach that did not answer, is not 0."""

    total: int
    unanswered: int
    notes: tuple[NotificationBody, ...]


class LookupBody(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a key: `there`, `deleted`, `expired`, `evicted` or `unknown`."""

    state: str
    object: ObjectBody | None


class SubscribeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to subscribe to; an end that is not given is open."""

    query: str
    start_us: InstantUs | None = None
    end_us: InstantUs | None = None
    batch: Count = 20


class SubscribedBody(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription stands; so many stored objects match, as far as is known yet."""

    sid: str
    total: int


class SubscriptionBody(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription of this node."""

    sid: str
    query: str
    start_us: int | None
    end_us: int | None
    batch: int


class MoreBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many more of the past are wanted."""

    count: Annotated[int, Meta(ge=1, le=BATCH_MAX)]


class MoreDeliveredBody(msgspec.Struct, frozen=True, kw_only=True):
    """How many came; 0 when there are no more."""

    told: int


class PositionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the device is, in metres from the corner of the area."""

    x_m: LengthM
    y_m: LengthM


def parse_json(body: bytes, kind: type[T]) -> T:
    """Decodes a request body; raises `JsonError` with the reason if it is invalid."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JsonError(f"invalid request body: {error}") from None


def _as_text(summary: bytes) -> str | None:
    try:
        return summary.decode()
    except UnicodeDecodeError:
        return None
