"""Event columns: events of a recording as columns of integers, down-sampled when there are many.

Entry points: `EventColumns`, `MessageColumns`, `MessageRates`. `page_data` fills them.
Clause: S17.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from thyme.model.errors import InputError

BIN_US = 100_000
BINS_MAX = 16_384
"""Messages are counted per 100 ms; in runs that need more bins than this, per 200, 400, … ms."""
STRINGS_MAX = 1_000
"""Maximum number of message types, of causes and of request types in a recording."""

_ARRIVED = 1
"""Values of the column `outcome`: 0: not known yet; 1: the message arrived; 2 and up: it was
dropped, for the cause with this number minus 2."""


class InvalidRecordingError(InputError):
    """A recording contains an impossible event."""

    code = "bad_recording"


class StringTable:
    """Strings and their numbers, in the order of their first use."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __getitem__(self, text: str) -> int:
        number = self.numbers.get(text)
        if number is None:
            number = self.numbers[text] = len(self.numbers)
            if number >= STRINGS_MAX:
                raise InvalidRecordingError(
                    f"a recording has at most {STRINGS_MAX} types of messages and requests"
                )
        return number


class EventColumns:
    """Events in columns; when there are more than a limit, every second row is removed."""

    def __init__(self, names: Sequence[str], rows_max: int | None = None) -> None:
        self.columns = {name: array("Q") for name in names}
        self.seen = 0
        self.stride = 1
        """One of this many events is kept."""
        self._rows_max = rows_max
        self._arrays = list(self.columns.values())

    def __len__(self) -> int:
        return len(self._arrays[0])

    def add(self, *values: int) -> None:
        kept = self.seen % self.stride == 0
        self.seen += 1
        if not kept:
            return
        for column, value in zip(self._arrays, values, strict=True):
            column.append(value)
        if self._rows_max is not None and len(self) > self._rows_max:
            self.downsample()

    def downsample(self) -> None:
        self.stride *= 2
        self.columns = {name: column[::2] for name, column in self.columns.items()}
        self._arrays = list(self.columns.values())


class MessageColumns(EventColumns):
    """Messages and whether they arrived; rows are found by the message ids, which ascend."""

    def __init__(self, rows_max: int) -> None:
        super().__init__(
            ("at", "message", "node", "to", "kind", "bytes", "around", "took", "outcome", "heard"),
            rows_max,
        )

    def find_row(self, message_id: int) -> int | None:
        numbers = self.columns["message"]
        row = bisect_left(numbers, message_id)
        return row if row < len(numbers) and numbers[row] == message_id else None

    def record_arrival(self, row: int, at_us: int, receivers: int) -> None:
        columns = self.columns
        columns["heard"][row] += receivers
        if columns["outcome"][row] != _ARRIVED:
            columns["outcome"][row] = _ARRIVED
            columns["took"][row] = at_us - columns["at"][row]

    def record_drop(self, row: int, at_us: int, cause: int) -> None:
        columns = self.columns
        if not columns["outcome"][row]:  # otherwise it arrived, but its acknowledgement was lost
            columns["outcome"][row] = _ARRIVED + 1 + cause
            columns["took"][row] = at_us - columns["at"][row]


class MessageRates:
    """Number of messages sent, by message type and time bin."""

    def __init__(self) -> None:
        self.bin_us = BIN_US
        self.rows: list[array[int]] = []

    def count_message(self, kind: int, at_us: int) -> None:
        while at_us // self.bin_us >= BINS_MAX:
            self._double_bin()
        while len(self.rows) <= kind:
            self.rows.append(array("Q"))
        row, index = self.rows[kind], at_us // self.bin_us
        if index >= len(row):
            row.extend([0] * (index + 1 - len(row)))
        row[index] += 1

    def _double_bin(self) -> None:
        self.bin_us *= 2
        for number, row in enumerate(self.rows):
            row.extend([0] * (len(row) % 2))
            self.rows[number] = array("Q", map(int.__add__, row[::2], row[1::2]))
