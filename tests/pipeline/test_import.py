"""P1, P2, P8, P10, P11: imports add new files, each exactly once, and count every row."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from tests.hashing import ROOT
from thyme.pipeline.jobs import compact_posts, import_posts
from thyme.pipeline.posts import csv_files, csv_splitting
from thyme.pipeline.posts.csv_files import read_header
from thyme.pipeline.posts.csv_splitting import is_record
from thyme.pipeline.posts.formats import PostReader
from thyme.pipeline.posts.importing import DAYS_MAX
from thyme.pipeline.posts.sources import load_raw_rows
from thyme.pipeline.schemas import POSTS
from thyme.pipeline.warehouse import Stage, Warehouse, WarehouseError
from thyme.traces.files import InputFileError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 86_400_000
AT_MS = 1_468_180_801_000  # 2016-07-10 20:00:01 UTC
JSONL = PostReader(form="jsonl")
PATIENCE_S = 600


def line(number: int, *, day: int = 0, text: str = "#goal") -> str:
    post = {"id": f"p{number}", "user": "ana", "time": AT_MS + day * DAY_MS, "text": text}
    return json.dumps(post)


def write_lines(path: Path, lines: Sequence[str]) -> str:
    data = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def rows_of(stage: Stage, table: str) -> list[dict[str, Any]]:
    """The rows of a table, read by its file list alone."""
    tables = (parquet.ParquetFile(file).read() for file in stage.table_files(table))
    return [row for each in tables for row in each.to_pylist()]


def texts(stage: Stage) -> dict[str, str]:
    rows = rows_of(stage, "posts")
    assert len({row["post_id"] for row in rows}) == len(rows), "a post is stored twice"
    return {row["post_id"]: row["text"] for row in rows}


def test_p11_a_later_import_adds_new_files_only_and_the_first_post_with_an_id_stays(
    spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = Warehouse(tmp_path / "w")
    one = write_lines(tmp_path / "1.jsonl", [line(1, day=5, text="first"), line(2), "broken"])
    first = import_posts(spark, warehouse, [one], JSONL)
    two = write_lines(tmp_path / "2.jsonl.gz", [line(1, text="later"), line(3, day=1), line(3)])
    both = import_posts(spark, warehouse, [one, two], JSONL)
    again = import_posts(spark, warehouse, [one, two], JSONL)

    assert (both.built_now, again.built_now) == (True, False)
    assert again.fingerprint == both.fingerprint != first.fingerprint
    # The post of the earlier import stays, although the other is earlier; among the new, the
    # earliest is kept.
    assert texts(both) == {"p1": "first", "p2": "#goal", "p3": "#goal"}
    assert {row["post_id"]: row["at_us"] for row in rows_of(both, "posts")}["p3"] == AT_MS * 1_000
    assert Counter(row["reason"] for row in rows_of(both, "quarantine")) == {
        "not JSON": 1,
        "duplicate id": 2,
    }
    notes = both.manifest.notes
    assert notes["rows_in"] == 6 == both.row_count("posts") + both.row_count("quarantine")
    assert notes["quarantined"] == {"duplicate id": 2, "not JSON": 1}
    assert (notes["files_added"], notes["rows_added"]) == (1, 3)
    files = {Path(row["file"]).name: row["rows"] for row in rows_of(both, "files")}
    assert files == {"1.jsonl": 3, "2.jsonl.gz": 3}
    # The files of the first import were kept as they are.
    assert set(first.table_files("posts")) < set(both.table_files("posts"))


def test_p11_changed_files_and_other_options_are_noticed_and_explained(
    spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = Warehouse(tmp_path / "w")
    file = write_lines(tmp_path / "a.jsonl", [line(1)])
    before = import_posts(spark, warehouse, [file], JSONL)

    with pytest.raises(InputFileError, match=r"a.jsonl: was imported with other options"):
        import_posts(spark, warehouse, [file], PostReader(form="jsonl", zone="+01:00"))
    write_lines(tmp_path / "a.jsonl", [line(1), line(2)])
    with pytest.raises(InputFileError, match=r"has changed since .*bytes then.*--replace"):
        import_posts(spark, warehouse, [file], JSONL)
    assert warehouse.open_stage("posts").manifest == before.manifest

    replaced = import_posts(spark, warehouse, [file], JSONL, replace=True)
    assert texts(replaced).keys() == {"p1", "p2"}
    assert not import_posts(spark, warehouse, [file], JSONL, replace=True).built_now


def test_p8_the_kept_duplicate_does_not_depend_on_partitions_or_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = [line(number % 7, text=f"#t{number}") for number in range(60)]
    file = tmp_path / "a.jsonl"
    found = []
    for number, order in enumerate((lines, lines[::-1])):
        write_lines(file, order)
        spark.conf.set("spark.sql.files.maxPartitionBytes", "1000" if number else "100000")
        try:
            stage = import_posts(spark, Warehouse(tmp_path / f"w{number}"), [str(file)], JSONL)
        finally:
            spark.conf.unset("spark.sql.files.maxPartitionBytes")
        found.append(texts(stage))
    assert found[0] == found[1]
    assert len(found[0]) == 7


def test_p10_posts_are_stored_by_day_and_read_by_others_and_by_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "a.jsonl", [line(day, day=day) for day in range(3)])
    stage = import_posts(spark, Warehouse(tmp_path / "w"), [file], JSONL)

    folders = [Path(path).parent.name for path in stage.table_files("posts")]
    assert folders == ["day=2016-07-10", "day=2016-07-11", "day=2016-07-12"]
    start_us = (AT_MS + DAY_MS) * 1_000
    day = stage.read(spark, "posts", POSTS, between_us=(start_us, start_us + 1))
    assert [row["post_id"] for row in day.collect()] == ["p1"]
    assert len(day.inputFiles()) == 1
    nothing = stage.read(spark, "posts", POSTS, between_us=(0, 1))
    assert (nothing.count(), nothing.schema) == (0, POSTS)


def test_p10_duckdb_pandas_and_polars_read_a_table_by_its_file_list(
    spark: SparkSession, tmp_path: Path
) -> None:
    import duckdb
    import pandas as pd
    import polars as pl

    warehouse = Warehouse(tmp_path / "w")
    for number in (1, 2):
        file = write_lines(tmp_path / f"{number}.jsonl", [line(number, day=number)])
        import_posts(spark, warehouse, [file], JSONL)
    # As docs/pipeline.md says: nothing but JSON and file names.
    folder = tmp_path / "w" / "posts"
    manifest = json.loads(max((folder / "manifests").glob("*.json")).read_bytes())
    files = [str(folder / file["path"]) for file in manifest["tables"]["posts"]["files"]]

    asked = "SELECT post_id, day::varchar FROM read_parquet(?, hive_partitioning=true) ORDER BY 1"
    found = duckdb.execute(asked, [files]).fetchall()
    assert found == [("p1", "2016-07-11"), ("p2", "2016-07-12")]
    frame = pd.concat(pd.read_parquet(file) for file in files)
    assert sorted(frame["post_id"]) == ["p1", "p2"]
    polars = pl.read_parquet(files, hive_partitioning=True)
    assert sorted(polars["post_id"]) == ["p1", "p2"]
    assert manifest["tables"]["posts"]["columns"]["user"] == "string not null"


def test_p10_posts_of_many_years_are_not_a_file_per_day(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = [line(day, day=-day) for day in range(0, DAYS_MAX + 60, 20)]
    file = write_lines(tmp_path / "a.jsonl", lines)
    stage = import_posts(spark, Warehouse(tmp_path / "w"), [file], JSONL)
    folders = {Path(path).parent.name for path in stage.table_files("posts")}
    assert "day=2016-07-01" in folders
    assert len(folders) < len(lines)


def test_p10_posts_of_many_days_in_every_task_are_moved_to_the_files_of_their_days(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A file in pieces, each with posts of all days, one of them twice."""
    lines = [line(number, day=number % 5) for number in range(200)] + [line(7, day=9, text="late")]
    file = write_lines(tmp_path / "a.jsonl", lines)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "400")
    spark.conf.set("spark.sql.files.openCostInBytes", "0")
    try:
        stage = import_posts(spark, Warehouse(tmp_path / "w"), [file], JSONL)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")
    folders = [Path(path).parent.name for path in stage.table_files("posts")]
    assert folders == [f"day=2016-07-1{day}" for day in range(5)], "one file a day"
    assert len(texts(stage)) == 200
    [row] = rows_of(stage, "quarantine")
    assert (row["reason"], row["raw"]) == ("duplicate id", lines[-1])
    left = [path for path in (tmp_path / "w" / "posts").rglob("*.parquet") if "day=" in str(path)]
    assert len(left) == 5, "files that were written again are removed"


