"""Messages of the encounter substrates: MobUser, and its rivals MFPS and RAPID.

All are sent to one-hop neighbours only (U1). A batch of events has the metadata and the bytes of
each event; a receiver finds the bytes of an event by their digest, so that events whose signature
is invalid can be removed without touching the others.
Clauses: U1–U4, U7.
"""

from __future__ import annotations

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag, as_tag
from thyme.protocol.messages.event_ranges import ID_BYTES, IDS_MAX, EventRange
from thyme.protocol.messages.list_limits import Items, Records
from thyme.protocol.messages.traits import BaseMessage, RecordKind

TOPICS_ACCEPTED_MAX = 1_024
"""Limit for received profiles; a node's own profile has a lower limit."""
SPEED_CM_S_MAX = 100_000
RANGES_MAX = 1_024


def _check_topics(topics: tuple[Tag, ...]) -> None:
    if len(topics) > TOPICS_ACCEPTED_MAX:
        raise ValueError(f"a profile has at most {TOPICS_ACCEPTED_MAX} topics, not {len(topics)}")
    if tuple(sorted({as_tag(topic) for topic in topics})) != topics:
        raise ValueError("the topics of a profile must be normalised, sorted and distinct")


def _check_speed(speed_cm_s: int | None) -> None:
    if speed_cm_s is not None and not 0 <= speed_cm_s <= SPEED_CM_S_MAX:
        raise ValueError(f"a speed is from 0 to {SPEED_CM_S_MAX} cm/s, not {speed_cm_s}")


class EncounterProfile(BaseMessage, frozen=True, array_like=True, tag=112):
    """The generated profile of a device that discovers its neighbours (U2). Answered by
    `ProfileReply`."""

    label = "EncounterProfile"

    exchange: int
    """A random number for one discovery; the devices use it instead of an identifier (U2)."""
    topics: Items[Tag]
    one_for_one: bool
    """Whether the sender asks to exchange events one for one (U3)."""

    def __post_init__(self) -> None:
        _check_topics(self.topics)


class ProfileReply(BaseMessage, frozen=True, array_like=True, tag=113):
    """The generated profile in reply, with the events that match the other profile (U3)."""

    label = "ProfileReply"
    operation = "notification"
    records = (("items", RecordKind.METADATA),)

    exchange: int
    topics: Items[Tag]
    items: Records[Metadata]
    data: Items[bytes]
    one_for_one: bool

    def __post_init__(self) -> None:
        _check_topics(self.topics)


class EncounterEvents(BaseMessage, frozen=True, array_like=True, tag=114):
    """Events for a neighbour: all that match its profile, one of them (U3), or a gossip (U7)."""

    label = "EncounterEvents"
    operation = "notification"
    records = (("items", RecordKind.METADATA),)

    exchange: int
    items: Records[Metadata]
    data: Items[bytes]


class Heartbeat(BaseMessage, frozen=True, array_like=True, tag=115):
    """The topics and the speed of a device of MFPS (U7). Answered by `HeldEvents` if the receiver
    shares a topic."""

    label = "Heartbeat"

    topics: Items[Tag]
    speed_cm_s: int | None

    def __post_init__(self) -> None:
        _check_topics(self.topics)
        _check_speed(self.speed_cm_s)


class HeldEvents(BaseMessage, frozen=True, array_like=True, tag=116):
    """The keys of the events that a device of MFPS holds in the receiver's topics (U7)."""

    label = "HeldEvents"

    topics: Items[Tag]
    speed_cm_s: int | None
    keys: Items[Key]
    is_reply: bool
    """Whether it answers a `Heartbeat`, rather than another `HeldEvents`."""

    def __post_init__(self) -> None:
        _check_topics(self.topics)
        _check_speed(self.speed_cm_s)


class NeighbourProbe(BaseMessage, frozen=True, array_like=True, tag=117):
    """Asks which devices of RAPID are in range, or answers that one is (U7)."""

    label = "NeighbourProbe"

    is_reply: bool


class ReconcileProfile(BaseMessage, frozen=True, array_like=True, tag=118):
    """The generated profile of a device that compares its events with those of its neighbours
    before any event is sent (U3). Answered by `EventSummary`, or by `ProfileReply` from a device
    that does not compare."""

    label = "ReconcileProfile"

    exchange: int
    topics: Items[Tag]

    def __post_init__(self) -> None:
        _check_topics(self.topics)


class EventSummary(BaseMessage, frozen=True, array_like=True, tag=119):
    """A comparison of events: the events of the sender in the topics of both profiles, as ranges,
    and the events that it lacks. Answered by another one until all ranges are settled, and by
    `EventDetails` and `EventData` with the events that the sender lacks."""

    label = "EventSummary"

    exchange: int
    topics: Items[Tag]
    """The generated profile, in the reply to `ReconcileProfile`; empty afterwards."""
    ranges: Items[EventRange]
    wanted: Items[bytes]
    """Short identifiers of events that the sender lacks."""
    is_reply: bool
    """Whether it answers a `ReconcileProfile`."""

    def __post_init__(self) -> None:
        _check_topics(self.topics)
        if len(self.ranges) > RANGES_MAX or len(self.wanted) > IDS_MAX:
            raise ValueError(
                f"a summary has at most {RANGES_MAX} ranges and {IDS_MAX} wanted events"
            )
        if any(len(name) != ID_BYTES for name in self.wanted):
            raise ValueError(f"a short identifier has {ID_BYTES} bytes")


class EventDetails(BaseMessage, frozen=True, array_like=True, tag=120):
    """The metadata of events that the receiver lacks; `EventData` with their bytes follows."""

    label = "EventDetails"
    operation = "notification"
    records = (("items", RecordKind.METADATA),)

    exchange: int
    items: Records[Metadata]


class EventData(BaseMessage, frozen=True, array_like=True, tag=121):
    """The bytes of events whose metadata was sent before, small events first."""

    label = "EventData"
    operation = "notification"

    exchange: int
    data: Items[bytes]


EncounterMessage = (
    EncounterProfile
    | ProfileReply
    | EncounterEvents
    | Heartbeat
    | HeldEvents
    | NeighbourProbe
    | ReconcileProfile
    | EventSummary
    | EventDetails
    | EventData
)
