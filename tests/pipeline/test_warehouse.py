"""P10, P11: the output of a stage is kept with its inputs, complete or not at all."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from thyme.distribution import VERSION
from thyme.pipeline.warehouse import Draft, Warehouse, WarehouseError


def three_rows(draft: Draft) -> None:
    for part in (1, 2):
        table = pa.table({"number": list(range(part))})
        parquet.write_table(table, draft.path("numbers") / f"part{part}.parquet")
    draft.add_notes(quarantined={"no user": 2})


def fails(_: Draft) -> None:
    raise AssertionError("made again")


def builds_in(folder: Path) -> list[str]:
    """The builds whose files are there, by the number of their manifest."""
    return sorted(path.name.partition("-")[0] for path in (folder / "builds").iterdir())


def test_a_stage_says_what_it_was_made_from_and_how_much_it_holds(tmp_path: Path) -> None:
    stage = Warehouse(tmp_path).get_or_build("posts", {"seed": 4}, {"files": "abc"}, three_rows)

    assert stage.row_count("numbers") == 3
    assert parquet.read_table(stage.table_path("numbers")).num_rows == 3
    assert [parquet.read_metadata(file).num_rows for file in stage.table_files("numbers")] == [1, 2]
    manifest = json.loads((tmp_path / "posts" / "manifests" / "000001.json").read_text())
    assert manifest["config"] == {"seed": 4}
    assert manifest["inputs"] == {"files": "abc"}
    assert [file["rows"] for file in manifest["tables"]["numbers"]["files"]] == [1, 2]
    assert manifest["notes"] == {"quarantined": {"no user": 2}}
    assert manifest["versions"].keys() >= {"python", "pyspark", "pyarrow"}
    assert manifest["versions"]["thyme"] == VERSION
    assert builds_in(tmp_path / "posts") == ["000001"]


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


def test_files_of_the_last_version_stay_for_its_readers_until_the_next(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    stages = []
    for seed in range(3):
        stages.append(warehouse.get_or_build("posts", {"seed": seed}, {}, three_rows))
        assert builds_in(tmp_path / "posts") == [f"{seed:06}", f"{seed + 1:06}"][not seed :]

    assert parquet.read_table(stages[1].table_path("numbers")).num_rows == 3
    sizes = [path.stat().st_size for path in sorted((tmp_path / "posts/manifests").iterdir())]
    assert [size > 0 for size in sizes] == [False, True, True], "its number must stay taken"


def test_a_build_that_fails_leaves_the_old_stage_and_nothing_half_written(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.get_or_build("posts", {}, {}, three_rows)

    def breaks(draft: Draft) -> None:
        three_rows(draft)
        raise RuntimeError("a task failed")

    with pytest.raises(RuntimeError, match="a task failed"):
        warehouse.get_or_build("posts", {"new": True}, {}, breaks)

    assert warehouse.open_stage("posts").row_count("numbers") == 3
    assert builds_in(tmp_path / "posts") == ["000001"]


def test_what_a_killed_process_left_is_not_taken_for_done_and_goes_with_the_next_build(
    tmp_path: Path,
) -> None:
    (tmp_path / "posts" / "builds" / "000001-dead" / "numbers").mkdir(parents=True)
    warehouse = Warehouse(tmp_path)
    with pytest.raises(WarehouseError, match="has no finished stage posts; its stages: none"):
        warehouse.open_stage("posts")

    assert warehouse.get_or_build("posts", {}, {}, three_rows).built_now
    assert list(warehouse.open_stage("posts").manifest.tables) == ["numbers"]
    assert "000001-dead" not in os.listdir(tmp_path / "posts" / "builds")


def test_a_manifest_whose_writer_died_keeps_its_number_and_counts_for_nothing(
    tmp_path: Path,
) -> None:
    """On a file system that shows files while they are written."""
    warehouse = Warehouse(tmp_path)
    warehouse.get_or_build("posts", {}, {}, three_rows)
    half = tmp_path / "posts" / "manifests" / "000002.json"
    half.write_text('{"stage": "po')
    long_ago_s = time.time() - 3_600
    os.utime(half, (long_ago_s, long_ago_s))

    assert warehouse.open_stage("posts").row_count("numbers") == 3
    assert warehouse.get_or_build("posts", {"new": True}, {}, three_rows).built_now
    assert half.with_name("000003.json").exists()


def test_of_two_that_build_a_stage_at_once_the_first_wins_and_the_other_is_told(
    tmp_path: Path,
) -> None:
    def overtaken(draft: Draft) -> None:
        three_rows(draft)
        Warehouse(tmp_path).get_or_build("posts", {"mine": False}, {}, three_rows)

    with pytest.raises(WarehouseError, match=r"changed by another process .* run the command"):
        Warehouse(tmp_path).get_or_build("posts", {"mine": True}, {}, overtaken)

    assert Warehouse(tmp_path).open_stage("posts").manifest.config == {"mine": False}
    assert builds_in(tmp_path / "posts") == ["000001"]


def test_of_two_that_build_the_same_both_get_what_the_first_built(tmp_path: Path) -> None:
    def overtaken(draft: Draft) -> None:
        three_rows(draft)
        Warehouse(tmp_path).get_or_build("posts", {}, {}, three_rows)

    stage = Warehouse(tmp_path).get_or_build("posts", {}, {}, overtaken)
    assert not stage.built_now
    assert stage.row_count("numbers") == 3


def test_an_increment_to_a_stage_that_is_gone_is_refused(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    base = warehouse.get_or_build("posts", {}, {}, three_rows)
    warehouse.get_or_build("posts", {"new": True}, {}, three_rows)
    with pytest.raises(WarehouseError, match="changed by another process"):
        warehouse.commit("posts", "f", {}, {}, fails, base)


def test_another_layout_is_named_with_what_to_do(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    (tmp_path / "posts").mkdir()
    (tmp_path / "posts" / "manifest.json").write_text("{}")
    with pytest.raises(WarehouseError, match=r"posts has layout 1, .* reads layout 2: use the ver"):
        warehouse.open_stage("posts")

    (tmp_path / "trace" / "manifests").mkdir(parents=True)
    (tmp_path / "trace" / "manifests" / "000001.json").write_text('{"layout": 9}')
    with pytest.raises(WarehouseError, match="trace has layout 9"):
        warehouse.get_or_build("trace", {}, {}, three_rows)


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


def test_data_sets_are_folders_side_by_side(tmp_path: Path) -> None:
    for name in ("euro", "league"):
        Warehouse(tmp_path / name).get_or_build("posts", {"of": name}, {}, three_rows)
    assert Warehouse(tmp_path / "euro").open_stage("posts").manifest.config == {"of": "euro"}
    assert Warehouse(tmp_path).stage_names() == []
