"""The page: renders the report as one HTML file, for screens, phones and print.

The file loads nothing: figures are embedded, fonts are those of the browser.
Entry point: `render_page`.
Clause: P7.
"""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import groupby
from typing import Any

from thyme.report.claims.finding import CHURN_NODES, SUBSTRATE_NAMES
from thyme.report.figures import Drawing
from thyme.report.scorecard import ScorecardLine, Verdict
from thyme.report.tables import SUBSTRATES, EvaluationTables

CSS = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
TILES = {
    Verdict.AGREES: "claims agree",
    Verdict.DIFFERS: "claims differ",
    Verdict.OTHER_SIZE: "claims about other sizes: not judged",
    Verdict.NOT_MEASURED: "claims not measured",
}
GROUPS = (
    ("8", "The analytical model", "Messages by the formulas of section 8, and as simulated."),
    ("9", "The trace", "Operations of users: from the synthetic match, or from imported posts."),
    ("10", "Lower layers, without failures", "Traffic and interference by network size."),
    ("11", "Operations, without failures", "Success and latency by network size; notifications "
     "are compared with a perfect execution."),
    ("12", "Crashes", "A share of the publishers crashes permanently in the middle of the run."),
    ("13", "Transient churn in LS", "Some nodes alternate between 120 s up and 60 s down."),
    ("14", "Transient churn", "The point at 0 % is the static run of the same size."),
    ("15", "Mobility", "60 % of the nodes walk, with pauses of 120 s."),
)  # fmt: skip


def render_page(
    tables: EvaluationTables, cards: Sequence[list[ScorecardLine]], drawn: dict[str, list[Drawing]]
) -> str:
    """Renders the whole page; `cards` and `drawn` have one part per profile."""
    body = "\n".join(_body(tables, cards, drawn))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Thyme: the evaluation</title>\n<style>{CSS}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _body(
    tables: EvaluationTables, cards: Sequence[list[ScorecardLine]], drawn: dict[str, list[Drawing]]
) -> Iterator[str]:
    yield from _head(tables, cards)
    for lines in cards:
        profile = lines[0].profile
        yield f"<h2>Scorecard{_profile_suffix(profile, cards)}</h2>"
        yield (
            "<p>Claims of the papers, the measurements of this sweep, and whether they agree. "
            "Each verdict is computed from the tables; a claim about a size that was not "
            "simulated is shown, but not judged.</p>"
        )
        yield _scorecard(lines)
    for profile, drawings in drawn.items():
        yield from _figures(tables, profile, drawings, _profile_suffix(profile, cards))
    yield from _foot(tables)


def _profile_suffix(profile: str, cards: Sequence[list[ScorecardLine]]) -> str:
    return f", profile {profile}" if len(cards) > 1 or profile != "paper" else ""


def _head(tables: EvaluationTables, cards: Sequence[list[ScorecardLine]]) -> Iterator[str]:
    notes, runs = tables.notes, tables.tables["runs"].num_rows
    failed = len(notes["failures"])
    sizes = sorted({row["nodes"] for row in tables.table_rows("runs")})
    yield "<header><h1>Thyme: the evaluation</h1>"
    yield (
        f"<p>Preset <code>{_escape(notes['preset'])}</code>: networks of {_join_and(sizes)} nodes, "
        f"{notes['operations_s']} s of operations each, on the simulated radio. ES stores all "
        "objects on one server, LS on the device that publishes them, DCS in cells of nearby "
        f"devices.</p>{_size_note(tables)}</header>"
    )
    verdicts = [line.verdict for lines in cards for line in lines]
    tiles = [(f"{runs:,}", "runs", "")]
    if failed:
        tiles.append((f"{failed:,}", "runs failed", "differs"))
    tiles += [
        (str(verdicts.count(verdict)), words, verdict.value.split()[0])
        for verdict, words in TILES.items()
        if verdict in verdicts or verdict in (Verdict.AGREES, Verdict.DIFFERS)
    ]
    yield '<div class="tiles">'
    for value, words, kind in tiles:
        yield f'<div class="tile {kind}"><b>{value}</b><span>{words}</span></div>'
    yield "</div>"


def _size_note(tables: EvaluationTables) -> str:
    """A note if the networks are too small to check the claims of the papers."""
    found = (tables.largest_nodes(series) for series in ("crash", "transient", "mobile"))
    nodes = sorted({each for each in found if each is not None and each != CHURN_NODES})
    if not nodes:
        return ""
    return (
        f"<p>The series with crashes, churn and mobility have {_join_and(nodes)} nodes here, not "
        f"{CHURN_NODES} as in the papers. In so small a network nearly all nodes are in range of "
        "each other and little is forwarded: the claims of the papers about these series are "
        "shown beside our numbers, but not judged.</p>"
    )


