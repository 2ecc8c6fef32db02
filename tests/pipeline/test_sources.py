"""P1, P2: posts of every source are converted to one form; invalid ones are kept with the
reason."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from thyme.model.errors import InputError, OptionError
from thyme.pipeline.jobs import build_trace, import_posts
from thyme.pipeline.posts import csv_files
from thyme.pipeline.posts.formats import (
    InvalidPost,
    PostReader,
    parse_instant_us,
    parse_tags,
    read_post,
    split_page,
)
from thyme.pipeline.posts.hashtags import find_hashtags
from thyme.pipeline.posts.sources import expand_files
from thyme.pipeline.warehouse import Stage, Warehouse
from thyme.traces.files import InputFileError
from thyme.traces.posts import Post

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_US = 1_468_180_801_000_000  # 2016-07-10 20:00:01 UTC
NOW_US = AT_US + 1
JSONL = PostReader(form="jsonl", now_us=NOW_US)
ROW = {"id": "7", "user": "ana", "time": "2016-07-10T20:00:01Z", "text": "Goal! #Eder"}
POST = Post("7", "ana", AT_US, "Goal! #Eder", ("eder",))  # type: ignore[arg-type]


def read(fields: dict[str, Any], reader: PostReader = JSONL) -> Post:
    return read_post(json.dumps(fields), reader)


SOURCES: dict[str, dict[str, Any]] = {
    "twitter-v2": {
        "data": {
            "id": "7",
            "author_id": "ana",
            "created_at": "2016-07-10T20:00:01.000Z",
            "text": "Goal! #Eder",
            "entities": {"hashtags": [{"start": 6, "end": 11, "tag": "Eder"}]},
        },
        "includes": {"users": []},
    },
    "twitter-v1": {
        "id": 7,
        "id_str": "7",
        "user": {"id_str": "ana", "screen_name": "ana_p"},
        "created_at": "Sun Jul 10 20:00:01 +0000 2016",
        "text": "Goal…",
        "extended_tweet": {
            "full_text": "Goal! #Eder",
            "entities": {"hashtags": [{"text": "Eder"}]},
        },
    },
    "mastodon": {
        "id": "7",
        "account": {"id": "1", "acct": "ana"},
        "created_at": "2016-07-10T20:00:01.000Z",
        "content": '<p>Goal! <a href="x">#<span>Eder</span></a></p>',
        "tags": [{"name": "eder", "url": "x"}],
    },
    "bluesky": {
        "uri": "at://ana/app.bsky.feed.post/7",
        "author": {"did": "ana", "handle": "ana.example"},
        "record": {
            "text": "Goal! #Eder",
            "createdAt": "2016-07-10T20:00:01.000Z",
            "facets": [{"features": [{"$type": "app.bsky.richtext.facet#tag", "tag": "Eder"}]}],
        },
    },
    "jsonl": ROW,
}


@pytest.mark.parametrize("form", SOURCES)
def test_every_source_gives_the_same_post(form: str) -> None:
    post = read(SOURCES[form], PostReader(form=form, now_us=NOW_US))
    wanted = "ana/7" if form == "bluesky" else "7"
    assert post == Post(wanted, "ana", AT_US, "Goal! #Eder", POST.tags)


def test_a_bluesky_commit_and_a_bare_tweet_are_posts_too() -> None:
    commit = {"did": "ana", "commit": {"rkey": "7", "record": SOURCES["bluesky"]["record"]}}
    assert read(commit, PostReader(form="bluesky")).post_id == "ana/7"
    assert read(SOURCES["twitter-v2"]["data"], PostReader(form="twitter-v2")) == POST


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"user": None}, "no user"),
        ({"user": ""}, "no user"),
        ({"time": None}, "no time"),
        ({"time": "yesterday"}, "bad time"),
        ({"time": "-5"}, "bad time"),
        ({"time": True}, "bad time"),
        ({"time": "2016-07-10T20:00:02Z"}, "time in the future"),
        ({"id": "a b"}, "bad id"),
        ({"tags": [f"t{n}" for n in range(65)]}, "more than 64 tags"),
    ],
)
def test_a_row_that_is_no_post_has_a_reason(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidPost, match=f"^{reason}$"):
        read({**ROW, **change})


@pytest.mark.parametrize(
    ("line", "reason"),
    [('{"id": "7", "us', "not JSON"), ("[" * 100_000, "not JSON"), ("42", "not a post")],
)
def test_a_line_that_is_no_object_has_a_reason(line: str, reason: str) -> None:
    with pytest.raises(InvalidPost, match=f"^{reason}$"):
        read_post(line, JSONL)


def test_what_a_source_must_have_and_lacks_is_named() -> None:
    with pytest.raises(InvalidPost, match=r"^no id$"):
        read({**SOURCES["mastodon"], "id": None}, PostReader(form="mastodon"))


@pytest.mark.parametrize(
    "time",
    [
        "2016-07-10T21:00:01+01:00",
        "2016-07-10 13:00:01-07:00",
        "Sun Jul 10 20:00:01 +0000 2016",
        AT_US // 1_000_000,
        AT_US // 1_000,
        AT_US,
        str(AT_US // 1_000),
        "1468180801.0",
        "1.468180801E9",
        "2016-07-10 20:00:01 UTC",
        "2016-07-10 20:00:01",
        "Sun, 10 Jul 2016 21:00:01 +0100",
    ],
)
def test_times_and_numbers_are_instants_in_utc_unless_they_say_otherwise(time: object) -> None:
    assert read({**ROW, "time": time}) == POST


@pytest.mark.parametrize("zone", ["+01:00", "Europe/Lisbon"])
def test_a_time_without_a_zone_is_of_the_zone_that_was_given(zone: str) -> None:
    reader = PostReader(form="jsonl", zone=zone, now_us=NOW_US)
    assert read({**ROW, "time": "2016-07-10 21:00:01"}, reader) == POST


def test_a_post_without_tags_is_a_post_and_one_without_an_id_gets_one() -> None:
    bare = {key: value for key, value in ROW.items() if key != "id"} | {"text": "hello"}
    post = read(bare)
    assert post.tags == ()
    assert post.post_id == read(bare).post_id != read({**bare, "user": "bea"}).post_id


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("Come on! #COYG #AFC, #afc", ["COYG", "AFC", "afc"]),
        ("#تشيك ، بيلرين #سانشيز", ["تشيك", "سانشيز"]),
        ("#हिन्दी #日本語。 #caf\u0065\u0301", ["हिन्दी", "日本語", "cafe\u0301"]),
        ("＃full #snake_case #l33t", ["full", "snake_case", "l33t"]),
        ("#1 #2016 #_ #1_ #", []),
        ("#4goals #1a", ["4goals", "1a"]),
        ("winger#AFC #CFCvs#AFC &#39;s #a#b", []),
        ("http://example.org/#top https://x.org/a#b www.x.org/#c x.org/p#d #real", ["real"]),
        ("see example.org #yes (#also) /#slash", ["yes", "also", "slash"]),
        ("#\ufe0f\u20e3 #http://x.org", []),
        ("#AFC-CFC #goal's", ["AFC", "goal"]),
        ("https://t.co/x日本 #tag", ["tag"]),
    ],
)
def test_p1_hashtags_follow_the_published_rules(text: str, tags: list[str]) -> None:
    assert find_hashtags(text) == tags


@given(st.text(alphabet="#＃a1_ é\u0301&/.:日\ufe0f"))
def test_p1_every_hashtag_is_a_word_after_a_hash_sign(text: str) -> None:
    for tag in find_hashtags(text):
        assert f"#{tag}" in text or f"＃{tag}" in text
        assert any(char.isalpha() or char == "\u0301" for char in tag)


@given(st.text(alphabet="#aZ9_& /.:w-"))
def test_p1_hashtags_of_an_ascii_text_do_not_depend_on_other_scripts(text: str) -> None:
    """A letter of another script at the end makes the search go character by character."""
    assert find_hashtags(text) == find_hashtags(f"{text} é")


def test_p1_paragraphs_of_markup_stay_apart() -> None:
    status = SOURCES["mastodon"] | {
        "content": "<p>First &amp; last<br>goal</p><p>#Eder</p><ul><li>a</li></ul>",
        "tags": None,
    }
    post = read(status, PostReader(form="mastodon", now_us=NOW_US))
    assert post.text.split() == ["First", "&", "last", "goal", "#Eder", "a"]
    assert post.tags == ("eder",)


def test_p1_pages_and_lists_are_split_into_posts_with_their_original_text() -> None:
    posts = ['{"id": "7",  "author_id":"ana"}', '{"id":"8"}']
    inner = ",".join(posts)
    assert split_page(f'{{"meta":{{}},"data": [{inner}]}}', "twitter-v2") == posts
    assert split_page(f'{{"statuses":[{inner}]}}', "twitter-v1") == posts
    assert split_page(f"[{inner}]", "jsonl") == posts
    row = '{"user": "ana", "data": [1, 2]}'
    assert split_page(row, "jsonl") == [row]
    for whole in ('{"data": []}', '{"data": [', "[", "[]", '{"data": {"id": "7"}}'):
        assert split_page(whole, "twitter-v2") == [whole]


def test_words_that_cannot_be_tags_are_left_out() -> None:
    assert parse_tags(["#Goal", "and", "", None, "GOAL", "éder"], "") == ("goal", "éder")
    for column in ("goal, #eder", "goal;eder", "['goal', 'eder']", '["goal","eder"]', "goal|eder"):
        assert parse_tags(column, "") == ("eder", "goal")
    assert parse_tags(None, "#goal and #eder!") == ("eder", "goal")


def test_columns_may_have_other_names() -> None:
    reader = PostReader(form="jsonl", columns={"user": "who", "time": "when"})
    assert read({"who": "ana", "when": ROW["time"], "text": ROW["text"], "id": 7}, reader) == POST
    with pytest.raises(OptionError, match="a post has no 'color'"):
        PostReader(form="csv", columns={"color": "x"})
    with pytest.raises(OptionError, match="columns are for csv"):
        PostReader(form="mastodon", columns={"user": "x"})
    with pytest.raises(OptionError, match="there is no format 'xml'; use twitter-v2"):
        PostReader(form="xml")
    with pytest.raises(OptionError, match="there is no time zone 'Moon/Base'"):
        PostReader(form="csv", zone="Moon/Base")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "user", "time", "data", "record", "tags", "entities", "commit"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from(sorted(SOURCES)), JSON | st.text())
def test_whatever_a_line_holds_it_is_a_post_or_has_a_reason(form: str, value: object) -> None:
    line = value if isinstance(value, str) else json.dumps(value)
    try:
        post = read_post(line, PostReader(form=form))
    except InvalidPost:
        return
    assert post.user
    assert post.post_id


def test_files_that_are_not_what_they_say_are_named(tmp_path: Path) -> None:
    (tmp_path / "packed.jsonl").write_bytes(gzip.compress(b"{}"))
    (tmp_path / "plain.gz").write_bytes(b"{}")
    for name, problem in {
        "packed.jsonl": "is compressed: name it .gz",
        "plain.gz": "is not compressed",
        "none": "cannot be read: No such file",
    }.items():
        with pytest.raises(InputFileError, match=problem):
            expand_files([str(tmp_path / name)])
    with pytest.raises(InputError, match="there is no file"):
        expand_files([str(tmp_path / "*.csv")])


# Whole files, by Spark


def imported(spark: SparkSession, folder: Path, reader: PostReader, *names: str) -> Stage:
    files = expand_files([str(folder / name) for name in names])
    return import_posts(spark, Warehouse(folder / "w"), files, reader)


def rows_of(stage: Stage, table: str) -> list[dict[str, Any]]:
    files = stage.table_files(table)
    return [row for file in files for row in parquet.ParquetFile(file).read().to_pylist()]


def test_every_row_of_bad_files_is_kept_or_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    """P2: truncated JSON, wrong encoding, gzip, empty files, no user, the future, duplicates."""
    good = [json.dumps({**ROW, "id": str(number)}) for number in range(5)]
    (tmp_path / "a.jsonl").write_text("\n".join([*good[:2], good[2][:-9], "", "  ", good[0]]))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress("\n".join(good[3:]).encode() + b"\n"))
    (tmp_path / "empty.jsonl").write_bytes(b"")
    latin = json.dumps({**ROW, "id": "9", "text": "é"}, ensure_ascii=False).encode("latin-1")
    more = [{**ROW, "id": "10", "user": ""}, {**ROW, "id": "11", "time": "2016-07-10T20:00:02Z"}]
    lines = [latin, *(json.dumps(each).encode() for each in more)]
    (tmp_path / "c.jsonl").write_bytes(b"\r\n".join(lines))

    stage = imported(spark, tmp_path, JSONL, "*.jsonl*")

    assert sorted(row["post_id"] for row in rows_of(stage, "posts")) == ["0", "1", "3", "4"]
    reasons = {"duplicate id": 1, "no user": 1, "not JSON": 1, "not UTF-8": 1}
    assert stage.manifest.notes["quarantined"] == {**reasons, "time in the future": 1}
    assert stage.manifest.notes["rows_in"] == 4 + 5
    bad = {row["reason"]: row for row in rows_of(stage, "quarantine")}
    assert bad["not JSON"]["raw"] == good[2][:-9]
    assert bad["not UTF-8"]["raw_bytes"] == latin
    assert {row["raw_bytes"] for row in bad.values()} == {None, latin}
    assert "c.jsonl" in rows_of(stage, "quarantine")[-1]["source"]
    assert not imported(spark, tmp_path, JSONL, "*.jsonl*").built_now


def test_a_csv_file_may_have_lines_in_its_texts_and_names_of_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes(
        b"when,body,who\n"
        b'2016-07-10T20:00:01Z,"two\nlines, ""quoted"" #goal",ana\n'
        b"2016-07-10T20:00:01Z,no user,\n"
        b"2016-07-10T20:00:01Z,too,many,words\n"
        b"2016-07-10T20:00:01Z,\xff\xfe,bea\n"
    )
    reader = PostReader(form="csv", columns={"user": "who", "time": "when", "text": "body"})
    stage = imported(spark, tmp_path, reader, "a.csv")
    [post] = rows_of(stage, "posts")
    assert post["text"] == 'two\nlines, "quoted" #goal'
    assert (post["user"], post["at_us"], post["tags"]) == ("ana", AT_US, ["goal"])
    assert stage.manifest.notes["quarantined"] == {"broken row": 1, "no user": 1, "not UTF-8": 1}
    raw = {row["reason"]: row for row in rows_of(stage, "quarantine")}
    assert raw["no user"]["raw"] == "2016-07-10T20:00:01Z,no user,"
    assert raw["broken row"]["raw"] == "2016-07-10T20:00:01Z,too,many,words"
    assert raw["not UTF-8"]["raw_bytes"] == b"2016-07-10T20:00:01Z,\xff\xfe,bea"
    (tmp_path / "a.csv").rename(tmp_path / "b.csv")
    with pytest.raises(
        InputFileError, match=r"lacks the columns text, user; it has when, body, who"
    ):
        imported(spark, tmp_path, PostReader(form="csv", columns={"time": "when"}), "b.csv")


@pytest.mark.parametrize("multi_line", [True, False])
def test_p2_the_quarantine_has_the_lines_of_a_csv_file_as_they_were(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, multi_line: bool
) -> None:
    """Quotes that are not necessary, quotes in values, blanks, and too few or too many values."""
    lines = [
        '"2016-07-10T20:00:01Z"," quoted, ""twice"" ",""',
        '"2016-07-10T20:00:01Z","too few"',
        '2016-07-10T20:00:01Z,too,"many",',
        '2016-07-10T20:00:01Z,far,"too",many,values',
        "alone",
        '2016-07-10T20:00:01Z,5" tall,',
        *(['2016-07-10T20:00:01Z,"two\nlines",""'] if multi_line else []),
    ]
    if not multi_line:
        monkeypatch.setattr(
            csv_files, "find_splittable", lambda spark, paths, separator: set(paths)
        )
    good = '"2016-07-10T20:00:01Z","#goal ""a""",ana'
    (tmp_path / "a.csv").write_text("\n".join(["when,body,who", *lines, good]))
    reader = PostReader(form="csv", columns={"user": "who", "time": "when", "text": "body"})
    stage = imported(spark, tmp_path, reader, "a.csv")
    assert sorted(row["raw"] for row in rows_of(stage, "quarantine")) == sorted(lines)
    broken = {"too few", "too,", "far", "alone"}
    for row in rows_of(stage, "quarantine"):
        is_broken = any(word in row["raw"] for word in broken)
        assert row["reason"] == ("broken row" if is_broken else "no user")
    [post] = rows_of(stage, "posts")
    assert (post["user"], post["text"]) == ("ana", '#goal "a"')


