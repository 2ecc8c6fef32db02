"""Errors: every way an input or an operation can fail, each with a name of its own.

Two families hang below `ThymeError`. An `InputError` says that what was handed in is wrong, and is
raised at once where it was handed in. An `OperationError` says how an operation ended when it did
not succeed; its `code` is the word that travels between nodes.
Clauses: M9, M25, M30, B5.
"""

from __future__ import annotations

from typing import ClassVar, Self


class ThymeError(Exception):
    """Whatever Thyme raises on purpose."""

    code: ClassVar[str] = "error"


class InputError(ThymeError, ValueError):
    """What was handed in cannot be used; the message says why and what would do."""

    code = "bad_input"


class TagError(InputError):
    """A word that cannot be a tag, or a set of tags that cannot describe an object (M4).

    `position` is where in the word the trouble is, if it is in one place.
    """

    code = "bad_tag"
    position: int | None = None


class KeyFormatError(InputError):
    """An identifier or a key that is not one (M3)."""

    code = "bad_key"


class MetadataError(InputError):
    """Metadata that contradicts itself or breaks a limit: summary, size, digest (M2)."""

    code = "bad_metadata"


class InstantError(InputError):
    """A value that does not name one instant: a naive datetime, a float, a NaN (M10)."""

    code = "bad_instant"


class FrameError(InputError):
    """A time frame that starts after it ends (M11)."""

    code = "bad_frame"


class WorldError(InputError):
    """A description of a world that cannot be: no name, an area without a size (M21)."""

    code = "bad_world"


class OptionError(InputError):
    """A setting of an operation that has no meaning: a batch of −1, an unknown policy."""

    code = "bad_option"


class QueryError(InputError):
    """A formula that cannot be a query (M7)."""

    code = "bad_query"


class QuerySyntaxError(QueryError):
    """Text that is not a formula; points at the character (M9)."""

    code = "bad_query_syntax"

    def __init__(self, text: str, position: int, found: str, expected: str) -> None:
        self.text = text
        self.position = position
        self.found = found
        self.expected = expected
        super().__init__(
            f"at character {position}: found {found}, expected {expected}\n"
            + _pointer(text, position)
        )

    def __reduce__(self) -> tuple[type[Self], tuple[str, int, str, str]]:
        return type(self), (self.text, self.position, self.found, self.expected)


class QueryTooLargeError(QueryError):
    """A formula over one of the bounds on length, depth, literals or conjunctions (M8)."""

    code = "query_too_large"


class OperationError(ThymeError):
    """An operation that ended in a named failure."""

    code = "failed"


class OperationTimeoutError(OperationError, TimeoutError):
    """No answer after the last try."""

    code = "timeout"


class NotFoundError(OperationError):
    """The object or subscription is not there: never was, deleted, or expired."""

    code = "not_found"


class NotOwnerError(OperationError):
    """Only the owner may do this (M14)."""

    code = "not_owner"


class RejectedError(OperationError):
    """The node that was asked refused: the key is taken by other content, a limit is reached."""

    code = "rejected"


class QuotaError(OperationError):
    """The node that was asked keeps as much for this one as for any other, and no more (B5)."""

    code = "over_quota"


class FullError(OperationError):
    """The node that was asked has no room on its disk; it goes on with what it has (M25)."""

    code = "store_full"


class UnsupportedError(OperationError):
    """A guarantee that this substrate cannot give was asked for (M30)."""

    code = "unsupported"


class CorruptError(OperationError):
    """What arrived is not what its metadata says: the digest differs (M19)."""

    code = "corrupt"


class EndedError(OperationError):
    """The world was left or the subscription is over: nothing more can be asked of it."""

    code = "ended"


class StoreError(ThymeError):
    """The store on disk cannot be used: damaged, foreign, locked, or full to the last byte."""

    code = "bad_store"


class DecodeError(ThymeError):
    """Bytes that are not a message of a version we speak; `reason` is the counter they go to."""

    code = "undecodable"

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}")

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (self.reason, self.detail)


_BY_CODE: dict[str, type[ThymeError]] = {
    error.code: error
    for error in (
        TagError,
        KeyFormatError,
        MetadataError,
        OperationTimeoutError,
        NotFoundError,
        NotOwnerError,
        RejectedError,
        QuotaError,
        FullError,
        UnsupportedError,
        CorruptError,
        EndedError,
    )
}


def failure(code: str, detail: str) -> ThymeError:
    """The error that a failure's code stands for; an unknown code gives a plain one."""
    return _BY_CODE.get(code, OperationError)(detail or code)


def shortened(text: str, most: int = 80) -> str:
    """Text for an error message, cut where it grows too long."""
    return text if len(text) <= most else f"{text[:most]}…"


def shown(value: object, most: int = 80) -> str:
    """A value for an error message: as Python writes it, and short however long it is."""
    if isinstance(value, str | bytes | tuple | list):
        value = value[: most + 1]
    return shortened(repr(value), most)


def _pointer(text: str, position: int, reach: int = 30) -> str:
    """Two lines: the text around a position, and a caret below it."""
    start = max(0, position - reach)
    end = min(len(text), position + reach)
    before = ("…" if start else "") + _printable(text[start:position])
    after = _printable(text[position:end]) + ("…" if end < len(text) else "")
    return f"  {before}{after}\n  {' ' * len(before)}^"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
