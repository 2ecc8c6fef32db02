"""The report: a self-contained page, and the tables behind it (P7)."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.report.made_up import tables, written
from thyme.cli import main
from thyme.report.page import render_page
from thyme.report.report import Report, make_report
from thyme.report.scorecard import make_scorecard

FIGURES = 19
"""All but 13b, for which there are no invented numbers."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return make_report(written(tables(), tmp_path_factory.mktemp("warehouse")))


def test_p7_the_page_is_whole_and_needs_nothing_from_elsewhere(report: Report) -> None:
    text = report.page.read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?!["']?data:)""", text)
    assert "<script" not in text
    assert "url(" not in text
    assert text.count('class="badge') == 18
    for number in ("8", "9", "10a", "10e", "11a", "11f", "12", "13a", "14b", "15b"):
        assert f"F Fig. {number}<" in text
    assert "F Table 6" in text
    assert len(report.figures) == FIGURES


def test_same_numbers_same_bytes(report: Report, tmp_path: Path) -> None:
    again = make_report(written(tables(), tmp_path)).folder

    files = sorted(
        file.relative_to(report.folder) for file in report.folder.rglob("*") if file.is_file()
    )
    assert len(files) == FIGURES + 1 + 2 * len(report.tables)
    for file in files:
        assert (report.folder / file).read_bytes() == (again / file).read_bytes(), file


def test_tables_come_as_csv_and_parquet(report: Report) -> None:
    for name, count in report.tables.items():
        table = pq.read_table(report.folder / "tables" / f"{name}.parquet")
        with (report.folder / "tables" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert table.num_rows == len(rows) == count
        assert list(rows[0]) == table.column_names


def test_what_failed_and_what_was_not_measured_is_said(tmp_path: Path) -> None:
    failed = {"run_id": "static-196-<b>", "error": "MemoryError: no more"}
    made = tables(values={("static", "phy_bytes"): lambda name, x: x}, notes={"failures": [failed]})

    report = make_report(written(made, tmp_path))

    text = report.page.read_text(encoding="utf-8")
    assert "static-196-&lt;b&gt;" in text
    assert "MemoryError: no more" in text
    assert report.figures == ["figure-8.svg", "figure-9.svg", "figure-10a.svg"]


def test_the_page_says_that_small_networks_tell_little(report: Report) -> None:
    small = tables(sizes=(16, 36), churn_nodes=16)

    words = "mobility have 16 nodes here, not 100 as in the papers"
    assert words in render_page(small, [make_scorecard(small, "paper")], {})
    assert words not in report.page.read_text(encoding="utf-8")


def imported_notes() -> dict[str, Any]:
    timetable = {"starts_us": 1_442_662_320 * 10**6, "length_s": 7_200}
    window = {"timetable": timetable, "window_tagged": 9_876, "window_users": 543, "bin_s": 600}
    return {"imported": True, "window": window, "left_out": [100, 196], "one_in": 12}


def test_p7_imported_posts_are_drawn_with_their_window(tmp_path: Path) -> None:
    """P3: the report says where the window lies; the article's trace does not judge this one."""
    made = tables(notes=imported_notes())
    rows = [
        {"at_us": (1_442_662_200 + 600 * n) * 10**6, "posts": n + 5, "tagged": n} for n in range(30)
    ]
    made.tables["histogram"] = pa.Table.from_pylist(rows)
    report = make_report(written(made, tmp_path))
    page = report.page.read_text(encoding="utf-8")
    assert "posts.svg" in report.figures
    assert report.tables["histogram"] == 30
    assert "Imported posts over time, and the window of the trace" in page
    assert "9,876 posts with tags by 543 users" in page
    assert "from 2015-09-19 11:32 to 2015-09-19 13:32 UTC (2 h), compressed 12 times" in page
    assert "One in 12 posts of the devices is simulated" in page
    assert "Networks of 100 and 196 nodes are left out" in page
    assert {line.claim: line.verdict.value for line in report.lines}["C21"] == "other size"


def test_p7_every_value_on_the_page_is_escaped(tmp_path: Path) -> None:
    error = "<script>alert('x')</script> & more"
    made = tables(notes={"failures": [{"run_id": "<b>r1</b>", "error": error}]})
    page = make_report(written(made, tmp_path)).page.read_text(encoding="utf-8")
    assert "<script" not in page
    assert "<b>r1" not in page
    assert "&lt;script&gt;" in page


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tables(), tmp_path)

    assert main(["report", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tables"]["trace_counts"] == 4
    assert len(found["scorecard"]) == 18
    assert main(["report", str(tmp_path)]) == 0
    assert f"The report: {tmp_path / 'report' / 'index.html'}" in capsys.readouterr().out


def test_a_folder_without_an_evaluation_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "has no finished evaluation" in capsys.readouterr().err