ODD_CSV: dict[str, bytes] = {
    "byte order mark": b'\xef\xbb\xbf"user",time,text\nana,1468180801,#Eder\n',
    "semicolons": b"user;time;text\nana;1468180801;#Eder\n",
    "tabs": b"user\ttime\ttext\nana\t1468180801\t#Eder\n",
    "Windows line ends": b"user,time,text\r\nana,1468180801,#Eder\r\n",
    "spaces in the header": b"user, time ,text\nana,1468180801,#Eder\n",
    "NULs": b"user,time,text\nana\0,1468180801\0,#Eder\n",
    "two columns of one name that is not needed": (
        b"user,x,time,X,text,x\nana,1,1468180801,2,#Eder,3\n"
    ),
    "no line end": b"user,time,text\nana,1468180801,#Eder",
    "times without a zone": b"user,time,text\nana,2016-07-10 20:00:01,#Eder\n",
}


@pytest.mark.parametrize("name", ODD_CSV)
def test_p1_odd_csv_files_are_read(spark: SparkSession, tmp_path: Path, name: str) -> None:
    (tmp_path / "odd.csv").write_bytes(ODD_CSV[name])
    stage = imported(spark, tmp_path, PostReader(form="csv", now_us=NOW_US), "odd.csv")
    [post] = rows_of(stage, "posts")
    assert (post["user"], post["at_us"], post["tags"]) == ("ana", AT_US, ["eder"])
    assert stage.manifest.notes["quarantined"] == {}
    assert stage.manifest.notes["zone_assumed"] == int("zone" in name)


