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

from thyme.report.claims import dynamic, model, static
from thyme.report.claims.finding import Finding, ProfileTables
from thyme.report.tables import EvaluationTables


class Verdict(StrEnum):
    """The result of checking a claim."""

    AGREES = "agrees"
    PARTLY = "partly"
    """Some of its statements agree, others do not."""
    DIFFERS = "differs"
    OTHER_SIZE = "other size"
    """Measured in networks of another size than the claim's: not judged."""
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorecardLine:
    """One line of the scorecard."""

    claim: str
    source: str
    title: str
    documents: str
    ours: str
    verdict: Verdict
    profile: str
    reason: str = ""
    """Why our numbers differ, if that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim of the papers and the function that checks it."""

    id: str
    source: str
    title: str
    documents: str
    check: Callable[[ProfileTables], Finding]


def make_scorecard(tables: EvaluationTables, profile: str) -> list[ScorecardLine]:
    """Checks every claim against the tables of a profile."""
    view = ProfileTables(tables, profile)
    lines = []
    for claim in CLAIMS:
        found = claim.check(view)
        lines.append(
            ScorecardLine(
                claim=claim.id,
                source=claim.source,
                title=claim.title,
                documents=claim.documents,
                ours=found.ours,
                verdict=verdict_for(found),
                profile=profile,
            )
        )
    return lines


def verdict_for(found: Finding) -> Verdict:
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
        check=static.check_c1_phy_bytes,
    ),
    Claim(
        id="C2",
        source="F Fig. 10b, c",
        title="MAC retransmissions",
        documents="ES and LS have many more retransmissions and frames over the retry limit than "
        "DCS, growing with size",
        check=static.check_c2_mac_retransmissions,
    ),
    Claim(
        id="C3",
        source="F Fig. 10d",
        title="forwarded bytes",
        documents="DCS forwards more than ES and LS when nothing fails",
        check=static.check_c3_forwarded_bytes,
    ),
    Claim(
        id="C4",
        source="F Fig. 10e",
        title="routing control",
        documents="ES and LS far above DCS; about a quarter of their bytes at 196 nodes",
        check=static.check_c4_routing_control,
    ),
    Claim(
        id="C5",
        source="F Fig. 11c",
        title="success in DCS",
        documents="every operation above 99 %; notifications never below 95 %",
        check=static.check_c5_dcs_success,
    ),
    Claim(
        id="C6",
        source="F Fig. 11b",
        title="success in LS",
        documents="insert and delete 100 %, (un)subscribe above 99 %; at 196 nodes retrieve 96 %, "
        "notifications 95 %",
        check=static.check_c6_ls_success,
    ),
    Claim(
        id="C7",
        source="F Fig. 11a",
        title="success in ES",
        documents="falls with size, down to 78 % at 196 nodes",
        check=static.check_c7_es_success,
    ),
    Claim(
        id="C8",
        source="F Fig. 11d–f",
        title="latencies",
        documents="grow with size; few nodes: similar, ES slightly higher; many: notifications "
        "faster in LS than DCS, retrieves slightly faster in DCS than LS, ES slowest",
        check=static.check_c8_latencies,
    ),
    Claim(
        id="C9",
        source="F Fig. 12",
        title="crashes: notifications",
        documents="LS falls with the share of publishers that fail; DCS and ES stay flat",
        check=dynamic.check_c9_crash_notifications,
    ),
    Claim(
        id="C10",
        source="F Fig. 13a",
        title="transient churn: retrieves in LS",
        documents="success falls as the share that fails grows from 5 to 40 %",
        check=dynamic.check_c10_churn_ls_retrieves,
    ),
    Claim(
        id="C11",
        source="F Fig. 14a",
        title="transient churn: slowest notification",
        documents="LS from ≈ 25 s (5 %) to ≈ 100 s (40 %); DCS and ES stable",
        check=dynamic.check_c11_churn_slowest_notification,
    ),
    Claim(
        id="C12",
        source="F 9.3.2",
        title="transient churn: operations",
        documents="DCS well above 90 %, 150–300 ms; ES above 80 %, 400–600 ms",
        check=dynamic.check_c12_churn_operations,
    ),
    Claim(
        id="C13",
        source="F Fig. 14b",
        title="transient churn: forwarded bytes",
        documents="LS forwards much more than DCS; without churn it is the other way round",
        check=dynamic.check_c13_churn_forwarded_bytes,
    ),
    Claim(
        id="C14",
        source="F Fig. 15a",
        title="mobility: notifications in DCS",
        documents="success falls as speed grows (0.6, 1.4, 2.5 m/s)",
        check=dynamic.check_c14_mobile_dcs_notifications,
    ),
    Claim(
        id="C15",
        source="F Fig. 15b",
        title="mobility: retrieves",
        documents="latency lower in DCS than in ES and LS",
        check=dynamic.check_c15_mobile_retrieve_latency,
    ),
    Claim(
        id="C16",
        source="F Fig. 8",
        title="notification work per node",
        documents="falls with the number of nodes in the cell",
        check=model.check_c16_cell_work,
    ),
    Claim(
        id="C17",
        source="F Table 6",
        title="message counts",
        documents="simulated counts follow the formulas (judged: their ratio stays within a "
        "factor of 2 over all sizes)",
        check=model.check_c17_message_counts,
    ),
    Claim(
        id="C21",
        source="F 9.2",
        title="the trace of 100 users",
        documents="4,545 inserts, 526 subscribes, 29 deletes, 15 unsubscribes",
        check=model.check_c21_trace_counts,
    ),
)
