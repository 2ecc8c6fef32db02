"""The scorecard: verdicts follow from the numbers (C1–C17, C21)."""

from __future__ import annotations

import pytest

from tests.report.made_up import Value, as_the_documents_say, tables
from thyme.report.scorecard import CLAIMS, ScorecardLine, Verdict, make_scorecard

EVERY = [f"C{number}" for number in (*range(1, 18), 21)]


def lines(**settings: object) -> dict[str, ScorecardLine]:
    return {line.claim: line for line in make_scorecard(tables(**settings), "paper")}  # type: ignore[arg-type]


def test_every_claim_has_a_line() -> None:
    assert [claim.id for claim in CLAIMS] == EVERY


def test_numbers_as_the_documents_give_them_agree() -> None:
    assert {claim: line.verdict for claim, line in lines().items()} == dict.fromkeys(
        EVERY, Verdict.AGREES
    )


@pytest.mark.parametrize(
    ("claim", "series", "measure", "value"),
    [
        ("C1", "static", "phy_bytes", lambda name, x: x),
        ("C2", "static", "mac_exceeded", lambda name, x: 5.0),
        ("C3", "static", "forwarded_bytes", lambda name, x: 3.0 if name == "ls" else 2.0),
        ("C4", "static", "control_share", lambda name, x: 0.6),
        ("C5", "static", "success.insert", lambda name, x: 0.98),
        ("C6", "static", "success.retrieve", lambda name, x: 0.8),
        ("C7", "static", "success.operation", lambda name, x: 1.0),
        ("C8", "static", "latency_ms_mean.notification", lambda name, x: 1000 - x),
        ("C9", "crash", "success.notification", lambda name, x: 1 - x),
        ("C10", "transient", "success.retrieve", lambda name, x: 0.9),
        ("C11", "transient", "latency_ms_max.notification", lambda name, x: 30_000.0),
        ("C12", "transient", "success.operation", lambda name, x: 0.7),
        ("C13", "transient", "forwarded_bytes", lambda name, x: 1.0),
        ("C14", "mobile", "success.notification", lambda name, x: 0.9 + x / 50),
        ("C15", "mobile", "latency_ms_mean.retrieve", lambda name, x: 1.0),
        ("C17", "static", "simulated.insert", lambda name, x: x * x * x),
    ],
)
def test_other_numbers_differ(claim: str, series: str, measure: str, value: Value) -> None:
    values = as_the_documents_say() | {(series, measure): value}

    assert lines(values=values)[claim].verdict is Verdict.DIFFERS


def test_a_size_that_was_not_simulated_is_not_judged_but_told() -> None:
    found = lines(sizes=(16, 36), churn_nodes=16)

    unjudged = {claim for claim, line in found.items() if line.verdict is Verdict.OTHER_SIZE}
    dynamic = {"C9", "C10", "C11", "C12", "C13", "C14", "C15"}
    assert unjudged == {"C1", "C2", "C4", "C6", "C7", "C8"} | dynamic
    assert "at 36 nodes: ES/DCS 2.50×" in found["C1"].ours
    assert "16 nodes instead of 100" in found["C9"].ours


def test_a_series_that_was_not_run_is_not_measured() -> None:
    values = {key: value for key, value in as_the_documents_say().items() if key[0] == "static"}

    found = lines(values=values)

    for claim in ("C9", "C10", "C11", "C12", "C13", "C14", "C15"):
        assert found[claim].verdict is Verdict.NOT_MEASURED
        assert found[claim].ours == "not measured in this sweep"
