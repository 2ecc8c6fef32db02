"""Findings: the result of each check, and whether a node can work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Verdict = Literal["ok", "warning", "failed", "skipped"]


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one check."""

    check: str
    verdict: Verdict
    text: str
    """What was found."""
    advice: str | None = None
    """What to do about it."""


def ok(check: str, text: str) -> Finding:
    """A check that found nothing wrong."""
    return Finding(check=check, verdict="ok", text=text)


def warning(check: str, text: str, advice: str) -> Finding:
    """A check that found a limitation; nodes work with it."""
    return Finding(check=check, verdict="warning", text=text, advice=advice)


def failed(check: str, text: str, advice: str) -> Finding:
    """A check that found why a node cannot work, or finds nobody."""
    return Finding(check=check, verdict="failed", text=text, advice=advice)


def skipped(check: str, text: str, advice: str | None = None) -> Finding:
    """A check that could not be made, with the reason."""
    return Finding(check=check, verdict="skipped", text=text, advice=advice)


def is_healthy(findings: Iterable[Finding]) -> bool:
    """Whether no check failed."""
    return all(finding.verdict != "failed" for finding in findings)
