"""Page data: the down-sampled data of a recording that a playback page contains.

Entry point: `PlaybackData.add_event`, called for each event of a recording. Events are kept in
columns of integers. Messages and application events are limited: when a limit is exceeded, every
second row is removed and from then on only every second event is added, then every fourth, and so
on. Totals and rates count all events. `thyme.sim.playback.page` encodes the data.
Clause: S17.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec

from thyme.model.errors import InputError
from thyme.sim.faults import ClockSkew, Crash, Fault, Heal, Leave, Partition, Restart
from thyme.sim.measure import CONTROL, innermost
from thyme.sim.paths import Point
from thyme.sim.recorder import (
    AskedFor,
    Befell,
    Event,
    GaveUp,
    Header,
    HeardMessage,
    Keeps,
    SentMessage,
    Switched,
    Walks,
    WasTold,
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
THIN_MIN = 1_000
"""Tables with fewer rows are not down-sampled."""
BIN_US = 100_000
BINS_MAX = 16_384
"""Messages are counted per 100 ms; in runs that need more bins than this, per 200, 400, … ms."""
WORDS_MAX = 1_000
"""Maximum number of message types, of causes and of request types in a recording."""
U32_MAX = 2**32 - 1

ROLES = ("", "own", "active", "passive")
"""Roles of a replica; empty: removed. The position in this list is the number used in pages."""

_INSTANT_US_MAX = 10**15
_ARRIVED = 1
"""Values of the column `fate`: 0: not known yet; 1: the message arrived; 2 and up: it was dropped,
for the cause with this number minus 2."""


class ImpossibleError(InputError):
    """A recording contains an impossible event."""

    code = "bad_recording"


class Words:
    """Strings and their numbers, in the order of their first use."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __getitem__(self, word: str) -> int:
        number = self.numbers.get(word)
        if number is None:
            number = self.numbers[word] = len(self.numbers)
            if number >= WORDS_MAX:
                raise ImpossibleError(
                    f"a recording has at most {WORDS_MAX} types of messages and requests"
                )
        return number


class Rows:
    """Events in columns; when there are more than a limit, every second row is removed."""

    def __init__(self, names: Sequence[str], most: int | None = None) -> None:
        self.columns = {name: array("Q") for name in names}
        self.seen = 0
        self.stride = 1
        """One of this many events is kept."""
        self._most = most
        self._lists = list(self.columns.values())

    def __len__(self) -> int:
        return len(self._lists[0])

    def add(self, *values: int) -> None:
        kept = self.seen % self.stride == 0
        self.seen += 1
        if not kept:
            return
        for column, value in zip(self._lists, values, strict=True):
            column.append(value)
        if self._most is not None and len(self) > self._most:
            self.halve()

    def halve(self) -> None:
        self.stride *= 2
        self.columns = {name: column[::2] for name, column in self.columns.items()}
        self._lists = list(self.columns.values())


class Messages(Rows):
    """Messages and whether they arrived; rows are found by the message ids, which ascend."""

    def __init__(self, most: int) -> None:
        super().__init__(
            ("at", "message", "node", "to", "kind", "bytes", "around", "took", "fate", "heard"),
            most,
        )

    def find(self, message: int) -> int | None:
        numbers = self.columns["message"]
        row = bisect_left(numbers, message)
        return row if row < len(numbers) and numbers[row] == message else None

    def arrived(self, row: int, at_us: int, receivers: int) -> None:
        columns = self.columns
        columns["heard"][row] += receivers
        if columns["fate"][row] != _ARRIVED:
            columns["fate"][row] = _ARRIVED
            columns["took"][row] = at_us - columns["at"][row]

    def given_up(self, row: int, at_us: int, cause: int) -> None:
        columns = self.columns
        if not columns["fate"][row]:  # otherwise it arrived, but its acknowledgement was lost
            columns["fate"][row] = _ARRIVED + 1 + cause
            columns["took"][row] = at_us - columns["at"][row]


