"""Time frames: instants, and the time frames of subscriptions.

Entry points: `TimeFrame`, `as_instant_us`. Instants are integers, microseconds since 1970 (UTC). An
application may also pass an aware `datetime`, or a `timedelta` relative to now. A float or a naive
datetime is rejected because it does not identify one instant.
Clauses: M10, M11.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from thyme.model.errors import FrameError, InstantError

SECOND_US = 1_000_000
INSTANT_MAX_US = 2**62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def as_instant_us(value: int | datetime | timedelta, now_us: int) -> int:
    """Converts a value given by an application to microseconds since 1970."""
    match value:
        case bool():
            raise InstantError(f"an instant cannot be a boolean: {value!r}")
        case int():
            instant_us = value
        case datetime():
            if value.utcoffset() is None:
                raise InstantError(
                    f"{value!r} has no time zone, so the instant is unknown; "
                    "use e.g. datetime.now(timezone.utc) or .astimezone()"
                )
            instant_us = (value - _EPOCH) // _MICROSECOND
        case timedelta():
            instant_us = now_us + value // _MICROSECOND
        case _:
            raise InstantError(
                f"an instant is an aware datetime, a timedelta from now, or an integer of "
                f"microseconds since 1970, not {type(value).__name__}: {value!r}"
            )
    check_instant_us(instant_us)
    return instant_us


def check_instant_us(instant_us: int) -> None:
    """Raises `InstantError` for an instant outside the supported range."""
    if not -INSTANT_MAX_US <= instant_us <= INSTANT_MAX_US:
        raise InstantError(f"instant out of range: {instant_us} µs")


class TimeFrame(msgspec.Struct, frozen=True, array_like=True):
    """A closed interval of publication time; None leaves an end open (M10, M11)."""

    start_us: int | None = None
    end_us: int | None = None

    def __post_init__(self) -> None:
        for end in (self.start_us, self.end_us):
            if end is not None:
                check_instant_us(end)
        if self.start_us is not None and self.end_us is not None and self.start_us > self.end_us:
            raise FrameError(f"frame starts ({self.start_us} µs) after it ends ({self.end_us} µs)")

    def contains(self, at_us: int) -> bool:
        """Whether an object published at this instant is inside; both ends are included."""
        after = self.start_us is None or self.start_us <= at_us
        return after and (self.end_us is None or at_us <= self.end_us)

    def has_ended(self, now_us: int) -> bool:
        """Whether the end of the frame has passed."""
        return self.end_us is not None and self.end_us < now_us

    def __str__(self) -> str:
        return f"{_format_bound(self.start_us)}..{_format_bound(self.end_us)}"


ALWAYS = TimeFrame()


def as_frame(
    start: int | datetime | timedelta | None, end: int | datetime | timedelta | None, now_us: int
) -> TimeFrame:
    """Makes a frame from two instants given by an application."""
    return TimeFrame(
        None if start is None else as_instant_us(start, now_us),
        None if end is None else as_instant_us(end, now_us),
    )


def format_instant(instant_us: int) -> str:
    """Formats an instant as ISO 8601 in UTC, or as microseconds beyond the calendar's range."""
    try:
        return (_EPOCH + instant_us * _MICROSECOND).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{instant_us} µs"


def _format_bound(end_us: int | None) -> str:
    return "⊥" if end_us is None else format_instant(end_us)


def earliest(*times_us: int | None) -> int | None:
    """The earliest of several times; None means never."""
    first_us: int | None = None
    for at_us in times_us:
        if at_us is not None and (first_us is None or at_us < first_us):
            first_us = at_us
    return first_us
