"""Other ways to keep a history: plain posting lists, SQLite, PostgreSQL.

Each loads the same objects and hands back the metadata of those that match: the databases its bytes
as stored, which is what a broker would send. Tags are small integers to them, statements are
prepared once, and nothing waits for a disk.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any, Protocol

import msgspec
from indexes.history_workload import PastQuery

from thyme.model.metadata import Metadata
from thyme.model.tags import Tag
from thyme.model.time_frames import TimeFrame

PAGE = 20
Rows = Sequence[Any]
Values = Mapping[str, int | None]
Ask = Callable[[str, Values], Rows]


class Engine(Protocol):
    """A way to keep history."""

    def latest(self, query: PastQuery) -> Rows:
        """The most recent matches of `a & (b | c) & !d` in the query's frame, newest first."""

    def tagged(self, tag: Tag, frame: TimeFrame) -> Rows:
        """All objects with a tag inside a frame, newest first."""

    def total(self, query: PastQuery) -> int:
        """How many objects match."""


class PythonPostings:
    """A list of numbers for every tag; the rarest wanted tag is walked, newest first."""

    def __init__(self, objects: Sequence[Metadata]) -> None:
        self._objects = objects
        self._times = [metadata.published_us for metadata in objects]
        self._postings: dict[Tag, list[int]] = {}
        for number, metadata in enumerate(objects):
            for tag in metadata.tags:
                self._postings.setdefault(tag, []).append(number)

    def latest(self, query: PastQuery) -> Rows:
        found = []
        for metadata in self._matches(query):
            found.append(metadata)
            if len(found) == PAGE:
                break
        return found

    def tagged(self, tag: Tag, frame: TimeFrame) -> Rows:
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
        low = bisect_left(postings, bisect_left(self._times, frame.start_us))
        return postings[low : bisect_left(postings, bisect_right(self._times, frame.end_us))]


class Tables:
    """The objects as rows, and what databases want to know of them."""

    def __init__(self, objects: Sequence[Metadata]) -> None:
        self.counts = Counter(tag for metadata in objects for tag in metadata.tags)
        self.tag_numbers = {tag: number for number, tag in enumerate(sorted(self.counts))}
        self._objects = objects

    def objects(self) -> Iterator[tuple[int, int, bytes, list[int]]]:
        """(number, time, metadata, tags)"""
        encode = msgspec.msgpack.Encoder().encode
        for number, metadata in enumerate(self._objects):
            tags = [self.tag_numbers[tag] for tag in metadata.tags]
            yield number, metadata.published_us, encode(metadata), tags

    def tagged(self) -> list[tuple[int, int, int]]:
        """(tag, time, number), in order"""
        return sorted(
            (self.tag_numbers[tag], metadata.published_us, number)
            for number, metadata in enumerate(self._objects)
            for tag in metadata.tags
        )

    def values(self, query: PastQuery) -> Values:
        """What fills the placeholders of a statement."""
        number = self.tag_numbers.get
        return {
            "a": number(query.a, -1),
            "b": number(query.b, -1),
            "c": number(query.c, -1),
            "d": number(query.d, -1),
            "low": query.frame.start_us,
            "high": query.frame.end_us,
        }

    def a_is_rarest(self, query: PastQuery) -> bool:
        """Whether no more objects carry a than carry b or c."""
        return self.counts[query.a] <= self.counts[query.b] + self.counts[query.c]


_BY_A = """from tagged t {join}
    where t.tag = :a and t.at between :low and :high
    and exists (select 1 from tagged x where x.number = t.number and x.tag in (:b, :c))
    and not exists (select 1 from tagged x where x.number = t.number and x.tag = :d)"""
_BY_B_OR_C = """from (select distinct t.number, t.at from tagged t
    where t.tag in (:b, :c) and t.at between :low and :high
    and exists (select 1 from tagged x where x.number = t.number and x.tag = :a)
    and not exists (select 1 from tagged x where x.number = t.number and x.tag = :d)
    {inner}) t {join}"""
_BY_ARRAY = """from objects o where o.at between :low and :high
    and o.tags @> array[:a]::int[] and o.tags && array[:b, :c]::int[]
    and not o.tags @> array[:d]::int[]"""
_BODY = "join objects o on o.number = t.number"
_NEWEST = f"order by t.at desc limit {PAGE}"


class TagTable:
    """A database with a table of tags, walked by tag a, or by the rarest of those wanted."""

    def __init__(self, ask: Ask, tables: Tables, *, rarest: bool, bodies: bool = True) -> None:
        self._ask = ask
        self._tables = tables
        self._rarest = rarest
        what, join = ("o.body", _BODY) if bodies else ("t.number", "")
        self._latest = (
            f"select {what} {_BY_A.format(join=join)} {_NEWEST}",
            f"select {what} {_BY_B_OR_C.format(inner=_NEWEST, join=join)} order by t.at desc",
        )
        self._total = (
            f"select count(*) {_BY_A.format(join='')}",
            f"select count(*) {_BY_B_OR_C.format(inner='', join='')}",
        )
        self._tagged = (
            f"select {what} from tagged t {join} "
            "where t.tag = :a and t.at between :low and :high order by t.at desc"
        )

    def latest(self, query: PastQuery) -> Rows:
        return self._ask(self._latest[self._other(query)], self._tables.values(query))

    def tagged(self, tag: Tag, frame: TimeFrame) -> Rows:
        query = PastQuery(tag, tag, tag, tag, frame, ())
        return self._ask(self._tagged, self._tables.values(query))

    def total(self, query: PastQuery) -> int:
        rows = self._ask(self._total[self._other(query)], self._tables.values(query))
        return int(rows[0][0])

    def _other(self, query: PastQuery) -> bool:
        return self._rarest and not self._tables.a_is_rarest(query)


