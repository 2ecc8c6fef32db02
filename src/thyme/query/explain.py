"""Explanations: why an object does or does not match a subscription.

Entry point: `explain`.
Clauses: M32.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.time_frames import TimeFrame, format_instant


class Explanation(msgspec.Struct, frozen=True):
    """The result of a match and its reasons; `formula` and `frame` are None if unknown."""

    matches: bool
    state: str
    formula: bool | None
    frame: bool | None
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(("matches" if self.matches else "does not match", *self.reasons))


def explain(
    state: str, metadata: Metadata | None, conjunctions: Sequence[Conjunction], frame: TimeFrame
) -> Explanation:
    """Compares an object with a query and a frame; `state` is its state at the broker."""
    reasons = [f"object: {_STATE_TEXTS.get(state, state)}"]
    if metadata is None:
        return Explanation(False, state, None, None, tuple(reasons))
    met = [conjunction for conjunction in conjunctions if conjunction.matches(metadata.tags)]
    reasons += [f"formula: {conjunction} holds" for conjunction in met]
    if not met:
        reasons += [_describe_mismatch(conjunction, metadata) for conjunction in conjunctions]
    inside = frame.contains(metadata.published_us)
    where = "inside" if inside else "outside"
    reasons.append(f"frame: {format_instant(metadata.published_us)} lies {where} {frame}")
    there = state == "there"
    return Explanation(there and bool(met) and inside, state, bool(met), inside, tuple(reasons))


def _describe_mismatch(conjunction: Conjunction, metadata: Metadata) -> str:
    missing = [tag for tag in conjunction.positive if tag not in metadata.tags]
    unwanted = [tag for tag in conjunction.negative if tag in metadata.tags]
    why = [f"lacks {tag}" for tag in missing] + [f"has {tag}" for tag in unwanted]
    return f"formula: {conjunction} fails, since the object {' and '.join(why)}"


_STATE_TEXTS = {
    "there": "stored",
    "deleted": "deleted by its owner",
    "expired": "expired: its lifetime or the node's age limit has passed",
    "evicted": "evicted to free space",
    "unknown": "unknown: never received, or no longer recorded",
}