def test_p10_small_files_of_many_imports_are_merged_and_the_rows_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = Warehouse(tmp_path / "w")
    for number in range(3):
        lines = [line(number, day=number % 2), "broken"]
        import_posts(spark, warehouse, [write_lines(tmp_path / f"{number}.jsonl", lines)], JSONL)
    before = warehouse.open_stage("posts")
    after = compact_posts(spark, warehouse)

    for table in ("posts", "quarantine", "files"):
        key = repr
        assert sorted(rows_of(after, table), key=key) == sorted(rows_of(before, table), key=key)
    assert {name: len(facts.files) for name, facts in before.manifest.tables.items()} == {
        "posts": 3, "quarantine": 3, "files": 3,
    }  # fmt: skip
    assert {name: len(facts.files) for name, facts in after.manifest.tables.items()} == {
        "posts": 2, "quarantine": 1, "files": 1,
    }  # fmt: skip
    assert after.fingerprint == before.fingerprint, "a trace of these posts is still theirs"
    assert not compact_posts(spark, warehouse).built_now
    more = write_lines(tmp_path / "9.jsonl", [line(9), line(0)])
    assert texts(import_posts(spark, warehouse, [more], JSONL)).keys() == {"p0", "p1", "p2", "p9"}


def test_p10_a_null_where_there_must_be_none_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.createDataFrame(
        [("1", None, 1, "", [])],
        "post_id string, user string, at_us long, text string, tags array<string>",
    )
    with pytest.raises(WarehouseError, match=r"the table posts has nulls in user"):
        Warehouse(tmp_path).get_or_build(
            "posts", {}, {}, lambda draft: draft.write("posts", frame, schema=POSTS)
        )
    other = Warehouse(tmp_path).get_or_build(
        "posts", {}, {}, lambda draft: draft.write("posts", frame.drop("user"))
    )
    with pytest.raises(WarehouseError, match=r"other columns .*\(.*user\): build it again"):
        other.read(spark, "posts", POSTS)


