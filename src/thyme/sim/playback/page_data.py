"""Page data: the down-sampled data of a recording that a playback page contains.

Entry point: `PlaybackData.add_event`, called for each event of a recording. Events are kept in
columns of integers. Messages and application events are limited: when a limit is exceeded, every
second row is removed and from then on only every second event is added, then every fourth, and so
on. Totals and rates count all events. `thyme.sim.playback.page` encodes the data.
Clause: S17.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec

from thyme.map.recording import (
    AppEventRecord,
    AppRequestEvent,
    FaultEvent,
    GapEvent,
    MessageDroppedEvent,
    MessageReceivedEvent,
    MessageSentEvent,
    MoveEvent,
    NeighbourEvent,
    NodeEvent,
    PowerEvent,
    RecordedEvent,
    RecordingHeader,
    ReplicaEvent,
)
from thyme.model.errors import InputError
from thyme.model.positions import Position
from thyme.protocol.messages.description import is_routing_control
from thyme.sim.faults.schedule import ClockSkew, Crash, Fault, Heal, Leave, Partition, Restart
from thyme.sim.playback.event_columns import (
    EventColumns,
    InvalidRecordingError,
    MessageColumns,
    MessageRates,
    StringTable,
)
from thyme.traces.files import COORDINATE_M_MAX

APPLICATION_MAX = 800_000
"""Maximum number of messages in a page, without routing control."""
CONTROL_MAX = 250_000
"""Maximum number of routing control messages in a page."""
MARKS_MAX = 200_000
"""Maximum number of application requests and events in a page."""
KEPT_MAX = 300_000
"""Number of replica events after which no further objects are added."""
OBJECTS_MAX = 20_000
"""Maximum number of objects whose replicas are shown; later objects are left out."""
LIFE_MAX = 400_000
"""Number of mentions of objects in messages, requests and events after which none is added."""
DOWNSAMPLE_MIN = 1_000
"""Tables with fewer rows are not down-sampled."""
U32_MAX = 2**32 - 1

REPLICA_ROLES = ("", "own", "active", "passive")
"""Roles of a replica; empty: removed. The position in this list is the number used in pages."""

MENTION_ASKED, MENTION_EMITTED, MENTION_SENT = range(3)
"""How an object was mentioned: values of the column `type` of the table `life`."""

_INSTANT_US_MAX = 10**15


class PlaybackData:
    """The data of a recording that the page shows."""

    def __init__(self, header: RecordingHeader) -> None:
        self.names = list(header.nodes)
        if len(header.places) != len(self.names):
            raise InputError(
                f"the header has {len(self.names)} nodes, but {len(header.places)} positions"
            )
        self.places = list(header.places)
        self.roles = [*header.roles, *[""] * (len(self.names) - len(header.roles))]
        self.header = header
        self.kinds, self.causes, self.app_event_names = StringTable(), StringTable(), StringTable()
        self.application = MessageColumns(APPLICATION_MAX)
        self.control = MessageColumns(CONTROL_MAX)
        self.app_events = EventColumns(("at", "node", "what"), MARKS_MAX)
        self.power_changes = EventColumns(("at", "node", "on"))
        self.legs = EventColumns(("at", "node", "length", "x0", "y0", "x1", "y1"))
        self.replicas = EventColumns(("at", "node", "object", "role"))
        self.neighbours = EventColumns(("at", "node", "peer", "on"))
        self.life = EventColumns(("at", "object", "type", "node", "to", "what", "around", "took"))
        """Mentions of objects, whose order tells the life of each; types are `MENTION_…`."""
        self.life_words = StringTable()
        self.life_omitted = self.events_missing = 0
        self.objects: dict[str, int] = {}
        """Objects and their numbers, in the order of their first replica event."""
        self.replicas_omitted = 0
        """Number of replica events that were left out."""
        self.app_event_counts: list[int] = []
        self.rates = MessageRates()
        self.faults: list[tuple[int, bool, object]] = []
        self.totals = {
            name: array("Q", bytes(8 * self.nodes))
            for name in ("sent", "control", "heard", "asked", "told")
        }
        self.bytes = 0
        self.span_us = 0
        self._last_message = -1
        self._box = [float("inf"), float("inf"), float("-inf"), float("-inf")]
        for position in header.places:
            self._extend_box(position)

    @property
    def nodes(self) -> int:
        """The number of nodes so far."""
        return len(self.names)

    def add_event(self, event: RecordedEvent) -> None:
        """Adds the next event of the recording."""
        if not self.span_us <= event.at_us <= _INSTANT_US_MAX:
            raise InvalidRecordingError(
                f"an event at {event.at_us} µs comes after one at {self.span_us} µs"
            )
        self.span_us = event.at_us
        match event:
            case MessageReceivedEvent():
                self._add_received(event)
            case MessageSentEvent():
                self._add_sent(event)
            case MessageDroppedEvent():
                self._add_dropped(event)
            case AppRequestEvent():
                self._add_app_event(event, "asked")
            case AppEventRecord():
                self._add_app_event(event, "told")
            case PowerEvent():
                self.power_changes.add(event.at_us, self._check_node(event.node), event.on)
            case MoveEvent():
                self._add_leg(event)
            case ReplicaEvent():
                self._add_replica(event)
            case FaultEvent():
                self._add_fault(event)
            case NodeEvent():
                self._add_node(event)
            case NeighbourEvent():
                ends = self._check_node(event.node), self._check_node(event.peer)
                self.neighbours.add(event.at_us, *ends, event.on)
            case GapEvent():
                self.events_missing += event.count
            case _:
                assert_never(event)

    def _check_node(self, node: int) -> int:
        if not 0 <= node < self.nodes:
            raise InvalidRecordingError(f"node {node} is unknown, there are {self.nodes}")
        return node

    def _add_fault(self, event: FaultEvent) -> None:
        try:
            fault: Fault = msgspec.convert(event.fault, Fault)
        except msgspec.ValidationError as error:
            raise InvalidRecordingError(f"a fault cannot be read: {error}") from None
        for node in _affected_nodes(fault):
            self._check_node(node)
        self.faults.append((event.at_us, event.begins, event.fault))

    def _add_node(self, event: NodeEvent) -> None:
        if event.node != self.nodes:
            raise InvalidRecordingError(f"the next node is {self.nodes}, not {event.node}")
        self._extend_box(event.place)
        self.names.append(event.name)
        self.places.append(event.place)
        self.roles.append(event.role)
        for totals in self.totals.values():
            totals.append(0)

    def _add_sent(self, event: MessageSentEvent) -> None:
        if event.message_id <= self._last_message:
            raise InvalidRecordingError(
                f"message {event.message_id} comes after message {self._last_message}"
            )
        self._last_message = event.message_id
        node = self._check_node(event.node)
        to = 0 if event.to is None else self._check_node(event.to) + 1
        if not 0 <= event.bytes <= U32_MAX:
            raise InvalidRecordingError(f"a message cannot have {event.bytes} bytes")
        kind = self.kinds[event.kind]
        self.rates.count_message(kind, event.at_us)
        self.bytes += event.bytes
        control = is_routing_control(event.kind)
        self.totals["control" if control else "sent"][node] += 1
        rows = self.control if control else self.application
        around = int(event.perimeter)
        rows.add(event.at_us, event.message_id, node, to, kind, event.bytes, around, 0, 0, 0)
        self._add_life(event.at_us, event.objects, MENTION_SENT, node, to, event.kind, around)

    def _add_received(self, event: MessageReceivedEvent) -> None:
        received = self.totals["heard"]
        if event.nodes:
            self._check_node(min(event.nodes))
            self._check_node(max(event.nodes))
        for node in event.nodes:
            received[node] += 1
        for rows, row in self._find_rows(event.message_id):
            rows.record_arrival(row, event.at_us, len(event.nodes))

    def _add_dropped(self, event: MessageDroppedEvent) -> None:
        cause = self.causes[event.cause]
        for rows, row in self._find_rows(event.message_id):
            rows.record_drop(row, event.at_us, cause)

    def _find_rows(self, message_id: int) -> list[tuple[MessageColumns, int]]:
        """Returns table and row of a message; an empty list if the message was not kept."""
        if message_id > self._last_message:
            raise InvalidRecordingError(f"message {message_id} has not been sent")
        found = [(rows, rows.find_row(message_id)) for rows in (self.control, self.application)]
        return [(rows, row) for rows, row in found if row is not None]

    def _add_app_event(self, event: AppRequestEvent | AppEventRecord, direction: str) -> None:
        node = self._check_node(event.node)
        self.totals[direction][node] += 1
        label = event.request if isinstance(event, AppRequestEvent) else event.event
        name = self.app_event_names[f"{direction} {label}"]
        self.app_event_counts.extend([0] * (name + 1 - len(self.app_event_counts)))
        self.app_event_counts[name] += 1
        self.app_events.add(event.at_us, node, name)
        if isinstance(event, AppRequestEvent):
            self._add_life(event.at_us, event.objects, MENTION_ASKED, node, 0, label, 0)
        else:
            words = f"{label} {event.request}".strip()
            took_us = min(max(event.took_us, 0), event.at_us)
            self._add_life(event.at_us, event.objects, MENTION_EMITTED, node, 0, words, 0, took_us)

    def _add_life(
        self,
        at_us: int,
        objects: Sequence[str],
        mention: int,
        node: int,
        to: int,
        words: str,
        around: int,
        took_us: int = 0,
    ) -> None:
        """Adds that a message, request or event is about objects."""
        for oid in objects:
            number = self._find_object(oid)
            if number is None or len(self.life) >= LIFE_MAX:
                self.life_omitted += 1
            else:
                what = self.life_words[words]
                self.life.add(at_us, number, mention, node, to, what, around, took_us)

    def _find_object(self, oid: str) -> int | None:
        """The number of an object; None if there are too many."""
        number = self.objects.get(oid)
        if number is None and len(self.objects) < OBJECTS_MAX and len(self.replicas) < KEPT_MAX:
            number = self.objects[oid] = len(self.objects)
        return number

    def _add_replica(self, event: ReplicaEvent) -> None:
        """Adds a replica event.

        Replica events are not down-sampled: without its removal, a replica would be shown for ever.
        """
        node = self._check_node(event.node)
        if event.role not in REPLICA_ROLES:
            raise InvalidRecordingError(f"unknown role of a replica: {event.role!r}")
        number = self._find_object(event.oid)
        if number is None:
            self.replicas_omitted += 1
        else:
            self.replicas.add(event.at_us, node, number, REPLICA_ROLES.index(event.role))

    def _add_leg(self, event: MoveEvent) -> None:
        self._extend_box(event.start)
        self._extend_box(event.end)
        # A pause ends when the next leg begins; its own end may be long after the run.
        length_us = 0 if event.start == event.end else event.end_us - event.at_us
        if length_us < 0 or event.end_us > _INSTANT_US_MAX:
            raise InvalidRecordingError(
                f"a leg that begins at {event.at_us} µs ends at {event.end_us} µs"
            )
        coordinates = (to_centimetres(at) for at in (*event.start, *event.end))
        self.legs.add(event.at_us, self._check_node(event.node), length_us, *coordinates)

    def _extend_box(self, position: Position) -> None:
        x, y = position
        if max(abs(x), abs(y)) > COORDINATE_M_MAX:
            raise InvalidRecordingError(
                f"a coordinate is at most {COORDINATE_M_MAX:.0f} m, not {position}"
            )
        west, south, east, north = self._box
        self._box = [min(west, x), min(south, y), max(east, x), max(north, y)]

    def bounding_box(self) -> list[float]:
        """Returns the bounding box of all positions: west, south, east, north."""
        return self._box if self.nodes else [0.0, 0.0, 1.0, 1.0]

    def tables(self) -> dict[str, EventColumns]:
        """Returns all tables of events by their names in the page."""
        return {
            "application": self.application,
            "control": self.control,
            "marks": self.app_events,
            "switches": self.power_changes,
            "legs": self.legs,
            "kept": self.replicas,
            "near": self.neighbours,
            "life": self.life,
        }

    def list_app_events(self) -> list[tuple[str, bool, int]]:
        """Returns application requests and events: type, whether it is an event, count."""
        counts = zip(self.app_event_names.numbers, self.app_event_counts, strict=True)
        return [(name.partition(" ")[2], name.startswith("told"), count) for name, count in counts]

    def downsample(self) -> None:
        """Removes every second row of one table, so that the page gets smaller."""
        if len(self.control) > 10 * DOWNSAMPLE_MIN:
            self.control.downsample()
            return
        longest = max((self.application, self.control, self.app_events), key=len)
        if len(longest) < DOWNSAMPLE_MIN:
            raise InputError(
                f"with {self.nodes} nodes, {len(self.legs)} legs of their paths and "
                f"{len(self.faults)} faults the page would be too big"
            )
        longest.downsample()


def _affected_nodes(fault: Fault) -> Iterable[int]:
    """Returns the nodes that a fault refers to."""
    match fault:
        case Crash() | Leave() | Restart() | ClockSkew():
            return (fault.node,)
        case Partition():
            return (node for group in fault.groups for node in group)
        case Heal():
            return ()
        case _:
            return fault.nodes or ()


def to_centimetres(metres: float) -> int:
    """Converts a coordinate to centimetres above the smallest allowed coordinate."""
    return round((metres + COORDINATE_M_MAX) * 100)
