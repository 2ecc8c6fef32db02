"""A full disk: a one-line error, and no partial result (P5, P10)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.planned import planned
from thyme.pipeline.jobs import generate_posts
from thyme.pipeline.sweep.results import RunResults
from thyme.pipeline.sweep.runner import SweepError, sweep
from thyme.pipeline.warehouse import Warehouse, WarehouseError
from thyme.traces.synthetic.football_match import FootballMatchConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZE = 256 * 1024


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system with a few free blocks, where this process may mount one."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        made = subprocess.run(mount, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"there is no mount here: {error}")
    if made.returncode:
        pytest.skip(f"no small disk can be mounted here: {made.stderr.strip()}")
    try:
        (folder / "much").write_bytes(bytes(SIZE - 16 * 1024))
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_stage_that_does_not_fit_is_not_there(spark: SparkSession, full: Path) -> None:
    with pytest.raises(WarehouseError, match=r"full cannot be written: No space left on device$"):
        generate_posts(spark, Warehouse(full), 1, FootballMatchConfig(posts=5_000))

    assert Warehouse(full).stage_names() == []
    assert not [path for path in (full / "posts").rglob("*") if path.is_file()]
    (full / "much").unlink()
    assert (
        generate_posts(spark, Warehouse(full), 1, FootballMatchConfig(posts=50)).row_count("posts")
        == 50
    )


def test_a_sweep_stops_and_goes_on_when_there_is_room(
    spark: SparkSession, full: Path, tmp_path: Path
) -> None:
    run = planned(tmp_path / "traces")
    results = RunResults(Warehouse(full))

    with pytest.raises(SweepError, match="cannot be written: No space left on device"):
        sweep(spark, [run], results)
    assert results.completed() == set()

    (full / "much").unlink()
    assert sweep(spark, [run], results).failures == []
    assert results.completed() == {run.run_id}
