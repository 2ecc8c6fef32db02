"""P10, P11: a warehouse on file systems other than the local one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.buckets import LaggingBucket, bucket_settings
from thyme.cli import main
from thyme.pipeline import tables
from thyme.pipeline.schemas import POSTS
from thyme.pipeline.storage import (
    HadoopStorage,
    LocalStorage,
    Storage,
    local_path,
    reader_path,
)
from thyme.pipeline.warehouse import Draft, Warehouse, WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW = {"id": "7", "user": "ana", "time": "2016-07-10T20:00:01Z", "text": "Goal! #Eder"}


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("w", "w"),
        ("/a b%20", "/a b%20"),
        ("file:///a%20b", "/a b"),
        ("FILE:/a", "/a"),
        ("hdfs://host/w", None),
        ("s3a://bucket/w", None),
    ],
)
def test_plain_paths_and_file_uris_are_local(given: str, path: str | None) -> None:
    assert local_path(given) == (None if path is None else Path(path))


def test_characters_of_patterns_in_names_are_escaped_for_sparks_readers() -> None:
    assert reader_path("/a{1}*b?[c]") == r"file:///a\{1\}\*b\?\[c\]"
    assert reader_path("s3a://b/[1] é%20") == r"s3a://b/\[1\] é%20"


@pytest.fixture(params=["local", "bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return LocalStorage(tmp_path)
    return HadoopStorage(f"{request.getfixturevalue('bucket')}/")


@pytest.fixture
def bucket(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    # Java keeps a file system by the name of its bucket.
    with bucket_settings(spark, f"b{token_hex(4)}", tmp_path) as uri:
        yield uri


def test_every_storage_keeps_the_same_promises(storage: Storage) -> None:
    storage.create("a/é 1%.json", b"one")
    with pytest.raises(FileExistsError):
        storage.create("a/é 1%.json", b"two")
    storage.create("a/b/c", b"")
    assert storage.read("a/é 1%.json") == b"one"
    storage.overwrite("a/b/c", b"three")
    with storage.open("a/b/c") as file:
        file.seek(-3, os.SEEK_END)
        assert (file.read(2), file.tell()) == (b"re", 4)
    assert storage.names("a") == ["b", "é 1%.json"]
    assert [each[:2] for each in storage.files("a")] == [("a/b/c", 5), ("a/é 1%.json", 3)]
    storage.delete("a/b")
    storage.delete("a/b")
    assert (storage.names("a/b"), storage.files("a/b")) == ([], [])
    with pytest.raises(FileNotFoundError):
        storage.read("a/b/c")


def test_all_stages_work_by_commands_where_the_default_file_system_is_not_file(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P11: input and warehouse are URIs; names have blanks and letters of other scripts."""
    rows = [{**ROW, "id": str(number), "user": f"u{number % 3}"} for number in range(50)]
    (tmp_path / "in é").mkdir()
    (tmp_path / "in é" / "a 1.jsonl").write_text("\n".join(map(json.dumps, [*rows, rows[0]])))
    w = f"{bucket}/w é 1"
    commands = [
        ["posts", "import", f"{bucket}/in é", "--format", "jsonl", "--out", w],
        ["trace", "build", "--posts", w, "--users", "3", "--out", w],
        ["oracle", "--trace", w, "--out", w],
    ]
    found = []
    for argv in commands:
        assert main([*argv, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))

    assert found[0]["rows"] == {"files": 1, "posts": 50, "quarantine": 1}
    assert found[1]["operations"]["insert"] == 50
    assert found[2]["folder"] == f"{w}/oracle"
    assert (tmp_path / "w é 1" / "posts" / "manifests" / "000001.json").is_file()
    assert main([*commands[0], "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["made_now"]


@pytest.mark.parametrize("scheme", ["s3a", "abfs", "other"])
def test_a_uri_without_the_jar_of_its_file_system_is_named_with_the_jar(
    spark: SparkSession, scheme: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    uri = f"{scheme}://bucket/w"
    for argv in (
        ["trace", "build", "--posts", uri, "--out", "w"],
        ["posts", "import", uri, "--format", "jsonl", "--out", str(tmp_path)],
    ):
        assert main(argv) == 2
        error = capsys.readouterr().err
        assert f"Spark has no file system for {scheme}://" in error
        assert "--conf spark.jars.packages=" in error


def test_a_uri_that_names_no_file_is_said_so(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["posts", "import", f"{bucket}/none", "--format", "jsonl", "--out", str(tmp_path / "w")]
    assert main(argv) == 2
    assert f"{bucket}/none: cannot be read: there is no such file" in capsys.readouterr().err


def test_a_folder_without_write_permission_is_named_before_any_work(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(tmp_path)]
    try:
        made = subprocess.run(mount, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"there is no mount here: {error}")
    if made.returncode:
        pytest.skip(f"nothing can be mounted here: {made.stderr.strip()}")
    try:
        with pytest.raises(WarehouseError, match="cannot be written: Read-only file system"):
            Warehouse(tmp_path / "w").get_or_build("posts", {}, {}, lambda _: pytest.fail("built"))
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


# A bucket that is eventually consistent


def write_posts(spark: SparkSession, draft: Draft, count: int) -> None:
    rows = [(str(number), "ana", number, "", []) for number in range(count)]
    draft.write("posts", spark.createDataFrame(rows, POSTS).repartition(4), schema=POSTS)


def test_files_that_are_listed_late_are_waited_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_LISTING_EVERY_S", 0.0)
    warehouse = Warehouse(LaggingBucket(tmp_path, lag=5))
    stage = warehouse.get_or_build("posts", {}, {}, lambda draft: write_posts(spark, draft, 40))
    assert stage.row_count("posts") == 40
    assert stage.read(spark, "posts", POSTS).count() == 40


def test_files_that_are_never_listed_are_not_left_out_in_silence(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LISTING_S_MAX", 0.0)
    warehouse = Warehouse(LaggingBucket(tmp_path, lag=10**6))
    with pytest.raises(WarehouseError, match=r"40 rows of the table posts were written, but its "):
        warehouse.get_or_build("posts", {}, {}, lambda draft: write_posts(spark, draft, 40))
    assert warehouse.find_stage("posts") is None


def test_a_commit_that_is_not_listed_yet_is_found_and_not_overwritten(tmp_path: Path) -> None:
    first = Warehouse(LaggingBucket(tmp_path, lag=0))
    late = Warehouse(LaggingBucket(tmp_path, lag=10**6))
    for seed in (1, 2):
        first.get_or_build("posts", {"seed": seed}, {}, lambda draft: None)

    assert late.open_stage("posts").manifest.config == {"seed": 2}
    late.get_or_build("posts", {"seed": 3}, {}, lambda draft: None)
    assert first.open_stage("posts").manifest.config == {"seed": 3}
