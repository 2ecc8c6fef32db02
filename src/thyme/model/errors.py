"""Errors: one class for each way in which an input or an operation can fail.

`ThymeError` has two main subclasses. An `InputError` reports an invalid argument and is raised by
the call that received the argument. An `OperationError` reports the failure of an operation; its
`code` is the identifier sent between nodes, and `error_for_code` turns it back into an error.
Clauses: M9, M25, M30, B5.
"""

from __future__ import annotations

from typing import ClassVar, Self


class ThymeError(Exception):
    """Base class of all errors that Thyme raises."""

    code: ClassVar[str] = "error"


class InputError(ThymeError, ValueError):
    """An argument is invalid; the message names the problem and a valid alternative."""

    code = "bad_input"


class TagError(InputError):
    """A text that is not a valid tag, or an invalid set of tags of an object (M4).

    `position` is the index of the first invalid character, if there is one.
    """

    code = "bad_tag"
    position: int | None = None


class KeyFormatError(InputError):
    """An identifier or a key is malformed (M3)."""

    code = "bad_key"


class MetadataError(InputError):
    """Metadata is inconsistent or exceeds a limit: summary, size, digest (M2)."""

    code = "bad_metadata"


class InstantError(InputError):
    """A value does not identify one instant: a naive datetime, a float, a NaN (M10)."""

    code = "bad_instant"


class FrameError(InputError):
    """A time frame starts after its end (M11)."""

    code = "bad_frame"


class WorldError(InputError):
    """A description of a world is invalid: no name, an area without a size (M21)."""

    code = "bad_world"


class OptionError(InputError):
    """An option of an operation is invalid: a batch of −1, an unknown policy."""

    code = "bad_option"


class QueryError(InputError):
    """A formula is not a valid query (M7)."""

    code = "bad_query"


class QuerySyntaxError(QueryError):
    """A text is not a formula; the error points at the first invalid character (M9)."""

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
    """A formula exceeds a limit on length, depth, literals or conjunctions (M8)."""

    code = "query_too_large"


class OperationError(ThymeError):
    """An operation failed; `code` names the failure."""

    code = "failed"


class OperationTimeoutError(OperationError, TimeoutError):
    """The operation got no reply after the last try."""

    code = "timeout"


class NotFoundError(OperationError):
    """The object or subscription does not exist: never existed, was deleted, or expired."""

    code = "not_found"


class NotOwnerError(OperationError):
    """The operation is allowed to the owner only (M14)."""

    code = "not_owner"


class RejectedError(OperationError):
    """The responding node refused: the key belongs to other content, or a limit is reached."""

    code = "rejected"


class QuotaError(OperationError):
    """The responding node stores no more for this peer: its quota is used up (B5)."""

    code = "over_quota"


class DiskFullError(OperationError):
    """The responding node has no free disk space; it continues to serve stored objects (M25)."""

    code = "store_full"


class UnsupportedError(OperationError):
    """The request demands a guarantee that this substrate does not offer (M30)."""

    code = "unsupported"


class CorruptError(OperationError):
    """Received object data does not match the digest in its metadata (M19)."""

    code = "corrupt"


class ClosedError(OperationError):
    """The world was left or the subscription has ended; it accepts no more requests."""

    code = "ended"


class StoreError(ThymeError):
    """The store on disk is unusable: damaged, not a Thyme store, locked, or the disk is full."""

    code = "bad_store"


class DecodeError(ThymeError):
    """Bytes are not a message of a supported version; `reason` is the name of a counter."""

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
        DiskFullError,
        UnsupportedError,
        CorruptError,
        ClosedError,
    )
}


def error_for_code(code: str, detail: str) -> ThymeError:
    """Returns the error for a failure code; an unknown code gives an `OperationError`."""
    return _BY_CODE.get(code, OperationError)(detail or code)


def truncate(text: str, chars_max: int = 80) -> str:
    """Shortens a text for an error message."""
    return text if len(text) <= chars_max else f"{text[:chars_max]}…"


def safe_repr(value: object, chars_max: int = 80) -> str:
    """Returns the `repr` of a value for an error message, shortened."""
    if isinstance(value, str | bytes | tuple | list):
        value = value[: chars_max + 1]
    return truncate(repr(value), chars_max)


def _pointer(text: str, position: int, context_chars: int = 30) -> str:
    """Returns two lines: the text around a position, and a caret below the position."""
    start = max(0, position - context_chars)
    end = min(len(text), position + context_chars)
    before = ("…" if start else "") + _printable(text[start:position])
    after = _printable(text[position:end]) + ("…" if end < len(text) else "")
    return f"  {before}{after}\n  {' ' * len(before)}^"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
