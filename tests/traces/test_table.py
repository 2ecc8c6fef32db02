"""S10: traces are written as they are, byte for byte, and read back or refused with a place."""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traces.strategies import USERS, traces
from thyme.distribution import install_hint
from thyme.model.tags import Tag
from thyme.model.time_frames import TimeFrame
from thyme.traces import files
from thyme.traces.files import InputFileError
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    SubscribeOperation,
    UnsubscribeOperation,
)
from thyme.traces.row_codec import COLUMNS
from thyme.traces.trace import Trace
from thyme.traces.trace_files import read_trace, write_trace

HEADER = "at_us,user,op,oid,tags,size,summary_size,life_us,text,sid,query,start_us,end_us"
SMALL = Trace(
    2,
    (
        InsertOperation(0, 0, "o1", (Tag("eder"), Tag("goal")), 5, 2, "héé", 900),
        SubscribeOperation(3, 1, "s1", "goal & !replay", TimeFrame(3)),
        DeleteOperation(4, 0, "o1"),
        UnsubscribeOperation(4, 1, "s1"),
    ),
)
SMALL_CSV = f"""{HEADER}
0,0,insert,o1,eder goal,5,2,900,héé,,,,
3,1,subscribe,,,,,,,s1,goal & !replay,3,
4,0,delete,o1,,,,,,,,,
4,1,unsubscribe,,,,,,,s1,,,
"""
NAMES = ["trace.csv", "trace.csv.gz", *(["trace.parquet"] if find_spec("pyarrow") else [])]


def test_a_csv_file_is_what_a_person_would_write(tmp_path: Path) -> None:
    write_trace(SMALL, tmp_path / "trace.csv")
    assert (tmp_path / "trace.csv").read_text("utf-8") == SMALL_CSV


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    write_trace(SMALL, tmp_path / name)
    assert read_trace(tmp_path / name) == SMALL


