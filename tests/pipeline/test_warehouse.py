"""P10: the output of a stage is kept with its inputs, complete or not at all."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from thyme.pipeline.warehouse import Draft, Warehouse, WarehouseError, files_fingerprint
from thyme.traces.files import InputFileError


def three_rows(draft: Draft) -> None:
    for part in (1, 2):
        table = pa.table({"number": list(range(part))})
        parquet.write_table(table, draft.path("numbers") / f"part{part}.parquet")
    draft.add_notes(quarantined={"no user": 2})


def fails(_: Draft) -> None:
    raise AssertionError("made again")


def test_a_stage_says_what_it_was_made_from_and_how_much_it_holds(tmp_path: Path) -> None:
    stage = Warehouse(tmp_path).get_or_build("posts", {"seed": 4}, {"files": "abc"}, three_rows)

    assert stage.row_count("numbers") == 3
    assert parquet.read_table(stage.table_path("numbers")).num_rows == 3
    manifest = json.loads((tmp_path / "posts" / "manifest.json").read_text())
    assert manifest["config"] == {"seed": 4}
    assert manifest["inputs"] == {"files": "abc"}
    assert manifest["tables"]["numbers"]["files"] == 2
    assert manifest["notes"] == {"quarantined": {"no user": 2}}
    assert manifest["versions"].keys() >= {"thyme", "python", "pyspark", "pyarrow"}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["posts"]


def test_a_stage_for_the_same_inputs_is_not_made_again(tmp_path: Path) -> None:
    first = Warehouse(tmp_path).get_or_build("posts", {"seed": 4}, {"files": "abc"}, three_rows)
    again = Warehouse(tmp_path).get_or_build("posts", {"seed": 4}, {"files": "abc"}, fails)
    assert (first.built_now, again.built_now) == (True, False)
    assert again.manifest == first.manifest == Warehouse(tmp_path).open_stage("posts").manifest


@pytest.mark.parametrize(
    ("config", "inputs"), [({"seed": 5}, {"files": "abc"}), ({"seed": 4}, {"files": "abd"})]
)
def test_a_stage_from_something_else_takes_its_place(
    tmp_path: Path, config: dict[str, int], inputs: dict[str, str]
) -> None:
    warehouse = Warehouse(tmp_path)
    first = warehouse.get_or_build("posts", {"seed": 4}, {"files": "abc"}, three_rows)
    second = warehouse.get_or_build(
        "posts", config, inputs, lambda draft: draft.add_notes(other=True)
    )
    assert second.built_now
    assert second.fingerprint != first.fingerprint
    assert warehouse.open_stage("posts").manifest.tables == {}


def test_a_build_that_fails_leaves_the_old_stage_and_nothing_half_written(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.get_or_build("posts", {}, {}, three_rows)

    def breaks(draft: Draft) -> None:
        three_rows(draft)
        raise RuntimeError("a task failed")

    with pytest.raises(RuntimeError, match="a task failed"):
        warehouse.get_or_build("posts", {"new": True}, {}, breaks)

    assert warehouse.open_stage("posts").row_count("numbers") == 3
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["posts"]


def test_what_a_killed_process_left_is_not_taken_for_done(tmp_path: Path) -> None:
    half = tmp_path / "posts" / "numbers"
    half.mkdir(parents=True)
    (tmp_path / ".posts.draft" / "old").mkdir(parents=True)
    warehouse = Warehouse(tmp_path)
    with pytest.raises(WarehouseError, match="has no finished stage posts; its stages: none"):
        warehouse.open_stage("posts")
    (tmp_path / "posts" / "manifest.json").write_text('{"stage": "po')
    assert warehouse.stage_names() == []

    assert warehouse.get_or_build("posts", {}, {}, three_rows).built_now
    assert list(warehouse.open_stage("posts").manifest.tables) == ["numbers"]


def test_pieces_of_a_long_build_outlive_its_end_until_the_stage_is_done(tmp_path: Path) -> None:
    def halfway(draft: Draft) -> None:
        (draft.parts / "run1").write_text("done")
        raise KeyboardInterrupt

    warehouse = Warehouse(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        warehouse.get_or_build("sweep", {}, {}, halfway)
    found: list[str] = []
    warehouse.get_or_build(
        "sweep", {}, {}, lambda draft: found.extend(path.name for path in draft.parts.iterdir())
    )
    assert found == ["run1"]
    assert not list(tmp_path.glob(".sweep.parts*"))


def test_two_do_not_make_a_stage_at_once(tmp_path: Path) -> None:
    def again(_: Draft) -> None:
        Warehouse(tmp_path).get_or_build("posts", {}, {}, three_rows)

    with pytest.raises(WarehouseError, match="being made by another process"):
        Warehouse(tmp_path).get_or_build("posts", {}, {}, again)


def test_a_folder_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WarehouseError, match=r"file/w cannot be written: Not a directory"):
        Warehouse(tmp_path / "file" / "w").get_or_build("posts", {}, {}, three_rows)


def test_a_full_disk_is_told_as_such_whoever_met_it(tmp_path: Path) -> None:
    def ours(_: Draft) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def spark(_: Draft) -> None:
        raise RuntimeError("Job aborted: java.io.IOException: No space left on device at …")

    for build in (ours, spark):
        with pytest.raises(WarehouseError, match=r"cannot be written: No space left on device$"):
            Warehouse(tmp_path).get_or_build("posts", {}, {}, build)
    assert Warehouse(tmp_path).stage_names() == []


def test_names_are_plain(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="small letters"):
        Warehouse(tmp_path).get_or_build("../posts", {}, {}, three_rows)
    stage = Warehouse(tmp_path).get_or_build("posts", {}, {}, three_rows)
    with pytest.raises(WarehouseError, match="has no table letters; its tables: numbers"):
        stage.table_path("letters")


def test_files_have_the_fingerprint_of_what_is_in_them(tmp_path: Path) -> None:
    one, two, other = (tmp_path / name for name in "abc")
    one.write_bytes(b"x")
    two.write_bytes(b"x")
    other.write_bytes(b"y")
    assert files_fingerprint([one]) == files_fingerprint([two])
    assert files_fingerprint([one]) != files_fingerprint([other])
    with pytest.raises(InputFileError, match="cannot be read: No such file"):
        files_fingerprint([tmp_path / "none"])
