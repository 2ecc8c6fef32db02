"""thyme query: explains a query, or checks whether tags satisfy it.

`explain` prints the canonical form and its conjunctions; `match` prints the answer and returns it
as the exit status.
Clauses: M5–M9.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag, as_tags
from thyme.query.formula import TEXT_CHARS_MAX
from thyme.query.query import Query

if TYPE_CHECKING:
    from rich.text import Text

    from thyme.cli.subparsers import Subparsers

MATCH, NO_MATCH = 0, 1

LANGUAGE = """\
the language:
  goal & eder        both tags            also: goal and eder, or goal, eder
  eder | ronaldo     at least one         also: eder or ronaldo
  !replay            without this tag     also: not replay
  goal & (a | b)     parentheses group; ! binds tighter than &, & tighter than |

A tag is any word; upper and lower case are the same. Each alternative of a query
needs a tag without '!', because objects are looked up by it. QUERY may be - to read
it from standard input.
"""
EXPLAIN_EXAMPLES = """\
examples:
  thyme query explain 'goal & (eder | ronaldo) & !replay'
  thyme query explain 'not (a or b) and c' --json
"""
MATCH_EXAMPLES = """\
exit status: 0 the tags match, 1 they do not, 2 the query or the tags are invalid

examples:
  thyme query match 'goal & !replay' --tags goal,eder
  thyme query match 'goal & !replay' --tags goal,replay --json
"""


def add_to(commands: Subparsers) -> None:
    """Adds the commands to the parser."""
    group = commands.add_parser(
        "query",
        help="explain a query, or try it on tags",
        description="Explain a query, or try it on the tags of an object.",
        epilog=LANGUAGE,
        formatter_class=RawDescriptionHelpFormatter,
    ).add_subparsers(metavar="COMMAND", required=True)
    explain = _add_parser(group, "explain", "show what a query means", EXPLAIN_EXAMPLES)
    explain.set_defaults(run=explain_command)
    match = _add_parser(group, "match", "check whether tags satisfy a query", MATCH_EXAMPLES)
    match.add_argument(
        "--tags",
        required=True,
        action="append",
        metavar="A,B",
        help="tags of an object, separated by commas",
    )
    match.set_defaults(run=match_command)


def _add_parser(group: Subparsers, name: str, purpose: str, examples: str) -> ArgumentParser:
    parser: ArgumentParser = group.add_parser(
        name,
        help=purpose,
        description=f"{purpose.capitalize()}.",
        epilog=f"{LANGUAGE}\n{examples}",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("query", metavar="QUERY", help="a formula over tags, in single quotes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def explain_command(args: Namespace) -> int:
    """thyme query explain QUERY [--json]"""
    query = Query(_read_query(args.query))
    if args.json:
        conjunctions = [_as_json(conjunction) for conjunction in query.conjunctions]
        print(json.dumps({"canonical": str(query), "conjunctions": conjunctions}))
    else:
        _print_query(query)
    return 0


def match_command(args: Namespace) -> int:
    """thyme query match QUERY --tags A,B [--json]"""
    query = Query(_read_query(args.query))
    tags = as_tags(word.strip() for given in args.tags for word in given.split(","))
    matches = query.matches(tags)
    if args.json:
        verdicts = [_conjunction_result(conjunction, tags) for conjunction in query.conjunctions]
        print(json.dumps({"matches": matches, "tags": tags, "conjunctions": verdicts}))
    else:
        print("yes" if matches else "no")
        for conjunction in query.conjunctions:
            if matches == conjunction.matches(tags):
                print(f"  {conjunction}: {_reason(conjunction, tags)}")
    return MATCH if matches else NO_MATCH


def _read_query(given: str) -> str:
    """The text of the query; from standard input, at most enough to detect excess length."""
    if given != "-":
        return given
    if isinstance(sys.stdin, TextIOWrapper):
        # The parser reports the position of invalid bytes.
        sys.stdin.reconfigure(errors="surrogateescape")
    return sys.stdin.read(16 * TEXT_CHARS_MAX).rstrip()


def _as_json(conjunction: Conjunction) -> dict[str, Any]:
    return {"positive": conjunction.positive, "negative": conjunction.negative}


def _conjunction_result(conjunction: Conjunction, tags: tuple[Tag, ...]) -> dict[str, Any]:
    return {
        **_as_json(conjunction),
        "matches": conjunction.matches(tags),
        "lacking": _missing_tags(conjunction, tags),
        "unwanted": _excluded_tags(conjunction, tags),
    }


def _reason(conjunction: Conjunction, tags: tuple[Tag, ...]) -> str:
    why = [f"lacks {tag}" for tag in _missing_tags(conjunction, tags)]
    why += [f"has {tag}" for tag in _excluded_tags(conjunction, tags)]
    return " and ".join(why) or "holds"


def _missing_tags(conjunction: Conjunction, tags: Iterable[str]) -> list[Tag]:
    return [tag for tag in conjunction.positive if tag not in tags]


def _excluded_tags(conjunction: Conjunction, tags: Iterable[str]) -> list[Tag]:
    return [tag for tag in conjunction.negative if tag in tags]


def _print_query(query: Query) -> None:
    """Prints a query as text. Rich is imported here because it is slow to load."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from thyme.cli.terminal import Terminal

    console = Terminal()
    console.print(Text.assemble(("canonical form\n  ", "bold"), _colour(str(query)), "\n"))
    table = Table("", "conjunction", "keys: found by any of", box=SIMPLE_HEAD, show_edge=False)
    for number, conjunction in enumerate(query.conjunctions, start=1):
        keys = Text(", ".join(conjunction.positive), "green")
        table.add_row(str(number), _colour(str(conjunction)), keys)
    console.print(table)


def _colour(formula: str) -> Text:
    from rich.text import Text

    text = Text(formula)
    text.highlight_regex(r"![^ ]+", "red")
    text.highlight_regex(r" [&|] ", "dim")
    return text