# Exactly once, also after a kill


def test_p11_an_import_that_is_killed_is_repeated_as_a_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    w = tmp_path / "w"
    warehouse = Warehouse(w)
    one = write_lines(tmp_path / "1.jsonl", [line(1)])
    import_posts(spark, warehouse, [one], JSONL)
    two = write_lines(tmp_path / "2.jsonl", [line(number % 400) for number in range(2_000)])
    program = "import sys; from thyme.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "posts", "import", two, "--format", "jsonl"]
    process = subprocess.Popen(
        [*command, "--out", str(w), "--master", "local[1]", "--conf", "spark.ui.enabled=false"],
        cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not list((w / "posts" / "builds").glob("000002-*/posts/*/*.parquet")):
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < until_s
            time.sleep(0.005)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the driver and its Java
        process.wait()
    assert texts(warehouse.open_stage("posts")).keys() == {"p1"}

    stage = import_posts(spark, warehouse, [one, two], JSONL)

    assert (stage.row_count("posts"), stage.row_count("quarantine")) == (400, 1_601)
    assert len(texts(stage)) == 400
    used = {Path(file).relative_to(w / "posts").parts[1] for file in stage.table_files("files")}
    assert {path.name for path in (w / "posts" / "builds").iterdir()} == used


# CSV files in pieces

RECORD = st.lists(st.text(alphabet='a",\n\r x', max_size=5), min_size=1, max_size=4)


@given(st.lists(RECORD, min_size=1, max_size=4), st.booleans())
def test_lines_that_are_records_mean_the_same_alone_and_in_their_file(
    records: list[list[str]], quoted: bool
) -> None:
    """Property: if every line passes, reading line by line gives what reading the file gives."""
    text = "\n".join(",".join(map(_as_field if quoted else str, each)) for each in records)
    lines = text.split("\n")
    if all(map(is_record, lines)):
        assert list(csv.reader(lines)) == [next(csv.reader([each]), []) for each in lines]


def _as_field(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ('a,"b ""c""",d', True),
        ("a,,", True),
        ('a,"b', False),
        ('x"y,"abc', False),
        ("a\rb", False),
        ('"a" b', False),
    ],
)
def test_a_line_in_doubt_is_not_a_record(text: str, whole: bool) -> None:
    assert is_record(text) is whole


