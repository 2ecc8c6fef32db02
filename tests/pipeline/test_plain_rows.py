"""P1, P2, P8: rows that Spark parses alone give the posts that the rules in Python give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from thyme.pipeline.jobs import import_posts
from thyme.pipeline.posts import importing
from thyme.pipeline.posts.formats import PostReader
from thyme.pipeline.posts.plain_rows import PLAIN, can_be_plain, with_plain_posts
from thyme.pipeline.posts.rows import ParsedRows, with_original_bytes
from thyme.pipeline.posts.sources import load_raw_rows
from thyme.pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_MS = 1_468_180_801_000  # 2016-07-10 20:00:01 UTC
NOW_US = 1_500_000_000_000_000
JSONL = PostReader(form="jsonl", now_us=NOW_US)
POST = ("zone_assumed", "post_id", "user", "at_us", "text", "tags")

IDS = ["7", 7, 0, "a-b/c", "x" * 64, "x" * 65, "a b", "a@b", "é", "", None, True, 1.5, 10**18, -1,
       "\u200b", " 7", "7 ", "7\n", '"', "\\", "\x7f", {"a": 1}, [1]]  # fmt: skip
USERS = ["ana", "Ana Maria", " ana", "ana ", "é", "", 5, None, False, "a\tb", "\u00a0", "\x00ana",
         "@ana", "a" * 300, "ana\x1fb"]  # fmt: skip
TIMES = [AT_MS, AT_MS // 1_000, AT_MS * 1_000, str(AT_MS), "007", 0, "0", 10**11, 10**11 - 1,
         10**14, 10**14 - 1, 10**17, 10**18 - 1, "1e9", 1.5, True, None, "", "yesterday",
         "2016-07-10T20:00:01Z", "2016-07-10 20:00:01", "2016-07-10T20:00:01.250Z",
         "2016-07-10T20:00:01.123456+01:30", "2016-07-10T20:00:01-00:00", "2016-07-10T20:00:01.5Z",
         "2016-02-30T20:00:01Z", "2016-07-10T24:00:00Z", "2016-07-10T20:00:60Z", "2016-07-10",
         "2016-07-10T20:00:01+14:59", "0000-01-01T00:00:00Z", "1969-12-31T23:59:59Z",
         "2016-07-10T20:00:01Z\n", " 2016-07-10T20:00:01Z", "2016-07-10T20:00Z", "20160710T200001Z",
         "2030-01-01T00:00:00Z", "Sun Jul 10 20:00:01 +0000 2016", "２０１６"]  # fmt: skip
TEXTS = ["", "goal", "Goal! #Eder", "#a #B #a b#c &#d #1 #1a #_ #_x", "#and #AND #Or #not #nota",
         "#a#b #c://d #e: //f", "http://x.pt/#no #yes", "see WWW.x.pt/#no", "x.pt/a#no #ok",
         "#" + "x" * 128, "#" + "x" * 129, " ".join(f"#t{n}" for n in range(64)),
         " ".join(f"#t{n}" for n in range(65)), "é", "é #golo", "#golé", "＃golo", "a＃b",
         "#\u200d", 'say "#hi"', "a\\b #c", "two\nlines #x", "tab\t#y", "\x1f#z", "\x00#w", "😀",
         "😀 #x", "\ud800", "a.b.c.d.e/#f", "a..b/#c", "#x/#y", "-a.b/#c d", "https://",
         "#Kelvin K ſ #ſ", 5, None, True, ["#a"], "#a," * 3, "_#a", "(#a)", "#a\u00b7b", "#é&#b",
         "x" * 5_000 + " #end", "a." * 3_000 + "/#b"]  # fmt: skip
TAGS = [None, [], ["a"], "a b", "", 5, {"a": 1}]
OTHERS = [1, -1, 1.5, -0.0, 1e300, True, None, "x", "é\n", [], {"id": "no"}, 10**30, "\x1f"]


ANY_TEXT = st.text(alphabet='#＃ab é1_&/.:w\\"\n', max_size=12)
FRAMES = st.sampled_from(["{}", "{{{}}}", "[{{{}}}]", " {{{}}}", "{{{}}} ", "{{{},}}"])


def a_line(draw: Any) -> str:
    """A line of JSON: mostly plain, with strange values, names, blanks, escapes and repetitions."""
    pairs = [
        ("id", draw(st.sampled_from(IDS))),
        ("user", draw(st.sampled_from(USERS))),
        ("time", draw(st.sampled_from(TIMES))),
        ("text", draw(st.sampled_from(TEXTS) | ANY_TEXT)),
    ]  # fmt: skip
    usual: dict[str, Any] = {"id": "p1", "user": "ana", "time": AT_MS, "text": "Goal! #Eder"}
    strange = draw(st.sets(st.sampled_from(list(usual)), max_size=2))
    made = [(name, value if name in strange else usual[name]) for name, value in pairs]
    if draw(st.booleans()):
        names = st.sampled_from(["lang", "ID", "tags", "", "a b", "id", "time", "text"])
        value = draw(st.sampled_from([*OTHERS, *TAGS, "again"]))
        made.insert(draw(st.integers(0, 4)), (draw(names), value))
    if draw(st.integers(0, 9)) == 0:
        made.pop(draw(st.integers(0, len(made) - 1)))
    ascii_only = draw(st.booleans())
    comma, colon = draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", "\t:"), (",,", ":")]))
    parts = (
        f"{json.dumps(name)}{colon}{json.dumps(value, ensure_ascii=ascii_only)}"
        for name, value in made
    )
    frame = draw(FRAMES) if draw(st.integers(0, 9)) == 0 else "{{{}}}"
    return str(frame.format(comma.join(parts)))


LINES = st.composite(a_line)()
SOME = st.lists(LINES, min_size=150, max_size=250)


def python_rows(lines: list[str], reader: PostReader) -> list[list[dict[str, Any]]]:
    """The rows of each line by the rules in Python."""
    found = []
    for line in lines:
        rows = ParsedRows(reader)
        rows.add("file", line, None, None)
        found.append(_as_rows(rows))
    return found


def _as_rows(rows: ParsedRows) -> list[dict[str, Any]]:
    columns = rows._columns
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def spark_rows(spark: SparkSession, lines: list[str], reader: PostReader) -> list[dict[str, Any]]:
    table = [(number, "file", line) for number, line in enumerate(lines)]
    frame = spark.createDataFrame(table, "number long, source string, raw string")
    raw = with_original_bytes(frame.select("source", "raw"))
    rows = with_plain_posts(raw, reader).collect()
    return [row.asDict() for row in rows]


def assert_same(lines: list[str], found: list[dict[str, Any]], reader: PostReader) -> int:
    """Plain rows are equal; returns how many there are."""
    plain = 0
    for line, row, wanted in zip(lines, found, python_rows(lines, reader), strict=True):
        assert row["raw"] == line
        if row[PLAIN]:
            plain += 1
            [one] = wanted
            assert one["reason"] is None, line
            got = {**row, "tags": tuple(row["tags"])}
            assert {name: got[name] for name in POST} == {name: one[name] for name in POST}, line
        else:
            assert all(row[name] is None for name in POST), line
    return plain


@settings(max_examples=4, suppress_health_check=[*HealthCheck], deadline=None)
@given(SOME, st.sampled_from([None, "UTC", "+01:00"]))
def test_p1_a_plain_row_is_the_same_post_for_spark_and_for_python(
    spark: SparkSession, lines: list[str], zone: str | None
) -> None:
    """Property: whatever Spark takes for plain, Python reads as the same post."""
    lines = [line.encode(errors="replace").decode() for line in lines]
    reader = PostReader(form="jsonl", now_us=NOW_US, zone=zone)
    assert_same(lines, spark_rows(spark, lines, reader), reader)


def test_p1_every_strange_value_alone_is_parsed_the_same(spark: SparkSession) -> None:
    usual = {"id": "p1", "user": "ana", "time": AT_MS, "text": "Goal! #Eder"}
    values = {"id": IDS, "user": USERS, "time": TIMES, "text": TEXTS, "tags": TAGS, "x": OTHERS}
    lines = [
        json.dumps({**usual, name: value}, ensure_ascii=ascii_only)
        for name, some in values.items()
        for value in some
        for ascii_only in (True, False)
    ]
    lines += [
        '{"id":"a","id":"b","user":"u","user":"v","time":1,"time":"2","text":"#a","text":"#b"}',
        '{"id":"a","user":"u","time":1,"text":"#a","id":null}',
        '{"id":"a","user":"u","time":1,"text":"#a","\\u0069d":"b"}',
        '{"id":"a","user":"u","time":01,"text":"#a"}',
        '{"id":"a","user":"u","time":1,"text":"#a"}}',
        "{'id':'a','user':'u','time':1,'text':'#a'}",
        "\x1fa\x1fb\x1f5\x1f#d",
        '"\x1f"a"\x1f"b"\x1f5\x1f"#d"',
        "{}",
    ]
    lines = [line.encode(errors="replace").decode() for line in lines]
    plain = assert_same(lines, spark_rows(spark, lines, JSONL), JSONL)
    assert plain > len(lines) // 4


@pytest.mark.parametrize(
    "row",
    [
        {"id": "1-0", "user": "fan14", "time": AT_MS, "text": "people open #midfield #topic4"},
        {"id": 12, "user": 34, "time": str(AT_MS // 1_000), "text": "no tag"},
        {"id": "a", "user": "Ana M", "time": "2016-07-10T20:00:01.000Z", "text": "ação 😀"},
        {"id": "a", "user": "u", "time": "2016-07-10 20:00:01", "text": "http://a.b/#x #y", "n": 1},
    ],
)
def test_p8_ordinary_rows_are_plain(spark: SparkSession, row: dict[str, Any]) -> None:
    lines = [json.dumps(row, ensure_ascii=False)]
    assert assert_same(lines, spark_rows(spark, lines, JSONL), JSONL) == 1


def test_p1_other_names_of_columns_are_plain_too_unless_they_are_in_doubt(
    spark: SparkSession,
) -> None:
    reader = PostReader(form="jsonl", columns={"user": "a.b|c", "time": "when"}, now_us=NOW_US)
    lines = ['{"id":"1","a.b|c":"ana","when":5,"text":"#x","user":"bob","time":"never"}']
    assert assert_same(lines, spark_rows(spark, lines, reader), reader) == 1
    assert not can_be_plain(PostReader(form="jsonl", columns={"user": "id"}))
    assert not can_be_plain(PostReader(form="jsonl", columns={"user": 'a"b'}))
    assert not can_be_plain(PostReader(form="twitter-v2"))


def test_p2_an_import_is_the_same_with_and_without_plain_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same posts, quarantine and notes, with duplicates and broken lines too."""
    usual = {"user": "ana", "time": AT_MS, "text": "Goal! #Eder"}
    lines = [json.dumps({**usual, "id": f"p{number % 50}", "n": number}) for number in range(60)]
    lines += [json.dumps({**usual, "id": f"q{n}", "text": text}) for n, text in enumerate(TEXTS)]
    lines += ["broken", json.dumps([{**usual, "id": "p1"}, {**usual, "id": "r"}]), "  "]
    (tmp_path / "a.jsonl").write_bytes(
        b"\n".join([*(each.encode() for each in lines), b'{"id":"\xff"}'])
    )
    (tmp_path / "b.csv").write_text(
        'id,user,time,text\n1,ana,2016-07-10T20:00:01Z,#a\n2,ana,never,#b\n3,ana,5,"say ""x"""\n'
    )
    found: list[list[Any]] = []
    for plain in (True, False):
        if not plain:
            monkeypatch.setattr(importing, "can_be_plain", lambda reader: False)
        for name, form in (("a.jsonl", "jsonl"), ("b.csv", "csv")):
            warehouse = Warehouse(tmp_path / f"{plain}-{form}")
            reader = PostReader(form=form, now_us=NOW_US)
            stage = import_posts(spark, warehouse, [str(tmp_path / name)], reader)
            tables = {
                table: sorted(
                    repr(row)
                    for file in stage.table_files(table)
                    for row in parquet.ParquetFile(file).read().to_pylist()
                )
                for table in ("posts", "quarantine", "files")
            }
            found.append([tables, stage.manifest.notes])
    assert found[:2] == found[2:]
    assert found[0][1]["quarantined"]["duplicate id"] >= 11


def test_p1_csv_rows_are_plain(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,user,time,text\n1,ana,2016-07-10T20:00:01Z,Goal #Eder\n")
    reader = PostReader(form="csv", now_us=NOW_US)
    raw = load_raw_rows(spark, [str(tmp_path / "a.csv")], reader)
    [row] = with_plain_posts(raw, reader).collect()
    assert (row[PLAIN], row["post_id"], row["tags"]) == (True, "1", ["eder"])
