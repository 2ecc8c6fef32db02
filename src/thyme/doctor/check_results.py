"""Findings: the result of each check, and whether a node can work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Verdict = Literal["ok", "warning", "failed", "skipped"]


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one check."""

    check: str
    verdict: Verdict
    text: str
    """What was found."""
    advice: str | None = None
    """What to do about it."""


def ok(check: str, text: str) -> CheckResult:
    """A check that found nothing wrong."""
    return CheckResult(check=check, verdict="ok", text=text)


def warning(check: str, text: str, advice: str) -> CheckResult:
    """A check that found a limitation; nodes work with it."""
    return CheckResult(check=check, verdict="warning", text=text, advice=advice)


def failed(check: str, text: str, advice: str) -> CheckResult:
    """A check that found why a node cannot work, or finds nobody."""
    return CheckResult(check=check, verdict="failed", text=text, advice=advice)


def skipped(check: str, text: str, advice: str | None = None) -> CheckResult:
    """A check that could not be made, with the reason."""
    return CheckResult(check=check, verdict="skipped", text=text, advice=advice)


def is_healthy(findings: Iterable[CheckResult]) -> bool:
    """Whether no check failed."""
    return all(finding.verdict != "failed" for finding in findings)