@pytest.fixture
def small_splits(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files above 2,000 bytes are large."""
    monkeypatch.setattr(csv_splitting, "SPLIT_BYTES", 2_000)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "2000")
    spark.conf.set("spark.sql.files.openCostInBytes", "0")
    yield
    spark.conf.unset("spark.sql.files.maxPartitionBytes")
    spark.conf.unset("spark.sql.files.openCostInBytes")


def test_p8_large_csv_files_are_read_in_pieces_unless_texts_have_line_breaks(
    spark: SparkSession, tmp_path: Path, small_splits: None
) -> None:
    header, post = "user,time,text", 'ana,2016-07-10T20:00:01Z,"a, ""b"" {}"'
    lines = [header, *(post.format(number) for number in range(100))]
    plain = tmp_path / "plain é.csv"
    plain.write_text("\r\n".join(lines))
    broken = tmp_path / "broken.csv"
    broken.write_text("\n".join([*lines[:100], 'ana,2016-07-10T20:00:01Z,"two\nlines"']))
    reader = PostReader(form="csv")
    for file, pieces, rows in ((plain, 3, 100), (broken, 1, 100)):
        raw = load_raw_rows(spark, [str(file)], reader)
        found = [json.loads(row["fields"]) for row in raw.collect()]
        assert raw.rdd.getNumPartitions() >= pieces
        assert (raw.rdd.getNumPartitions() > 1) is (pieces > 1)
        assert len(found) == rows
        assert {"user": "ana", "time": "2016-07-10T20:00:01Z", "text": 'a, "b" 7'} in found
    assert [each["text"] for each in found][-1] == "two\nlines"
    both = load_raw_rows(spark, [str(plain), str(broken)], reader)
    assert both.count() == 200


@pytest.mark.parametrize(
    "header",
    [
        b"user,time,text\n",
        b"\xef\xbb\xbfuser, time,text\r\n",
        b"user;time;text\n",
        b"text\tuser\ttime\n",
    ],
)
def test_a_header_is_the_same_whether_python_or_spark_reads_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bytes
) -> None:
    (tmp_path / "a.csv").write_bytes(header + b"x")
    found = read_header(spark, str(tmp_path / "a.csv"), PostReader(form="csv"))
    monkeypatch.setattr(csv_files, "_first_values", lambda path, separator: None)
    assert read_header(spark, str(tmp_path / "a.csv"), PostReader(form="csv")) == found
    assert sorted(found.names) == ["text", "time", "user"]