class Rates:
    """Number of messages sent, by message type and time bin."""

    def __init__(self) -> None:
        self.bin_us = BIN_US
        self.rows: list[array[int]] = []

    def count(self, kind: int, at_us: int) -> None:
        while at_us // self.bin_us >= BINS_MAX:
            self._widen()
        while len(self.rows) <= kind:
            self.rows.append(array("Q"))
        row, index = self.rows[kind], at_us // self.bin_us
        if index >= len(row):
            row.extend([0] * (index + 1 - len(row)))
        row[index] += 1

    def _widen(self) -> None:
        self.bin_us *= 2
        for number, row in enumerate(self.rows):
            row.extend([0] * (len(row) % 2))
            self.rows[number] = array("Q", map(int.__add__, row[::2], row[1::2]))


class Digest:
    """The data of a recording that the page shows."""

    def __init__(self, header: Header) -> None:
        self.nodes = len(header.nodes)
        if len(header.places) != self.nodes:
            raise InputError(
                f"the header has {self.nodes} nodes, but {len(header.places)} positions"
            )
        self.header = header
        self.kinds, self.causes, self.whats = Words(), Words(), Words()
        self.application = Messages(APPLICATION_MAX)
        self.control = Messages(CONTROL_MAX)
        self.marks = Rows(("at", "node", "what"), MARKS_MAX)
        self.switches = Rows(("at", "node", "on"))
        self.legs = Rows(("at", "node", "length", "x0", "y0", "x1", "y1"))
        self.kept = Rows(("at", "node", "object", "role"))
        self.objects: dict[str, int] = {}
        """Objects and their numbers, in the order of their first replica event."""
        self.kept_unseen = 0
        """Number of replica events that were left out."""
        self.what_counts: list[int] = []
        self.rates = Rates()
        self.faults: list[tuple[int, bool, object]] = []
        self.totals = {
            name: array("Q", bytes(8 * self.nodes))
            for name in ("sent", "control", "heard", "asked", "told")
        }
        self.bytes = 0
        self.span_us = 0
        self._last_message = -1
        self._box = [float("inf"), float("inf"), float("-inf"), float("-inf")]
        for place in header.places:
            self._widen(place)

    def take(self, event: Event) -> None:
        """Adds the next event of the recording."""
        if not self.span_us <= event.at_us <= _INSTANT_US_MAX:
            raise ImpossibleError(
                f"an event at {event.at_us} µs comes after one at {self.span_us} µs"
            )
        self.span_us = event.at_us
        match event:
            case HeardMessage():
                self._heard(event)
            case SentMessage():
                self._sent(event)
            case GaveUp():
                self._gave_up(event)
            case AskedFor():
                self._mark(event, "asked")
            case WasTold():
                self._mark(event, "told")
            case Switched():
                self.switches.add(event.at_us, self._known(event.node), event.on)
            case Walks():
                self._walks(event)
            case Keeps():
                self._keeps(event)
            case Befell():
                for node in _struck(event.fault):
                    self._known(node)
                fault = msgspec.to_builtins(event.fault)
                self.faults.append((event.at_us, event.begins, fault))
            case _:
                assert_never(event)

    def _known(self, node: int) -> int:
        if not 0 <= node < self.nodes:
            raise ImpossibleError(f"node {node} is unknown, there are {self.nodes}")
        return node

    def _sent(self, event: SentMessage) -> None:
        if event.message <= self._last_message:
            raise ImpossibleError(
                f"message {event.message} comes after message {self._last_message}"
            )
        self._last_message = event.message
        node = self._known(event.node)
        to = 0 if event.to is None else self._known(event.to) + 1
        if not 0 <= event.bytes <= U32_MAX:
            raise ImpossibleError(f"a message cannot have {event.bytes} bytes")
        kind = self.kinds[event.kind]
        self.rates.count(kind, event.at_us)
        self.bytes += event.bytes
        control = is_control(event.kind)
        self.totals["control" if control else "sent"][node] += 1
        rows = self.control if control else self.application
        around = int(event.around)
        rows.add(event.at_us, event.message, node, to, kind, event.bytes, around, 0, 0, 0)

    def _heard(self, event: HeardMessage) -> None:
        heard = self.totals["heard"]
        if event.nodes:
            self._known(min(event.nodes))
            self._known(max(event.nodes))
        for node in event.nodes:
            heard[node] += 1
        for rows, row in self._found(event.message):
            rows.arrived(row, event.at_us, len(event.nodes))

    def _gave_up(self, event: GaveUp) -> None:
        cause = self.causes[event.cause]
        for rows, row in self._found(event.message):
            rows.given_up(row, event.at_us, cause)

    def _found(self, message: int) -> list[tuple[Messages, int]]:
        """Returns table and row of a message; an empty list if the message was not kept."""
        if message > self._last_message:
            raise ImpossibleError(f"message {message} has not been sent")
        found = [(rows, rows.find(message)) for rows in (self.control, self.application)]
        return [(rows, row) for rows, row in found if row is not None]

    def _mark(self, event: AskedFor | WasTold, how: str) -> None:
        node = self._known(event.node)
        self.totals[how][node] += 1
        what = self.whats[f"{how} {event.what}"]
        self.what_counts.extend([0] * (what + 1 - len(self.what_counts)))
        self.what_counts[what] += 1
        self.marks.add(event.at_us, node, what)

    def _keeps(self, event: Keeps) -> None:
        """Adds a replica event.

        Replica events are not down-sampled: without its removal, a replica would be shown for ever.
        """
        node = self._known(event.node)
        if event.role not in ROLES:
            raise ImpossibleError(f"unknown role of a replica: {event.role!r}")
        number = self.objects.get(event.object)
        if number is None and len(self.objects) < OBJECTS_MAX and len(self.kept) < KEPT_MAX:
            number = self.objects[event.object] = len(self.objects)
        if number is None:
            self.kept_unseen += 1
        else:
            self.kept.add(event.at_us, node, number, ROLES.index(event.role))

    def _walks(self, event: Walks) -> None:
        self._widen(event.start)
        self._widen(event.end)
        # A pause ends when the next leg begins; its own end may be long after the run.
        length_us = 0 if event.start == event.end else event.end_us - event.at_us
        if length_us < 0 or event.end_us > _INSTANT_US_MAX:
            raise ImpossibleError(
                f"a leg that begins at {event.at_us} µs ends at {event.end_us} µs"
            )
        places = (centimetres(at) for at in (*event.start, *event.end))
        self.legs.add(event.at_us, self._known(event.node), length_us, *places)

    def _widen(self, place: Point) -> None:
        x, y = place
        if max(abs(x), abs(y)) > COORDINATE_M_MAX:
            raise ImpossibleError(f"a coordinate is at most {COORDINATE_M_MAX:.0f} m, not {place}")
        west, south, east, north = self._box
        self._box = [min(west, x), min(south, y), max(east, x), max(north, y)]

    def box(self) -> list[float]:
        """Returns the bounding box of all positions: west, south, east, north."""
        return self._box if self.nodes else [0.0, 0.0, 1.0, 1.0]

    def tables(self) -> dict[str, Rows]:
        """Returns all tables of events by their names in the page."""
        return {
            "application": self.application,
            "control": self.control,
            "marks": self.marks,
            "switches": self.switches,
            "legs": self.legs,
            "kept": self.kept,
        }

    def asked_and_told(self) -> list[tuple[str, bool, int]]:
        """Returns application requests and events: type, whether it is an event, count."""
        found = zip(self.whats.numbers, self.what_counts, strict=True)
        return [(what.partition(" ")[2], what.startswith("told"), count) for what, count in found]

    def thin(self) -> None:
        """Removes every second row of one table, so that the page gets smaller."""
        if len(self.control) > 10 * THIN_MIN:
            self.control.halve()
            return
        most = max((self.application, self.control, self.marks), key=len)
        if len(most) < THIN_MIN:
            raise InputError(
                f"with {self.nodes} nodes, {len(self.legs)} legs of their paths and "
                f"{len(self.faults)} faults the page would be too big"
            )
        most.halve()


def _struck(fault: Fault) -> Iterable[int]:
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


def is_control(kind: str) -> bool:
    """Whether a message type, with or without the prefix `Packet/`, is routing control."""
    return innermost(kind) in CONTROL


def centimetres(metres: float) -> int:
    """Converts a coordinate to centimetres above the smallest allowed coordinate."""
    return round((metres + COORDINATE_M_MAX) * 100)
