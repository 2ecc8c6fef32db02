"""Golden strings: names that other programs use, and that no renaming may change.

Identifiers of runs, columns, metrics, HTTP, options of commands, log events, codes of failures.
Prose (help, descriptions) may change.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

from pyspark.sql.types import StructType

import thyme
from tests.daemon.pages import Pages, a_node
from tests.golden.frozen import Frozen, digest
from tests.wire.test_schema import GOLDEN
from thyme.cli import _parser
from thyme.daemon import openapi
from thyme.model.errors import ThymeError
from thyme.model.time_frames import SECOND_US
from thyme.pipeline import schemas
from thyme.pipeline.sweep.run_schemas import RUN_TABLES
from thyme.pipeline.sweep.runs.planned_run import PlannedRun
from thyme.protocol.messages.description import innermost, is_routing_control, kind_of
from thyme.sim.measurement.measurements import PARTS
from thyme.sim.results import tables
from thyme.sim.scenario import Profile, Scenario, Series, Substrate, Timeline, synthetic_trace
from thyme.traces.retrieve_behaviour import RetrieveBehaviour
from thyme.traces.row_codec import COLUMNS, operation_to_row
from thyme.traces.trace_files import rows_to_csv
from thyme.wire.codec import encode

FILE = "strings.json"
SOURCE = Path(thyme.__file__).parent
LOGS = {"log_event", "log_warning"}
"""The functions that write to the log."""


def test_a_planned_run_has_the_identifier_it_always_had(frozen: Frozen) -> None:
    plain = Scenario(substrate=Substrate.LS, topology=1)
    special = Scenario(
        substrate=Substrate.DCS,
        nodes=36,
        kind=Series.MOBILE,
        profile=Profile.ROBUST,
        area_m=(160.0, 80.0),
        failing=0.4,
        speed_m_s=2.5,
        reaction=RetrieveBehaviour(probability=0.5, within_us=SECOND_US),
        seed=3,
        topology=2,
        timeline=Timeline(operations_us=300 * SECOND_US, quiet_us=30 * SECOND_US),
    )
    found = [
        PlannedRun(scenario=it, trace_file="here", trace_digest="00ff", version="0").run_id
        for it in (plain, special)
    ]

    frozen.check(FILE, "run ids", found)


def test_the_synthetic_trace_of_a_scenario_is_as_ever(frozen: Frozen) -> None:
    found = {}
    for kind in (Series.STATIC, Series.CRASH):
        trace = synthetic_trace(Scenario(substrate=Substrate.LS, nodes=16, kind=kind))
        found[str(kind)] = digest(rows_to_csv(map(operation_to_row, trace.operations)))

    frozen.check(FILE, "synthetic traces", found)


def test_result_tables_have_the_columns_they_always_had(frozen: Frozen) -> None:
    frozen.check(FILE, "files of a run", sorted(tables.RESULT_FILES))
    frozen.check(
        FILE, "columns of a run", {name: list(of) for name, of in tables.TABLE_COLUMNS.items()}
    )
    frozen.check(FILE, "columns of a trace", list(COLUMNS))
    arrow = {
        **{f"runs/{name}": schema for name, schema in RUN_TABLES.items()},
        "trace_counts": schemas.TRACE_COUNTS,
        "timeline": schemas.TIMELINE,
    }
    fields = {
        name: [f"{field.name}: {field.type}" for field in schema] for name, schema in arrow.items()
    }
    frozen.check(FILE, "columns of files of a sweep", fields)
    spark = sorted(
        schema.simpleString() for schema in vars(schemas).values() if type(schema) is StructType
    )
    frozen.check(FILE, "columns of stages", spark)


def test_messages_have_the_labels_they_always_had(frozen: Frozen) -> None:
    """The labels of messages in tables and recordings, by message number, and their operations."""
    found = {}
    for message, _ in GOLDEN:
        label = kind_of(message)
        part = PARTS[innermost(label)]
        kind = "routing control" if is_routing_control(label) else part
        found[str(encode(message)[2])] = [label, kind]

    frozen.check(FILE, "labels of messages", found)


# HTTP


def named(document: Any) -> Any:
    """A description without its prose."""
    match document:
        case dict():
            return {
                name: named(value)
                for name, value in document.items()
                if not (name in {"description", "summary", "version"} and isinstance(value, str))
            }
        case list():
            return [named(each) for each in document]
    return document


def test_the_description_of_the_pages_is_as_ever(frozen: Frozen) -> None:
    found = json.loads(json.dumps(named(openapi.build_document())))

    frozen.check(FILE, "openapi paths", found["paths"])
    frozen.check(FILE, "openapi schemas", found["components"]["schemas"])


async def use(node: Pages) -> tuple[Any, str]:
    """Executes every operation once, and one that fails; returns metrics and status of the node."""
    _, made = await node.ask("POST", "/v1/objects?tags=goal", data=b"x")
    key = made["key"]
    await node.ask("GET", "/v1/objects?query=goal")
    await node.ask("GET", f"/v1/objects/{key}")
    await node.ask("GET", f"/v1/objects/{key}/metadata")
    wish = {"query": "goal", "batch": 1}
    _, standing = await node.ask("POST", "/v1/subscriptions", json=wish)
    path = f"/v1/subscriptions/{standing['sid']}"
    await node.ask("GET", "/v1/subscriptions")
    for _ in range(2):  # the second application resumes the subscription
        async with node.session.get(f"{node.url}{path}/events") as response:
            await asyncio.wait_for(response.content.readline(), 10)
        await asyncio.sleep(0.1)
        await node.ask("POST", "/v1/objects?tags=goal", data=b"x")
    await node.ask("POST", f"{path}/more", json={"count": 1})
    await node.ask("DELETE", path)
    await node.ask("DELETE", path)
    await node.ask("DELETE", f"/v1/objects/{key}")
    await node.ask("DELETE", "/v1/objects/photo@ff")
    await node.ask("POST", "/v1/objects?tags=goal&copies=9", data=b"x")
    _, status = await node.ask("GET", "/v1/status")
    _, metrics = await node.ask("GET", "/metrics")
    return status, metrics.decode()


def test_metrics_and_status_have_the_names_they_always_had(frozen: Frozen) -> None:
    async def story() -> tuple[Any, str]:
        async with a_node(substrate="es") as node:
            return await use(node)

    status, metrics = asyncio.run(story())
    del status["dropped"]  # the drop counters depend on other programs on this machine

    types = sorted(line for line in metrics.splitlines() if line.startswith("# TYPE "))
    samples = {line.rpartition(" ")[0] for line in metrics.splitlines() if line[0] != "#"}
    frozen.check(FILE, "metrics", types)
    frozen.check(FILE, "samples of metrics", sorted(samples))
    frozen.check(FILE, "status", shape(status))


def shape(value: Any) -> Any:
    """The names in a JSON object, and the type of each value."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    return type(value).__name__


