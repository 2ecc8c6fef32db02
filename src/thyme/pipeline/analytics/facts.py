"""Facts: the events that lost notifications are computed from, as tables by kind.

Entry point: `FactRows.add_event`. A fact is a successful insert, delete, subscribe or unsubscribe,
or the notification of a new object; `recall` compares them. Pure.
Clauses: P9, P4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import pyarrow as pa

from thyme.events.event import NOTIFICATION, OPERATION, Event

OPERATION_FACTS = ("insert", "delete", "subscribe", "unsubscribe")
FACTS = pa.schema(  # one row per fact, in a folder for each kind
    [
        pa.field("fact_us", pa.int64(), nullable=False),
        pa.field("at_us", pa.int64(), nullable=False),
        pa.field("took_us", pa.int64()),
        pa.field("world", pa.string(), nullable=False),
        pa.field("node", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("life_us", pa.int64()),
        pa.field("sid", pa.string()),
        pa.field("query", pa.string()),
        pa.field("start_us", pa.int64()),
        pa.field("end_us", pa.int64()),
    ]
)
"""`fact_us` is the instant of the event, of a notification the publication of its object. A
notification has no tags: those of the insert decide."""


class FactSpan(msgspec.Struct, frozen=True, kw_only=True):
    """How many facts of a kind there are, and of which time."""

    count: int
    first_us: int
    last_us: int


def merge_spans(parts: Iterable[Mapping[str, FactSpan]]) -> dict[str, FactSpan]:
    """The spans of several tables together, by kind."""
    found: dict[str, FactSpan] = {}
    for part in parts:
        for what, span in part.items():
            known = found.get(what, span)
            found[what] = FactSpan(
                count=span.count + (known.count if what in found else 0),
                first_us=min(known.first_us, span.first_us),
                last_us=max(known.last_us, span.last_us),
            )
    return dict(sorted(found.items()))


class FactRows:
    """The facts among events, by kind."""

    def __init__(self) -> None:
        self._facts: dict[str, list[tuple[int, Event]]] = {}

    def add_event(self, event: Event) -> None:
        """Adds an event if it is a fact."""
        if event.kind == NOTIFICATION:
            if not event.past:
                fact_us = event.at_us if event.published_us is None else event.published_us
                self._facts.setdefault(NOTIFICATION, []).append((fact_us, event))
        elif event.kind == OPERATION and event.code == "ok" and event.op in OPERATION_FACTS:
            self._facts.setdefault(event.op, []).append((event.at_us, event))

    def to_tables(self) -> dict[str, tuple[FactSpan, pa.Table]]:
        """The tables of the kinds that occurred, in the columns of FACTS."""
        return {what: _make_table(what, facts) for what, facts in sorted(self._facts.items())}


def _make_table(what: str, facts: list[tuple[int, Event]]) -> tuple[FactSpan, pa.Table]:
    instants = [fact_us for fact_us, _ in facts]
    columns = [pa.array(instants, pa.int64())]
    for field in FACTS:
        name = field.name
        if name == "tags" and what == NOTIFICATION:
            columns.append(pa.nulls(len(facts), field.type))
        elif name != "fact_us":
            columns.append(pa.array([getattr(event, name) for _, event in facts], field.type))
    span = FactSpan(count=len(facts), first_us=min(instants), last_us=max(instants))
    return span, pa.table(columns, schema=FACTS)
