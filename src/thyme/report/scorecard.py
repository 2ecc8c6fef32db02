"""The scorecard: the claims of the papers, the measurements, and whether they agree.

Entry point: `make_scorecard`. Every verdict is computed from the tables; the tolerance is in the
function that checks the claim (`claims`). A claim about a size that was not simulated is not
judged.
Clauses: C1–C17, C21, S18.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from thyme.report import judges_dynamic, judges_model, judges_static
from thyme.report.findings import Finding, View
from thyme.report.tables import Tables


class Verdict(StrEnum):
    """The result of checking a claim."""

    AGREES = "agrees"
    DIFFERS = "differs"
    OTHER_SIZE = "other size"
    """Measured in networks of another size than the claim's: not judged."""
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the scorecard."""

    claim: str
    source: str
    title: str
    documents: str
    ours: str
    verdict: Verdict
    profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim of the papers and the function that checks it."""

    id: str
    source: str
    title: str
    documents: str
    judge: Callable[[View], Finding]


def scorecard(tables: Tables, profile: str) -> list[Line]:
    """Checks every claim against the tables of a profile."""
    view = View(tables, profile)
    lines = []
    for claim in CLAIMS:
        found = claim.judge(view)
        lines.append(
            Line(
                claim=claim.id,
                source=claim.source,
                title=claim.title,
                documents=claim.documents,
                ours=found.ours,
                verdict=verdict_of(found),
                profile=profile,
            )
        )
    return lines


def verdict_of(found: Finding) -> Verdict:
    """The verdict of a finding."""
    if not found.measured:
        return Verdict.NOT_MEASURED
    if found.agrees is None:
        return Verdict.OTHER_SIZE
    return Verdict.AGREES if found.agrees else Verdict.DIFFERS


CLAIMS = (
    Claim(
        id="C1",
        source="F Fig. 10a",
        title="PHY bytes",
        documents="at 196 nodes ES and LS each transmit more than 2× the bytes of DCS; ES ≈ LS",
        judge=judges_static.c1,
    ),
    Claim(
        id="C2",
        source="F Fig. 10b, c",
        title="MAC retransmissions",
        documents="ES and LS have many more retransmissions and frames over the retry limit than "
        "DCS, growing with size",
        judge=judges_static.c2,
    ),
    Claim(
        id="C3",
        source="F Fig. 10d",
        title="forwarded bytes",
        documents="DCS forwards more than ES and LS when nothing fails",
        judge=judges_static.c3,
    ),
    Claim(
        id="C4",
        source="F Fig. 10e",
        title="routing control",
        documents="ES and LS far above DCS; about a quarter of their bytes at 196 nodes",
        judge=judges_static.c4,
    ),
    Claim(
        id="C5",
        source="F Fig. 11c",
        title="success in DCS",
        documents="every operation above 99 %; notifications never below 95 %",
        judge=judges_static.c5,
    ),
    Claim(
        id="C6",
        source="F Fig. 11b",
        title="success in LS",
        documents="insert and delete 100 %, (un)subscribe above 99 %; at 196 nodes retrieve 96 %, "
        "notifications 95 %",
        judge=judges_static.c6,
    ),
    Claim(
        id="C7",
        source="F Fig. 11a",
        title="success in ES",
        documents="falls with size, down to 78 % at 196 nodes",
        judge=judges_static.c7,
    ),
    Claim(
        id="C8",
        source="F Fig. 11d–f",
        title="latencies",
        documents="grow with size; few nodes: similar, ES slightly higher; many: notifications "
        "faster in LS than DCS, retrieves slightly faster in DCS than LS, ES slowest",
        judge=judges_static.c8,
    ),
    Claim(
        id="C9",
        source="F Fig. 12",
        title="crashes: notifications",
        documents="LS falls with the share of publishers that fail; DCS and ES stay flat",
        judge=judges_dynamic.c9,
    ),
    Claim(
        id="C10",
        source="F Fig. 13a",
        title="transient churn: retrieves in LS",
        documents="success falls as the share that fails grows from 5 to 40 %",
        judge=judges_dynamic.c10,
    ),
    Claim(
        id="C11",
        source="F Fig. 14a",
        title="transient churn: slowest notification",
        documents="LS from ≈ 25 s (5 %) to ≈ 100 s (40 %); DCS and ES stable",
        judge=judges_dynamic.c11,
    ),
    Claim(
        id="C12",
        source="F 9.3.2",
        title="transient churn: operations",
        documents="DCS well above 90 %, 150–300 ms; ES above 80 %, 400–600 ms",
        judge=judges_dynamic.c12,
    ),
    Claim(
        id="C13",
        source="F Fig. 14b",
        title="transient churn: forwarded bytes",
        documents="LS forwards much more than DCS; without churn it is the other way round",
        judge=judges_dynamic.c13,
    ),
    Claim(
        id="C14",
        source="F Fig. 15a",
        title="mobility: notifications in DCS",
        documents="success falls as speed grows (0.6, 1.4, 2.5 m/s)",
        judge=judges_dynamic.c14,
    ),
    Claim(
        id="C15",
        source="F Fig. 15b",
        title="mobility: retrieves",
        documents="latency lower in DCS than in ES and LS",
        judge=judges_dynamic.c15,
    ),
    Claim(
        id="C16",
        source="F Fig. 8",
        title="notification work per node",
        documents="falls with the number of nodes in the cell",
        judge=judges_model.c16,
    ),
    Claim(
        id="C17",
        source="F Table 6",
        title="message counts",
        documents="simulated counts follow the formulas (judged: their ratio stays within a "
        "factor of 2 over all sizes)",
        judge=judges_model.c17,
    ),
    Claim(
        id="C21",
        source="F 9.2",
        title="the trace of 100 users",
        documents="4,545 inserts, 526 subscribes, 29 deletes, 15 unsubscribes",
        judge=judges_model.c21,
    ),
)
