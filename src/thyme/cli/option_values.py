"""Values of options on the command line: times, limits of storage, numbers of replicas, and the
options that several commands share.

Entry points: `parse_span`, `parse_instant`, `parse_quota`, `parse_retention`, `parse_bytes`,
`parse_replicas`, `add_retrieve_options`.
Clauses: M29, D14, B5.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from thyme.model.errors import InputError, OptionError, safe_repr

if TYPE_CHECKING:
    from thyme.substrates.common.catalogue import Retention
    from thyme.substrates.common.quotas import Quota

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


_MULTIPLES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def parse_quota(text: str, default: Quota) -> Quota:
    """Parses bytes=100M,objects=1000,subscriptions=none; limits not named keep their default."""
    limits: dict[str, int | None] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        amount = _parse_amount(number)
        if name not in asdict(default) or (amount is None and number != "none"):
            raise OptionError(
                "--quota takes bytes, objects and subscriptions, each a number (1000, 100M, 4G) "
                f"or none: bytes=4G,objects=1000; not {safe_repr(part)}"
            )
        limits[name] = amount
    return replace(default, **limits)


def parse_retention(text: str) -> Retention:
    """Parses age=7d,bytes=10G,objects=100000; what is not named is not limited."""
    from thyme.substrates.common.catalogue import Retention

    limits: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        amount = _parse_age(value) if name == "age" else _parse_amount(value)
        if name not in _RETENTION_FIELDS or not amount:
            raise OptionError(
                "--retention takes age (a time span: 90m, 7d), bytes and objects (a number: 1000, "
                f"100M, 10G): age=7d,bytes=10G; not {safe_repr(part)}"
            )
        limits[_RETENTION_FIELDS[name]] = amount
    return replace(Retention(), **limits)


def parse_bytes(text: str, option: str) -> int:
    """Parses a number of bytes such as 1000, 100M or 4G."""
    amount = _parse_amount(text)
    if not amount:
        raise OptionError(f"{option} takes a number of bytes: 100M, 4G; not {safe_repr(text)}")
    return amount


def parse_replicas(text: str | None) -> int | str | None:
    """A number of replicas as a number; "all" and anything else are checked where they are used."""
    return int(text) if text is not None and text.isdecimal() else text


_RETENTION_FIELDS = {"age": "age_us_max", "bytes": "bytes_max", "objects": "objects_max"}


def _parse_age(text: str) -> int | None:
    try:
        return parse_span(text) // timedelta(microseconds=1)
    except OptionError:
        return None


def _parse_amount(text: str) -> int | None:
    found = re.fullmatch(r"(\d{1,15})([KMG]?)", text, re.ASCII)
    return None if found is None else int(found[1]) * _MULTIPLES[found[2]]


def add_retrieve_options(parser: ArgumentParser) -> None:
    """Adds the options that say how simulated users retrieve objects."""
    parser.add_argument(
        "--retrieve", metavar="P", type=float,
        help="probability that a user retrieves a notified object (default: 0.7)",
    )  # fmt: skip
    parser.add_argument(
        "--within", metavar="S", type=float,
        help="maximum seconds from notification to retrieve (default: 30)",
    )  # fmt: skip
