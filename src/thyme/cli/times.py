"""Times on the command line: spans such as 2h, and instants such as 2026-07-10T21:00Z.

Entry points: `parse_span`, `parse_instant`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from thyme.model.errors import InputError, OptionError, safe_repr

_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_span(text: str) -> timedelta:
    """Parses a time span such as 90s, 30m, 2h or 1d."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise OptionError(f"a time span is like 90s, 30m, 2h or 1d, not {safe_repr(text)}")
    try:
        return timedelta(**{_UNITS[found[2]]: float(found[1])})
    except OverflowError:
        raise OptionError(f"{safe_repr(text)} is too long") from None


def parse_instant(text: str, *, past: bool) -> datetime:
    """Parses an instant, or a span before now (`past`) or from now; an instant without a zone is
    local time."""
    if _SPAN.fullmatch(text):
        span = parse_span(text)
        try:
            return datetime.now(UTC) + (-span if past else span)
        except OverflowError:
            raise OptionError(f"{safe_repr(text)} is too long") from None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"a time is a span like 2h or an instant like 2026-07-10T21:00Z, not {safe_repr(text)}"
        ) from None
    return found if found.tzinfo is not None else found.astimezone()
