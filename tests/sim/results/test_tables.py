"""S14, S17: the result of a run in a folder, complete or not at all."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.sim.runs import AT_ONCE, insert, scenario, subscribe, trace
from thyme.model.errors import InputError
from thyme.sim.results.summary import summarise_run
from thyme.sim.results.tables import (
    PAGE,
    RECORDING,
    RESULT_FILES,
    SUMMARY,
    TABLE_COLUMNS,
    result_folder,
)
from thyme.sim.run import Run, run
from thyme.sim.scenario import Substrate

STORY = trace(2, insert(1, 0, "o"), subscribe(3, 1, "s"), insert(5, 1, "p"))


@cache
def a_run() -> Run:
    return run(scenario(nodes=2, reaction=AT_ONCE), STORY)


def written(target: Path) -> None:
    """A recorded run, written to a folder."""
    with result_folder(target) as folder:
        with folder.open_recording() as file:
            found = run(scenario(nodes=2, reaction=AT_ONCE), STORY, recording_file=file)
        folder.write_results(found, summarise_run(found))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("tables") / "result"
    written(target)
    return target


def test_the_folder_has_every_table_the_summary_the_recording_and_the_page(result: Path) -> None:
    assert set(names(result)) == {*TABLE_COLUMNS, SUMMARY, RECORDING, PAGE} == RESULT_FILES
    assert names(result.parent) == ["result"]


@pytest.mark.parametrize("name", [name for name in TABLE_COLUMNS if name != "cells.csv"])
def test_every_table_has_its_columns_and_a_row_for_each_thing(result: Path, name: str) -> None:
    found = a_run()
    things: dict[str, Sequence[object]] = {
        "operations.csv": found.attempts,
        "notifications.csv": found.notifications,
        "expected.csv": found.expected,
        "traffic.csv": [kind for node in found.measurements.nodes for kind in node.loads],
        "energy.csv": found.measurements.nodes,
        "storage.csv": found.samples.stored,
    }
    rows = table(result / name)

    assert len(rows) == len(things[name]) > 0
    assert tuple(rows[0]) == TABLE_COLUMNS[name]
    assert None not in rows[0].values()


def test_only_dcs_has_cells(result: Path, tmp_path: Path) -> None:
    found = run(scenario(Substrate.DCS, nodes=2), STORY)
    outcome = summarise_run(found)
    with result_folder(tmp_path / "dcs") as folder:
        folder.write_results(found, outcome)

    rows = table(tmp_path / "dcs" / "cells.csv")

    assert outcome.cells is not None
    assert [int(row["cell"]) for row in rows] == [state.cell for state in outcome.cells.by_cell]
    assert tuple(rows[0]) == TABLE_COLUMNS["cells.csv"]
    assert table(result / "cells.csv") == []


def test_rows_say_what_happened(result: Path) -> None:
    found = a_run()
    first = table(result / "operations.csv")[0]
    energy = table(result / "energy.csv")
    traffic = table(result / "traffic.csv")

    assert (first["kind"], first["user"], first["name"], first["code"]) == (
        "insert",
        "0",
        "o",
        "ok",
    )
    assert int(first["issued_us"]) == found.attempts[0].issued_us
    assert [row["node"] for row in energy] == ["0000", "0001"]
    for row, node in zip(energy, found.measurements.nodes, strict=True):
        assert int(row["frame_bytes"]) == node.frame_bytes
        assert float(row["joules"]) == pytest.approx(node.energy.joules)
        assert int(row["on_us"]) == node.energy.on_us
    sent = sum(int(row["sent"]) for row in traffic)
    assert sent == sum(load.sent for load in found.measurements.loads.values())


def test_the_summary_is_the_outcome(result: Path) -> None:
    summary = json.loads((result / SUMMARY).read_text())

    assert summary["notifications"]["recall"] == 1.0
    assert summary["events"] == a_run().events


def test_the_page_needs_nothing_else(result: Path) -> None:
    page = (result / PAGE).read_text()

    assert "ls · static · 2 nodes" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_the_same_run_gives_the_same_bytes(result: Path, tmp_path: Path) -> None:
    written(tmp_path / "again")

    for name in RESULT_FILES - {SUMMARY}:  # which has the wall time
        assert (result / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


# Complete or not at all


def test_what_fails_halfway_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with result_folder(tmp_path / "new") as folder, folder.open_recording() as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert names(tmp_path) == []


def test_an_earlier_result_stays_until_there_is_a_new_one(tmp_path: Path) -> None:
    target = tmp_path / "result"
    target.mkdir()
    (target / SUMMARY).write_text("earlier")
    with pytest.raises(RuntimeError), result_folder(target):
        raise RuntimeError
    assert (target / SUMMARY).read_text() == "earlier"

    with result_folder(target) as folder:
        assert (target / SUMMARY).read_text() == "earlier"
        folder.write_results(a_run(), summarise_run(a_run()))
    assert names(target) == sorted([*TABLE_COLUMNS, SUMMARY])  # this one was not recorded
    assert json.loads((target / SUMMARY).read_text())["events"] == a_run().events
    assert names(tmp_path) == ["result"]


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    target = tmp_path / "empty"
    target.mkdir()
    with result_folder(target) as folder:
        folder.write_results(a_run(), summarise_run(a_run()))

    assert SUMMARY in names(target)


@pytest.mark.parametrize("beside", [None, SUMMARY])
def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path, beside: str | None) -> None:
    """Also if one of them has the name of one of our files."""
    (tmp_path / "thesis.tex").write_text("years of work")
    if beside is not None:
        (tmp_path / beside).write_text("{}")

    with pytest.raises(InputError, match="other files"), result_folder(tmp_path):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("mine")

    with pytest.raises(InputError, match="is a file"), result_folder(target):
        pass
    assert target.read_text() == "mine"


def test_the_folder_above_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"), result_folder(tmp_path / "a" / "b"):
        pass
    assert names(tmp_path) == []


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    refused = pytest.raises(InputError, match=r"result cannot be written: No space left")
    with refused, result_folder(tmp_path / "result"):
        raise OSError(28, "No space left on device")

    assert names(tmp_path) == []