@pytest.mark.parametrize("name", NAMES)
def test_equal_traces_are_equal_bytes(tmp_path: Path, name: str) -> None:
    write_trace(SMALL, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    write_trace(read_trace(tmp_path / name), tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


@given(trace=traces().filter(len), suffix=st.sampled_from(NAMES))
def test_any_trace_survives_a_file(
    tmp_path_factory: pytest.TempPathFactory, trace: Trace, suffix: str
) -> None:
    path = tmp_path_factory.mktemp("traces") / suffix
    write_trace(trace, path)
    assert read_trace(path, USERS) == trace


def test_columns_may_stand_in_any_order_among_others_and_tags_need_no_normal_form(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace.csv"
    names = [*reversed(HEADER.split(",")), "mood"]
    words = {"at_us": "7", "user": "1", "op": "insert", "oid": "x", "tags": " Goal  EDER goal"}
    words |= {"size": "3", "mood": "fine"}
    path.write_text(",".join(names) + "\r\n\r\n" + ",".join(words.get(n, "") for n in names))

    assert read_trace(path, 2).operations == (
        InsertOperation(7, 1, "x", (Tag("eder"), Tag("goal")), 3),
    )


def row(**words: str) -> str:
    return ",".join(words.get(name, "") for name in COLUMNS)


def an_insert(**words: str) -> str:
    good = {"at_us": "0", "user": "0", "op": "insert", "oid": "o", "tags": "goal", "size": "1"}
    return row(**(good | words))


def a_subscribe(**words: str) -> str:
    good = {"at_us": "0", "user": "0", "op": "subscribe", "sid": "s", "query": "goal"}
    return row(**(good | words))


BAD_ROWS = {
    "user: unknown: 2; users are numbered 0 to 1": [an_insert(user="2")],
    "user: must be 0 or more, not -1": [an_insert(user="-1")],
    "user: is a whole number, not 'bob'": [an_insert(user="bob")],
    "user: is empty, but every insert has one": [an_insert(user="")],
    "op: is one of insert, delete, subscribe, unsubscribe, not 'jump'": [an_insert(op="jump")],
    "at_us: must be 0 or more, not -1": [an_insert(at_us="-1")],
    "at_us: time goes back from 5 to 4 µs": [an_insert(at_us="5"), a_subscribe(at_us="4")],
    "oid: is empty, but every insert has one": [an_insert(oid="")],
    "oid: an object id is 1 to 64 bytes": [an_insert(oid="a b")],
    "oid: o was already inserted by user 0": [an_insert(), an_insert(user="1")],
    "tags: is empty, but every insert has one": [an_insert(tags="")],
    "tags: a tag holds no query operator": [an_insert(tags="a&b")],
    "size: must be 0 or more, not -3": [an_insert(size="-3")],
    "size: is a whole number, not '1.5'": [an_insert(size="1.5")],
    "summary_size: must be 0 or more, not -1": [an_insert(summary_size="-1")],
    "size: the text has 4 bytes, not 1": [an_insert(text="goal")],
    "life_us: must be 1 or more, not 0": [an_insert(life_us="0")],
    "sid: no insert has one, but this is 's'": [an_insert(sid="s")],
    "oid: o is deleted but was not inserted before": [
        row(at_us="0", user="0", op="delete", oid="o")
    ],
    "user: o belongs to user 0: 1 may not delete it": [
        an_insert(),
        row(at_us="1", user="1", op="delete", oid="o"),
    ],
    "oid: o is deleted twice": [an_insert(), *[row(at_us="1", user="0", op="delete", oid="o")] * 2],
    "oid: o is deleted after it expired": [
        an_insert(life_us="5"),
        row(at_us="5", user="0", op="delete", oid="o"),
    ],
    "query: at character 5: found the end, expected a tag": [a_subscribe(query="goal&")],
    "query: every conjunction needs a tag without '!'": [a_subscribe(query="!goal")],
    "start_us: frame starts (5 µs) after it ends (4 µs)": [a_subscribe(start_us="5", end_us="4")],
    "sid: s was already used by user 0": [a_subscribe(), a_subscribe(user="1")],
    "sid: s is revoked but there was no such subscription before": [
        row(at_us="0", user="0", op="unsubscribe", sid="s")
    ],
    "user: s belongs to user 0: 1 may not revoke it": [
        a_subscribe(),
        row(at_us="0", user="1", op="unsubscribe", sid="s"),
    ],
    "sid: s is revoked after its frame was over": [
        a_subscribe(end_us="3"),
        row(at_us="4", user="0", op="unsubscribe", sid="s"),
    ],
}


@pytest.mark.parametrize("problem", BAD_ROWS)
def test_a_bad_row_is_refused_with_file_row_and_field(tmp_path: Path, problem: str) -> None:
    path = tmp_path / "trace.csv"
    rows = BAD_ROWS[problem]
    path.write_text("\n".join([HEADER, *rows]))

    with pytest.raises(InputFileError) as refused:
        read_trace(path, users=2)

    assert refused.value.line == 1 + len(rows)
    assert str(refused.value).startswith(f"{path}:{1 + len(rows)}: {problem}")


def test_rows_are_counted_in_lines_also_below_a_text_of_several(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join([HEADER, an_insert(size="3", text='"a\nb"'), an_insert()]))

    with pytest.raises(InputFileError, match=r"trace\.csv:4: oid: o was already inserted"):
        read_trace(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ": the file is empty"),
        (" \n", ": the file is empty"),
        (HEADER + "\n", ": the table has no rows"),
        ("at_us,user\n1,2\n", ":1: the table lacks the columns op, oid, tags"),
        (HEADER + ",user\n", ":1: the header names user twice"),
        (HEADER + "\n1,2\n", ":2: the row has 2 fields, but the header has 13"),
        (HEADER + '\n"1"2,3\n', ":2: this is not CSV"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InputFileError) as refused:
        read_trace(path)
    assert str(refused.value).startswith(f"{path}{problem}")


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_not_there_or_not_what_its_name_says_is_refused(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(InputFileError, match="cannot be read"):
        read_trace(tmp_path / name)
    (tmp_path / name).write_bytes(b"\xff\xfe garbage" * 20)
    with pytest.raises(InputFileError, match=r"cannot be read|not UTF-8|not Parquet"):
        read_trace(tmp_path / name)


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"\.csv, \.csv\.gz or \.parquet"):
        write_trace(SMALL, tmp_path / "trace.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(InputFileError, match="cannot be written: No space left on device"):
        write_trace(SMALL, path)

    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"trace.csv": "old"}


def test_a_compressed_file_does_not_tell_when_it_was_written(tmp_path: Path) -> None:
    write_trace(SMALL, tmp_path / "trace.csv.gz")
    data = (tmp_path / "trace.csv.gz").read_bytes()
    assert data[4:8] == bytes(4)
    assert gzip.decompress(data).decode() == SMALL_CSV


def a_parquet(path: Path, change: Callable[..., object]) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    write_trace(SMALL, path)
    parquet.write_table(change(arrow, parquet.read_table(path)), path)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda pa, t: t.drop_columns(["sid", "query"]), "the table lacks the columns sid, query"),
        (lambda pa, t: t.slice(0, 0), "the table has no rows"),
        (
            lambda pa, t: t.set_column(1, "user", t.column("user").cast(pa.string())),
            "user: must be int64, not string",
        ),
        (lambda pa, t: t.take([0, 2, 3]), "row 3: sid: s1 is revoked but there was no such"),
    ],
    ids=["columns", "rows", "types", "sense"],
)
def test_bad_parquet_is_refused_with_the_row(
    tmp_path: Path, change: Callable[..., object], problem: str
) -> None:
    path = tmp_path / "trace.parquet"
    a_parquet(path, change)
    with pytest.raises(InputFileError) as refused:
        read_trace(path)
    assert str(refused.value).startswith(f"{path}: {problem}")


def test_narrower_whole_numbers_and_other_columns_are_fine(tmp_path: Path) -> None:
    def change(arrow: object, table: object) -> object:
        import pyarrow

        assert isinstance(table, pyarrow.Table)
        narrow = table.set_column(1, "user", table.column("user").cast(pyarrow.int32()))
        return narrow.append_column("mood", pyarrow.nulls(len(table)))

    path = tmp_path / "trace.parquet"
    a_parquet(path, change)
    assert read_trace(path) == SMALL


def test_without_pyarrow_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for attempt in (write_trace, lambda _, path: read_trace(path)):
        with pytest.raises(InputFileError, match=re.escape(install_hint("sim"))):
            attempt(SMALL, tmp_path / "trace.parquet")