def _scorecard(lines: Iterable[ScorecardLine]) -> str:
    rows = "".join(
        f'<tr><td class="id">{line.claim}</td>'
        f"<td>{_escape(line.title)}<small>{_escape(line.source)}</small></td>"
        f'<td data-name="papers">{_escape(line.documents)}</td>'
        f'<td data-name="ours">{_escape(line.ours)}</td>'
        f'<td><span class="badge {line.verdict.value.split()[0]}">{line.verdict}</span></td></tr>'
        for line in lines
    )
    heads = "".join(f"<th>{name}</th>" for name in ("", "about", "papers", "ours", "verdict"))
    return (
        f'<div class="card"><table class="scorecard"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _figures(
    tables: EvaluationTables, profile: str, drawings: Sequence[Drawing], heading_suffix: str
) -> Iterator[str]:
    by_group = {
        group: list(some)
        for group, some in groupby(drawings, lambda one: one.number.rstrip("abcdef"))
    }
    for group, title, about in GROUPS:
        if group not in by_group:
            continue
        yield f"<h2>{title}{heading_suffix}</h2><p>{about}</p>"
        yield '<div class="figures">'
        for drawing in by_group[group]:
            wide = ' class="wide"' if group == "9" else ""
            yield (
                f"<figure{wide}><figcaption>{_escape(drawing.title)} <span>F Fig. {drawing.number}"
                f'</span></figcaption><img alt="{_escape(drawing.title)}" '
                f'src="{_data_uri(drawing.svg)}">'
                "</figure>"
            )
        if group == "8":
            yield f'<figure class="wide">{_table_6(tables, profile)}</figure>'
        yield "</div>"


def _data_uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()


FORMULAS = {
    "insert": ("2Dᵢ√n", "–", "2Dᵢ√n + 2Dᵢc"),
    "retrieve": ("2Dᵣ√n", "2Dᵣ√n", "3Dᵣ√n + Dᵣc"),
    "subscribe": ("2S√n", "Sn", "2S√n + Sc"),
    "notification": ("Dₛ√n", "Dₛ√n", "Dₛ√n"),
    "hot_spot": ("Dᵢ + Dᵣ + S + Dₛ", "Dᵣ + S + Dₛ", "Dᵢ + Dᵣ + S + Dₛ"),
}


def _table_6(tables: EvaluationTables, profile: str) -> str:
    """Thyme (journal article), Table 6: formulas, their values at the largest static size, and the
    simulated messages."""
    sizes = tables.x_values("static", profile)
    if not sizes:
        return ""
    size = sizes[-1]
    rows = []
    for part, formulas in FORMULAS.items():
        cells = ""
        for name, formula in zip(SUBSTRATES, formulas, strict=True):
            by_formula, simulated = (
                tables.point_at("static", profile, name, f"{side}.{part}", size)
                for side in ("formula", "simulated")
            )
            cells += (
                f"<td class=formula>{formula}</td><td class=num>{_format_mean(by_formula)}</td>"
                f"<td class=num>{_format_mean(simulated)}</td>"
            )
        rows.append(f"<tr><td class=id>{part.replace('_', ' ')}</td>{cells}</tr>")
    heads = "".join(f'<th colspan="3">{SUBSTRATE_NAMES[name]}</th>' for name in SUBSTRATES)
    below = "<th>formula</th><th class=num>value</th><th class=num>simulated</th>" * 3
    return (
        f"<figcaption>Messages, each hop counted, at {size:.0f} nodes <span>F Table 6</span>"
        '</figcaption><div class="scroll"><table><thead>'
        f"<tr><th></th>{heads}</tr><tr><th></th>{below}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        '<p class="muted">Dᵢ inserted, Dᵣ retrieved, S subscriptions, Dₛ notifications, n nodes '
        "(in DCS cells with nodes), c nodes per cell; values take objects with several tags into "
        "account. The simulated hot spot is the number of messages that the busiest node sends "
        "and receives, routing included.</p>"
    )


def _format_mean(point: Any) -> str:
    return "–" if point is None else f"{point.mean:,.0f}"


def _foot(tables: EvaluationTables) -> Iterator[str]:
    failures = tables.notes["failures"]
    if failures:
        yield "<h2>Failed runs</h2><p>The same command tries them again.</p>"
        rows = "".join(
            f"<tr><td class=id>{_escape(each['run_id'])}</td><td>{_escape(each['error'])}</td></tr>"
            for each in failures
        )
        yield f'<div class="card"><table><tbody>{rows}</tbody></table></div>'
    versions = ", ".join(f"{name} {value}" for name, value in tables.notes["versions"].items())
    runs = [point["runs"] for point in tables.table_rows("points")]
    yield (
        f"<footer><p>Marks in figures are means over {min(runs)} to {max(runs)} runs, bars one "
        "standard deviation. F is the journal article “It's about Thyme”, 2021. The numbers behind "
        "all figures are beside this page in <code>tables/</code>, as CSV and Parquet, the figures "
        f"in <code>figures/</code>.</p><p>Made with {_escape(versions)}.</p></footer>"
    )


def _join_and(values: Sequence[int]) -> str:
    words = [str(value) for value in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _escape(text: object) -> str:
    return html.escape(str(text))