class TagArray:
    """A database that keeps an object's tags in an array with an inverted index (GIN)."""

    def __init__(self, ask: Ask, tables: Tables) -> None:
        self._ask = ask
        self._tables = tables

    def latest(self, query: PastQuery) -> Rows:
        newest = _NEWEST.replace("t.at", "o.at")
        return self._ask(f"select o.body {_BY_ARRAY} {newest}", self._tables.values(query))

    def tagged(self, tag: Tag, frame: TimeFrame) -> Rows:
        query = PastQuery(tag, tag, tag, tag, frame, ())
        statement = (
            "select o.body from objects o where o.tags @> array[:a]::int[] "
            "and o.at between :low and :high order by o.at desc"
        )
        return self._ask(statement, self._tables.values(query))

    def total(self, query: PastQuery) -> int:
        rows = self._ask(f"select count(*) {_BY_ARRAY}", self._tables.values(query))
        return int(rows[0][0])


def sqlite(tables: Tables) -> Ask:
    """A SQLite database in memory, loaded and indexed."""
    base = sqlite3.connect(":memory:", cached_statements=64)
    base.execute("create table objects (number integer primary key, at integer, body blob)")
    base.execute(
        "create table tagged (tag integer, at integer, number integer, "
        "primary key (tag, at, number)) without rowid"
    )
    base.executemany("insert into objects values (?, ?, ?)", (row[:3] for row in tables.objects()))
    base.executemany("insert into tagged values (?, ?, ?)", tables.tagged())
    base.execute("create index tagged_number on tagged (number, tag)")
    base.execute("analyze")
    return lambda statement, values: base.execute(statement, values).fetchall()


@contextmanager
def postgres(tables: Tables) -> Iterator[Ask | str]:
    """A throw-away PostgreSQL server, loaded and indexed; or the reason why there is none."""
    try:
        import psycopg
    except ImportError:
        yield "psycopg is not installed"
        return
    programs = _postgres_programs()
    if programs is None:
        yield "no server is installed"
        return
    with TemporaryDirectory(prefix="thyme-pg-") as folder:
        user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root
        try:
            server = _start(programs, Path(folder), user)
        except (OSError, LookupError, ValueError, subprocess.CalledProcessError) as error:
            yield f"the server does not start: {error}"
            return
        try:
            address = f"host={folder} dbname=postgres user=thyme"
            with _connected(psycopg, address, server) as connection:
                _load(connection, tables)
                yield _asking(connection)
        finally:
            server.terminate()
            server.wait()


def _asking(connection: Any) -> Ask:
    """Statements are written with `:name`; the server's own form is made once for each."""
    written: dict[str, str] = {}

    def ask(statement: str, values: Values) -> Rows:
        if statement not in written:
            text = statement.replace("::", "\0")
            for name in ("low", "high", "a", "b", "c", "d"):
                text = text.replace(f":{name}", f"%({name})s")
            written[statement] = text.replace("\0", "::")
        answer: Rows = connection.execute(written[statement], values, prepare=True).fetchall()
        return answer

    return ask


def _postgres_programs() -> Path | None:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = installed[-1] if installed else shutil.which("initdb")
    return Path(found).parent if found else None


def _start(programs: Path, folder: Path, user: str | None) -> subprocess.Popen[bytes]:
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "user": user}
    initialise = [str(programs / "initdb"), "-D", str(data), "-U", "thyme", "-A", "trust", "-N"]
    subprocess.run(initialise, check=True, cwd=folder, **quiet)
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": folder,
        "shared_buffers": "1GB",
        "work_mem": "64MB",
        "maintenance_work_mem": "256MB",
        "max_wal_size": "4GB",
        "fsync": "off",
        "jit": "off",
        "plan_cache_mode": "force_custom_plan",  # a plan for all tags suits none
        "max_parallel_workers_per_gather": "0",
    }
    options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
    return subprocess.Popen([programs / "postgres", "-D", data, *options], cwd=folder, **quiet)


def _connected(psycopg: Any, address: str, server: subprocess.Popen[bytes]) -> Any:
    while True:
        try:
            return psycopg.connect(address, autocommit=True)
        except psycopg.OperationalError:
            if server.poll() is not None:
                raise
            sleep(0.1)


def _load(connection: Any, tables: Tables) -> None:
    connection.execute(
        "create table objects (number int primary key, at bigint, body bytea, tags int[])"
    )
    connection.execute("create table tagged (tag int, at bigint, number int)")
    with connection.cursor().copy("copy objects from stdin (format binary)") as copy:
        copy.set_types(["int4", "int8", "bytea", "int4[]"])
        for row in tables.objects():
            copy.write_row(row)
    with connection.cursor().copy("copy tagged from stdin (format binary)") as copy:
        copy.set_types(["int4", "int8", "int4"])
        for entry in tables.tagged():
            copy.write_row(entry)
    connection.execute("create unique index on tagged (tag, at, number)")
    connection.execute("create unique index on tagged (number, tag)")
    connection.execute("create index on objects using gin (tags)")
    connection.execute("vacuum analyze")
