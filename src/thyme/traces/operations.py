"""Operations: the four kinds of operations in a trace, each with an instant and a user.

Instants, also those of frames, are microseconds from the start of the operations; the simulator
adds the instant at which operations begin. Retrieves are not here: they depend on notifications
(`retrieve_behaviour`).
Clauses: S10, M2, M10, M11, M14, M18, M29.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Self

import msgspec

from thyme.model.errors import InputError, QuerySyntaxError
from thyme.model.ids import as_object_id, as_subscription_id
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag, check_tags
from thyme.model.time_frames import ALWAYS, INSTANT_MAX_US, TimeFrame
from thyme.query.query import Query

SIZE_MAX = 2**40
"""Limit of sizes: a tebibyte; a larger size is taken for an error."""


class TraceError(InputError):
    """An invalid operation of a trace: the field and its problem."""

    code = "bad_trace"

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (self.field, self.problem)


class InsertOperation(msgspec.Struct, frozen=True, tag="Insert"):
    """A user inserts an object.

    The bytes of the object are `text`; without a text, they are `size` arbitrary bytes.
    """

    at_us: int
    user: int
    oid: str
    tags: tuple[Tag, ...]
    size: int
    summary_size: int = 0
    text: str = ""
    life_us: int | None = None
    """Time to live after publication (M29); None: unlimited."""

    def __post_init__(self) -> None:
        _check_common(self.at_us, self.user)
        with error_context("oid"):
            as_object_id(self.oid)
        with error_context("tags"):
            check_tags(self.tags)
        _check_range("size", self.size, 0, SIZE_MAX)
        _check_range("summary_size", self.summary_size, 0, SIZE_MAX)
        if self.text and (size := _utf8_length(self.text)) != self.size:
            raise TraceError("size", f"the text has {size} bytes, not {self.size}")
        if self.life_us is not None:
            _check_range("life_us", self.life_us, 1, INSTANT_MAX_US - self.at_us)

    @property
    def expires_us(self) -> int | None:
        """The instant at which the object expires; None: never."""
        return None if self.life_us is None else self.at_us + self.life_us

    def has_expired(self, now_us: int) -> bool:
        """Whether the object has expired."""
        return self.life_us is not None and self.at_us + self.life_us <= now_us


class DeleteOperation(msgspec.Struct, frozen=True, tag="Delete"):
    """A user deletes one of its objects."""

    at_us: int
    user: int
    oid: str

    def __post_init__(self) -> None:
        _check_common(self.at_us, self.user)
        with error_context("oid"):
            as_object_id(self.oid)


class SubscribeOperation(msgspec.Struct, frozen=True, tag="Subscribe"):
    """A user subscribes to objects that match a query and are published inside a frame."""

    at_us: int
    user: int
    sid: str
    query: str
    frame: TimeFrame = ALWAYS

    def __post_init__(self) -> None:
        _check_common(self.at_us, self.user)
        with error_context("sid"):
            as_subscription_id(self.sid)
        with error_context("query"):
            conjunctions_of(self.query)

    @property
    def conjunctions(self) -> tuple[Conjunction, ...]:
        """The conjunctions of the query in disjunctive normal form."""
        return conjunctions_of(self.query)

    def shift_frame(self, origin_us: int) -> TimeFrame:
        """The frame in a run whose operations begin at `origin_us`."""
        start_us, end_us = self.frame.start_us, self.frame.end_us
        return TimeFrame(
            None if start_us is None else start_us + origin_us,
            None if end_us is None else end_us + origin_us,
        )


class UnsubscribeOperation(msgspec.Struct, frozen=True, tag="Unsubscribe"):
    """A user revokes one of its subscriptions."""

    at_us: int
    user: int
    sid: str

    def __post_init__(self) -> None:
        _check_common(self.at_us, self.user)
        with error_context("sid"):
            as_subscription_id(self.sid)


Operation = InsertOperation | DeleteOperation | SubscribeOperation | UnsubscribeOperation


@lru_cache(maxsize=16_384)
def conjunctions_of(query: str) -> tuple[Conjunction, ...]:
    """Parses a query into conjunctions; cached, because traces repeat a few queries."""
    return Query(query).conjunctions


@contextmanager
def error_context(field: str) -> Iterator[None]:
    """Adds the name of a field to the errors raised inside the block."""
    try:
        yield
    except TraceError:
        raise
    except QuerySyntaxError as error:
        # Only the first line: the pointer to the character below it is for terminals.
        raise TraceError(field, str(error).partition("\n")[0]) from error
    except InputError as error:
        raise TraceError(field, str(error)) from error


def _check_common(at_us: int, user: int) -> None:
    _check_range("at_us", at_us, 0, INSTANT_MAX_US)
    _check_range("user", user, 0, INSTANT_MAX_US)


def _check_range(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        limit = f"{least} or more" if value < least else f"at most {most}"
        raise TraceError(field, f"must be {limit}, not {value}")


def _utf8_length(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise TraceError("text", f"cannot be written as UTF-8 at character {error.start}") from None
