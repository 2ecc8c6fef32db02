"""Limits on the command line: what a node stores for each peer, and in all.

Entry points: `parse_quota`, `parse_retention`, `parse_replicas`.
Clauses: M29, B5.
"""

from __future__ import annotations

import re
from datetime import timedelta

from msgspec.structs import asdict, replace

from thyme.cli.times import parse_span
from thyme.model.errors import OptionError, safe_repr
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.common.quotas import Quota

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


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
    return None if found is None else int(found[1]) * _UNITS[found[2]]