def test_p1_a_replacement_character_in_valid_text_is_text(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("user,time,text\nana,1468180801,what\ufffd #Eder\n")
    stage = imported(spark, tmp_path, PostReader(form="csv"), "a.csv")
    assert [row["text"] for row in rows_of(stage, "posts")] == ["what\ufffd #Eder"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"who;when;what\nana;1;x\n", "it has who, when, what .separated by a semicolon."),
        (b"user,time,text,user\nana,1,x,bea\n", "has the column user twice"),
        ("user,time,text\n".encode("utf-16"), "is UTF-16 text: save it as UTF-8"),
    ],
)
def test_p2_a_csv_file_that_cannot_be_read_is_explained(
    spark: SparkSession, tmp_path: Path, data: bytes, problem: str
) -> None:
    (tmp_path / "bad.csv").write_bytes(data)
    with pytest.raises(InputFileError, match=problem):
        imported(spark, tmp_path, PostReader(form="csv"), "bad.csv")


def test_p1_pages_of_the_twitter_api_are_imported_post_by_post(
    spark: SparkSession, tmp_path: Path
) -> None:
    tweets = [SOURCES["twitter-v2"]["data"] | {"id": str(number)} for number in range(3)]
    pages = [{"data": tweets[:2], "meta": {}}, {"data": [tweets[2], {"id": "9"}]}]
    (tmp_path / "pages.jsonl").write_text("\n".join(map(json.dumps, pages)))
    stage = imported(spark, tmp_path, PostReader(form="twitter-v2"), "pages.jsonl")
    assert [row["post_id"] for row in rows_of(stage, "posts")] == ["0", "1", "2"]
    assert stage.manifest.notes["rows_in"] == 4
    [bad] = rows_of(stage, "quarantine")
    assert (bad["reason"], bad["raw"]) == ("no user", '{"id": "9"}')


