"""Other ways to keep a history: plain posting lists, SQLite, PostgreSQL.

Each loads the same objects and answers the same questions with the matching objects' metadata, the
databases with its bytes as stored: what a broker would send. Tags are small integers to them, as
anybody would do it who cares for speed.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import msgspec
from workload_history import PastQuery

from thyme.model.frames import TimeFrame
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag

Answer = Sequence[Any]


class Engine(Protocol):
    """A way to keep history; `key_of` reads the key from an element of its answers."""

    name: str

    def latest(self, query: PastQuery, count: int) -> Answer:
        """The most recent matches of `a & (b | c) & !d` in the query's frame."""

    def tagged(self, tag: Tag, frame: TimeFrame) -> Answer:
        """All objects with a tag inside a frame."""

    def total(self, query: PastQuery) -> int:
        """How many objects match."""


def decoded(answer: Answer) -> list[Metadata]:
    """An answer as metadata, whatever form the engine gives it."""
    return [
        one if isinstance(one, Metadata) else msgspec.msgpack.decode(bytes(one[0]), type=Metadata)
        for one in answer
    ]


class PythonPostings:
    """A list of positions for every tag; the rarest wanted tag is walked, newest first."""

    name = "python-postings"

    def __init__(self, objects: Sequence[Metadata]) -> None:
        self._objects = objects
        self._times = [metadata.published_us for metadata in objects]
        self._postings: dict[Tag, list[int]] = {}
        for number, metadata in enumerate(objects):
            for tag in metadata.tags:
                self._postings.setdefault(tag, []).append(number)

    def latest(self, query: PastQuery, count: int) -> Answer:
        found: list[Metadata] = []
        for metadata in self._matches(query):
            found.append(metadata)
            if len(found) == count:
                break
        return found

    def tagged(self, tag: Tag, frame: TimeFrame) -> Answer:
        objects = self._objects
        return [objects[number] for number in reversed(self._inside(tag, frame))]

    def total(self, query: PastQuery) -> int:
        return sum(1 for _ in self._matches(query))

    def _matches(self, query: PastQuery) -> Iterator[Metadata]:
        a, b, c, d, frame, _ = query
        walked = self._inside(a, frame)
        either = [self._inside(tag, frame) for tag in (b, c)]
        if len(walked) > sum(map(len, either)):
            walked = sorted(set(chain(*either)))
        for number in reversed(walked):
            tags = self._objects[number].tags
            if a in tags and d not in tags and (b in tags or c in tags):
                yield self._objects[number]

    def _inside(self, tag: Tag, frame: TimeFrame) -> list[int]:
        assert frame.start_us is not None
        assert frame.end_us is not None
        postings = self._postings.get(tag, [])
        first = bisect_left(self._times, frame.start_us)
        end = bisect_right(self._times, frame.end_us)
        return postings[bisect_left(postings, first) : bisect_left(postings, end)]


class Tables:
    """Rows for a database with a table of objects and one of their tags."""

    def __init__(self, objects: Sequence[Metadata]) -> None:
        self.counts = Counter(tag for metadata in objects for tag in metadata.tags)
        self.tag_numbers = {tag: number for number, tag in enumerate(sorted(self.counts))}
        self._objects = objects

    def objects(self) -> Iterator[tuple[int, int, bytes]]:
        """(number, time, metadata)"""
        encode = msgspec.msgpack.Encoder().encode
        for number, metadata in enumerate(self._objects):
            yield number, metadata.published_us, encode(metadata)

    def tags(self) -> list[tuple[int, int, int]]:
        """(tag, time, number), sorted"""
        numbers = self.tag_numbers
        return sorted(
            (numbers[tag], metadata.published_us, number)
            for number, metadata in enumerate(self._objects)
            for tag in metadata.tags
        )

    def tag_sets(self) -> Iterator[list[int]]:
        """The tags of one object after the other."""
        for metadata in self._objects:
            yield [self.tag_numbers[tag] for tag in metadata.tags]

    def values(self, query: PastQuery) -> dict[str, int | None]:
        """What fills the placeholders of a statement."""
        names = zip("abcd", query[:4], strict=True)
        numbers = {name: self.tag_numbers.get(tag, -1) for name, tag in names}
        return {**numbers, "low": query.frame.start_us, "high": query.frame.end_us}

    def a_is_rarest(self, query: PastQuery) -> bool:
        """Whether fewer objects carry a than carry b or c."""
        return self.counts[query.a] <= self.counts[query.b] + self.counts[query.c]


# SQLite's placeholders; PostgreSQL's are derived from them.
_NAIVE = """
select {what} from tagged t join objects o on o.number = t.number
where t.tag = :a and t.at between :low and :high
and exists (select 1 from tagged x where x.number = t.number and x.tag in (:b, :c))
and not exists (select 1 from tagged x where x.number = t.number and x.tag = :d)
"""
_BY_B_OR_C = """
select {what} from (
    select distinct t.number, t.at from tagged t
    where t.tag in (:b, :c) and t.at between :low and :high
    and exists (select 1 from tagged x where x.number = t.number and x.tag = :a)
    and not exists (select 1 from tagged x where x.number = t.number and x.tag = :d)
    {inner}
) t join objects o on o.number = t.number
"""
_TAGGED = """
select o.body from tagged t join objects o on o.number = t.number
where t.tag = :a and t.at between :low and :high order by t.at desc
"""
_ORDER = "order by t.at desc limit 20"


class Sql:
    """The statements of a database with a table of tags, asked one way or two."""

    def __init__(self, name: str, tables: Tables, execute: Any, *, rarest: bool) -> None:
        self.name = name
        self._tables = tables
        self._execute = execute
        self._rarest = rarest

    def latest(self, query: PastQuery, count: int) -> Answer:
        assert count == 20, "the statements say 20"
        if not self._rarest or self._tables.a_is_rarest(query):
            statement = _NAIVE.format(what="o.body") + _ORDER
        else:
            inner = _BY_B_OR_C.format(what="o.body", inner=_ORDER)
            statement = inner + " order by t.at desc"
        return self._execute(statement, self._tables.values(query)).fetchall()

    def tagged(self, tag: Tag, frame: TimeFrame) -> Answer:
        values = self._tables.values(PastQuery(tag, tag, tag, tag, frame, ()))
        return self._execute(_TAGGED, values).fetchall()

    def total(self, query: PastQuery) -> int:
        both = _NAIVE, _BY_B_OR_C
        statement = both[self._rarest and not self._tables.a_is_rarest(query)]
        values = self._tables.values(query)
        [[total]] = self._execute(statement.format(what="count(*)", inner=""), values).fetchall()
        return total
