"""P1–P4, P10: from posts to the oracle by commands, from one warehouse to the next."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.golden.frozen import Frozen
from tests.golden.tables import digests_of_tables
from thyme.cli import main
from thyme.pipeline.schemas import OPERATIONS
from thyme.pipeline.traces import table_to_trace
from thyme.pipeline.warehouse import Warehouse
from thyme.traces.oracle import expected_notifications
from thyme.traces.posts_to_trace import trace_from_posts
from thyme.traces.synthetic.football_match import FootballMatch, FootballMatchConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def told(capsys: pytest.CaptureFixture[str], argv: Sequence[object]) -> dict[str, Any]:
    assert main([*map(str, argv), "--json"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


def test_posts_become_a_trace_and_the_trace_its_notifications(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], frozen: Frozen
) -> None:
    w = tmp_path / "w"
    synth = ["posts", "synth", "--users", 50, "--posts", 800, "--tags", 90, "--seed", 3, "--out", w]
    trace = ["trace", "build", "--posts", w, "--users", 10, "--seed", 4, "--out", w]
    oracle = ["oracle", "--trace", w, "--out", w]

    assert told(capsys, synth)["rows"] == {"posts": 800}
    operations = told(capsys, trace)["operations"]
    due = told(capsys, oracle)["rows"]["notifications"]

    pure = trace_from_posts(
        4, FootballMatch(3, FootballMatchConfig(posts=800, users=50, tags=90)), 10
    )
    table = Warehouse(w).open_stage("trace").read(spark, "operations", OPERATIONS)
    assert table_to_trace(table, 10) == pure
    assert operations == pure.counts()
    assert due == len(expected_notifications(pure))
    assert not any(told(capsys, argv)["made_now"] for argv in (synth, trace, oracle))
    main(list(map(str, oracle)))
    assert f"notifications: {due:,} rows in 1 file" in capsys.readouterr().out
    frozen.check("pipeline.json", "commands", digests_of_tables(w))


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["trace", "build", "--posts", "none", "--out", "w"], "none has no finished stage posts"),
        (["oracle", "--trace", "none", "--out", "w"], "none has no finished stage trace"),
        (["posts", "import", "none.csv", "--format", "csv", "--out", "w"], "none.csv: cannot be"),
        (["posts", "import", "x", "--format", "xml", "--out", "w"], "there is no format 'xml'"),
        (["posts", "import", "x", "--format", "csv", "--columns", "a", "--out", "w"], "--columns"),
        (["posts", "synth", "--posts", "0", "--out", "w"], "at least one of posts, not 0"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line_before_spark_starts(
    argv: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("thyme: ")
    assert problem in err


def test_a_csv_file_without_a_column_is_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thyme.cli.pipeline.posts.open_session", lambda args: pytest.fail("Spark"))
    file = tmp_path / "a b.csv"
    file.write_text("when;who;body\n")
    assert main(["posts", "import", str(file), "--columns", "user=who", "--out", "w"]) == 2
    problem = "lacks the columns text, time; it has when, who, body (separated by a semicolon)"
    assert problem in capsys.readouterr().err


def test_p2_rows_of_another_encoding_are_counted_with_what_to_do(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder has a space, and so has what to type next."""
    file, out = tmp_path / "a.csv", str(tmp_path / "a w")
    rows = "user,time,text\nana,2016-07-10T20:00:01Z,olá #eder\nana,2016-07-10T20:00:02Z,#golo\n"
    file.write_bytes(rows.encode("latin-1"))
    assert main(["posts", "import", str(file), "--out", out]) == 0
    told = capsys.readouterr().out
    assert "quarantined: 1 (not UTF-8: convert the file, e.g. iconv -f WINDOWS-1252" in told
    assert f"next: thyme trace build --posts '{out}' --out '{out}'" in told


def test_a_file_that_breaks_off_is_named_and_nothing_is_kept(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = gzip.compress(b'{"user": "ana"}\n' * 1000)
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[:-20])

    argv = ["posts", "import", tmp_path / "cut.jsonl.gz", "--format", "jsonl", "--out", tmp_path]
    assert main(list(map(str, argv))) == 2

    assert "cut.jsonl.gz" in capsys.readouterr().err
    assert Warehouse(tmp_path).stage_names() == []