def test_a_parquet_file_may_have_typed_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array([7, 8]),
            "user": pa.array(["ana", None]),
            "time": pa.array([AT_US, AT_US], pa.timestamp("us", "UTC")),
            "text": pa.array(["Goal! #Eder"] * 2),
            "tags": pa.array([["Eder"]] * 2),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    stage = imported(spark, tmp_path, PostReader(form="parquet"), "a.parquet")
    [row] = rows_of(stage, "posts")
    assert Post(*list(row.values())[:4], tuple(row["tags"])) == POST
    assert stage.manifest.notes["quarantined"] == {"no user": 1}


def test_files_without_a_row_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"\n")
    with pytest.raises(InputError, match="there is no row in"):
        imported(spark, tmp_path, JSONL, "empty.jsonl")
    assert Warehouse(tmp_path / "w").stage_names() == []


def test_a_user_with_nearly_all_the_rows_is_one_user(spark: SparkSession, tmp_path: Path) -> None:
    """P2, P3: 50,000 rows of one user become posts and operations, all of them."""
    rows, others = 50_000, 5
    with (tmp_path / "loud.jsonl").open("w") as file:
        for number in range(rows + others):
            user = "loud" if number < rows else f"u{number}"
            time = AT_US // 1_000 + number * 200  # all of them within the hours of the match
            file.write(f'{{"id":{number},"user":"{user}","time":{time},"text":"#t{number % 9}"}}\n')
        file.write('{"user":"loud"}\n')
    reader = PostReader(form="jsonl", now_us=2 * AT_US)
    posts = imported(spark, tmp_path, reader, "loud.jsonl")
    trace = build_trace(spark, Warehouse(tmp_path / "w"), posts, 1 + others, seed=1)

    assert posts.row_count("posts") == rows + others
    assert posts.manifest.notes["quarantined"] == {"no time": 1}
    operations = trace.manifest.notes["operations"]
    assert operations["insert"] == rows + others
    assert trace.row_count("operations") == sum(operations.values())
    assert 0 < operations["subscribe"] < 200


def test_p1_times_may_count_from_the_start_of_an_event() -> None:
    columns = {"time": "t_ms", "user": "user_rank", "tags": "tag_ranks"}
    reader = PostReader(
        form="csv", columns=columns, unit="ms", origin="2015-09-19T12:45", zone="+01:00"
    )
    row = {"t_ms": "1500", "user_rank": "58", "text_bytes": "130", "tag_ranks": "2|4|70"}
    post = read_post(json.dumps(row), reader)
    start_us = parse_instant_us("2015-09-19T11:45:00Z")
    assert (post.at_us, post.user, post.text) == (start_us + 1_500_000, "58", "")
    assert post.tags == ("2", "4", "70")
    in_text = read_post(json.dumps({**row, "t_ms": "2015-09-19T11:45:00Z"}), reader)
    assert in_text.at_us == start_us, "other times are what they are"
    for unit, origin in (("h", None), (None, "2015-09-19"), ("s", "noon")):
        with pytest.raises(OptionError):
            PostReader(form="csv", unit=unit, origin=origin)