# Commands and logs


def options_of(parser: ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    """The options and arguments of a command, and of its subcommands."""
    words: list[str] = []
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for below in action.choices.values():
                yield from options_of(below)
        else:
            words += action.option_strings or [str(action.metavar or action.dest)]
    yield parser.prog, sorted(words)


def test_commands_have_the_options_they_always_had(frozen: Frozen) -> None:
    frozen.check(FILE, "commands", dict(sorted(options_of(_parser()))))


def test_environment_variables_are_as_ever(frozen: Frozen) -> None:
    texts = (path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))

    found = {name for text in texts for name in re.findall(r"\bTHYME_[A-Z_]+\b", text)}
    frozen.check(FILE, "environment", sorted(found))


def test_log_events_have_the_names_they_always_had(frozen: Frozen) -> None:
    calls = [
        node
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LOGS
    ]
    found = {
        node.args[0].value: [keyword.arg for keyword in node.keywords]
        for node in calls
        if isinstance(node.args[0], ast.Constant)
    }

    frozen.check(FILE, "log events", dict(sorted(found.items())))


def test_failures_have_the_codes_they_always_had(frozen: Frozen) -> None:
    for module in walk_packages(thyme.__path__, "thyme."):
        if not module.name.endswith("__main__"):
            import_module(module.name)

    frozen.check(FILE, "codes of failures", sorted({each.code for each in errors(ThymeError)}))


def errors(kind: type[ThymeError]) -> Iterator[type[ThymeError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__.startswith("thyme."):
            yield from errors(below)
