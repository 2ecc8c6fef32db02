"""Shared parts of the pipeline commands: options, the Spark session, the printed result."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from thyme.distribution import install_hint
from thyme.model.errors import OptionError, safe_repr
from thyme.pipeline.storage import local_path, spark_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from thyme.pipeline.warehouse import Stage


def require_report() -> None:
    """Raises `OptionError` if a package of the report is not installed."""
    for name in ("matplotlib", "pyarrow", "jinja2", "scipy"):
        if find_spec(name) is None:
            raise OptionError(f"the report needs {name}: {install_hint('report')}")


def require_evaluation() -> None:
    """Raises `OptionError` if a package of the pipeline or of the report is not installed."""
    for name in ("pyspark", "pandas", "matplotlib", "pyarrow", "jinja2", "scipy"):
        if find_spec(name) is None:
            raise OptionError(f"the evaluation needs {name}: {install_hint('pipeline,report')}")


def add_options(parser: ArgumentParser) -> None:
    """Adds the options that all stages share."""
    parser.add_argument(
        "--out",
        metavar="W",
        required=True,
        help="warehouse to write to: a folder, or a URI (hdfs://…, s3a://…, abfs://…)",
    )
    add_session_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_session_options(parser: ArgumentParser) -> None:
    """Adds the options of the Spark session."""
    parser.add_argument(
        "--master",
        metavar="URL",
        help="Spark master URL, or sc://host:port (default: as Spark is configured, else all cores "
        "of this machine)",
    )
    parser.add_argument(
        "--conf",
        metavar="K=V",
        action="append",
        default=[],
        help="a setting of Spark; may be repeated",
    )
    parser.add_argument(
        "--event-log", metavar="DIR", help="folder for Spark's event log, for its history server"
    )


def session_settings(args: Namespace) -> dict[str, str]:
    """The settings of Spark that the options give."""
    found: dict[str, str] = {}
    for text in args.conf:
        name, sign, value = text.partition("=")
        if not (sign and name.startswith("spark.")):
            raise OptionError(f"--conf is spark.NAME=VALUE, not {safe_repr(text)}")
        found[name.strip()] = value
    if args.event_log:
        folder = local_path(args.event_log)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        where = args.event_log if folder is None else spark_path(folder)
        found |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": where}
    return found


def check_stage(place: str, stage: str) -> None:
    """Raises `WarehouseError` if a local warehouse lacks a stage, before Spark starts."""
    from thyme.pipeline.warehouse import Warehouse

    warehouse = Warehouse(place)
    if warehouse.is_local:
        warehouse.open_stage(stage)


@contextmanager
def open_session(
    args: Namespace, defaults: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """The active Spark session, or a new one for this command, whose settings the options give,
    else `defaults`; errors of Spark are shortened to a line or two."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from thyme.pipeline.session import SparkError, required_settings, spark_session, ui_address

    settings = {**(defaults or {}), **session_settings(args)}
    running = SparkSession.getActiveSession()
    spark = running or spark_session(args.master, settings)
    if running is None and (address := ui_address(spark)) and sys.stderr.isatty():
        print(f"Spark's jobs: {address}", file=sys.stderr)
    try:
        with required_settings(spark):
            yield spark
    except (PySparkException, Py4JError) as error:
        raise SparkError(f"Spark failed: {summarise_java_error(str(error))}") from error
    finally:
        if running is None:
            spark.stop()


def summarise_java_error(text: str, length_max: int = 400) -> str:
    """The first lines of a Java error message, without its stack trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    summary = " ".join(line for line in lines if not line.startswith(("at ", "...", "Traceback")))
    return summary if len(summary) <= length_max else f"{summary[:length_max]}…"


def add_integer(parser: ArgumentParser, option: str, text: str, default: int | None = None) -> None:
    """Adds an option that takes an integer."""
    name = option.removeprefix("--")
    more = "" if default is None else f" (default: {default:,})"
    parser.add_argument(
        option, metavar="N", type=int, default=default, required=default is None, help=text + more,
        dest=name,
    )  # fmt: skip


def print_stage(
    args: Namespace, stage: Stage, lines: Callable[[], Iterator[str]] | None = None
) -> int:
    """Prints the tables of a stage, as text or as JSON."""
    manifest = stage.manifest
    if args.json:
        facts = {
            "stage": manifest.stage,
            "folder": stage.folder,
            "made_now": stage.built_now,
            "fingerprint": manifest.fingerprint,
            "rows": {name: table.rows for name, table in manifest.tables.items()},
            **manifest.notes,
        }
        print(json.dumps(facts))
        return 0
    for name, table in manifest.tables.items():
        count = len(table.files)
        files = "1 file" if count == 1 else f"{count} files"
        print(f"{stage.folder}/{name}: {table.rows:,} rows in {files}, {table.bytes:,} bytes")
    for line in lines() if lines else ():
        print(line)
    if not stage.built_now:
        print("(already built from the same configuration and inputs)")
    return 0


def parse_pairs(text: str, option: str) -> dict[str, str]:
    """Parses `a=b,c=d` into a dictionary."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, sign, value = part.partition("=")
        if not (name and sign and value):
            raise OptionError(f"{option} is name=column,…, not {safe_repr(text)}")
        found[name.strip()] = value.strip()
    return found
