"""Shared parts of the pipeline commands: options, the Spark session, the printed result."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.distribution import install_hint
from thyme.model.errors import OptionError, safe_repr

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
        "--out", metavar="DIR", type=Path, required=True, help="warehouse (folder) to write to"
    )
    parser.add_argument(
        "--master",
        metavar="URL",
        default="local[*]",
        help="Spark master URL (default: all cores of this machine)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


@contextmanager
def open_session(args: Namespace) -> Iterator[SparkSession]:
    """The active Spark session, or a new one for this command; errors of Spark are shortened to a
    line or two."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from thyme.pipeline.session import SparkError, spark_session

    running = SparkSession.getActiveSession()
    spark = running or spark_session(args.master)
    try:
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
            "folder": str(stage.folder),
            "made_now": stage.built_now,
            "fingerprint": manifest.fingerprint,
            "rows": {name: table.rows for name, table in manifest.tables.items()},
            **manifest.notes,
        }
        print(json.dumps(facts))
        return 0
    for name, table in manifest.tables.items():
        files = "1 file" if table.files == 1 else f"{table.files} files"
        print(f"{stage.folder / name}: {table.rows:,} rows in {files}, {table.bytes:,} bytes")
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
