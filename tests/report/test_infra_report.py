"""The report of Thyme-Infrastructure: verdicts C23 to C37, figures, page (P7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.made_up_infra import (
    Numbers,
    as_the_thesis_says,
    infra_points,
    write_infra_metrics,
)
from thyme.report.infra.claims import judge_claims
from thyme.report.infra.figures import draw_figures
from thyme.report.infra.report import make_infra_report
from thyme.report.tables import NoTablesError


def verdicts(numbers: Numbers) -> dict[str, str]:
    return {line.claim: line.verdict.value for line in judge_claims(infra_points(numbers))}


def test_all_claims_agree_with_the_numbers_of_the_thesis() -> None:
    assert verdicts(as_the_thesis_says()) == {f"C{number}": "agrees" for number in range(23, 38)}


def test_nothing_is_judged_that_was_not_measured() -> None:
    assert set(verdicts({}).values()) == {"not measured"}
    assert draw_figures(infra_points({("x", "y", "z"): {0.0: 1.0}})) == []


@pytest.mark.parametrize(
    ("claim", "key", "line"),
    [
        ("C23", ("addresses", "infra", "station.routed"), {0.0: 2_300, 0.5: 300, 1.0: 1}),
        ("C24", ("ranking", "ranking", "requested_at.7"), {0.0: 240}),
        ("C25", ("ranking", "no-ranking", "hit_ratio.local_popularity"), {0.0: 0.42}),
        ("C26", ("worlds", "publishes", "part.1"), {1.0: 0.34, 2.0: 0.5, 5.0: 0.97}),
        ("C27", ("consumption", "notices", "answer_items_at.2"), {0.0: 101}),
        ("C28", ("batches", "infra", "station.items_served"), {1.0: 9, 2.0: 9, 6.0: 9}),
        ("C29", ("batches", "infra", "division_cpu_ms"), {1.0: 9, 2.0: 9, 6.0: 9}),
        ("C30", ("addresses", "infra", "unpublished_share"), {0.0: 0.99, 0.5: 1, 1.0: 1}),
        ("C31", ("failover", "infra", "cell_data_share"), {0.0: 0.999}),
        ("C32", ("traffic", "infra", "mobile.bytes"), {0.0: 19e9}),
        ("C33", ("move", "infra", "move.sent"), {5.0: 0, 100.0: 1}),
        ("C34", ("operations", "dcs", "latency_ms_mean.insert"), {1.0: 1, 2.0: 90}),
        ("C35", ("downloads", "station", "download_ms"), {5e3: 1, 1e6: 70, 5e6: 700}),
        ("C36", ("goal", "infra", "hot.energy_j"), {0.0: 900}),
        ("C37", ("downloads", "cloud", "download_ms"), {5e3: 1, 1e6: 1, 5e6: 1, 1e7: 1}),
    ],
)
def test_a_number_that_contradicts_the_thesis_is_seen(
    claim: str, key: tuple[str, str, str], line: dict[float, float]
) -> None:
    numbers = as_the_thesis_says() | {key: line}

    assert verdicts(numbers)[claim] == "differs"


def test_a_claim_that_differs_has_its_reason() -> None:
    numbers = as_the_thesis_says()
    numbers["worlds", "publishes", "part.1"] = {1.0: 0.34, 2.0: 0.5, 5.0: 0.71}
    line = {each.claim: each for each in judge_claims(infra_points(numbers))}["C26"]

    assert "2/1/1: 50.0 ± 0.5 %" in line.ours
    assert "share of puts" in line.reason


def test_p7_the_page_has_all_figures_and_can_be_written_again(tmp_path: Path) -> None:
    write_infra_metrics(tmp_path, as_the_thesis_says())
    first = make_infra_report(tmp_path)
    page = first.page.read_text(encoding="utf-8")
    again = make_infra_report(tmp_path)

    assert again.page.read_text(encoding="utf-8") == page
    numbers = (3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 20, 21, 23, 24)
    assert first.figures == [f"fig5-{number}.svg" for number in numbers]
    for number in numbers:
        assert f"V Fig. 5.{number}" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert [line.claim for line in first.lines] == [f"C{number}" for number in range(23, 38)]


def test_a_folder_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoTablesError, match="run thyme evaluate --preset infra-quick"):
        make_infra_report(tmp_path)
