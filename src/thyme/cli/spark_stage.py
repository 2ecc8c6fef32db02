"""What the commands of the pipeline share: options, a session that ends, and what they print."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.model.errors import OptionError, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from thyme.pipeline.warehouse import Stage


def add_options(parser: ArgumentParser) -> None:
    """The options that every stage has."""
    parser.add_argument(
        "--out", metavar="DIR", type=Path, required=True, help="the warehouse to write to"
    )
    parser.add_argument(
        "--master", metavar="URL", default="local[*]", help="where Spark runs; default: here"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


@contextmanager
def session(args: Namespace) -> Iterator[SparkSession]:
    """The session that runs already, or one for this command; troubles of a task are told in a
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
        raise SparkError(f"Spark gave up: {told(str(error))}") from error
    finally:
        if running is None:
            spark.stop()


def told(text: str, most: int = 400) -> str:
    """The first lines of what Java says, without where in its source it says so."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = " ".join(line for line in lines if not line.startswith(("at ", "...", "Traceback")))
    return said if len(said) <= most else f"{said[:most]}…"


def whole(parser: ArgumentParser, option: str, text: str, default: int | None = None) -> None:
    """An option that is a whole number."""
    name = option.removeprefix("--")
    more = "" if default is None else f"; default: {default:,}"
    parser.add_argument(
        option, metavar="N", type=int, default=default, required=default is None, help=text + more,
        dest=name,
    )  # fmt: skip


def show(args: Namespace, stage: Stage, lines: Callable[[], Iterator[str]] | None = None) -> int:
    """Says what was written, for people or for programs."""
    manifest = stage.manifest
    if args.json:
        facts = {
            "stage": manifest.stage,
            "folder": str(stage.folder),
            "made_now": stage.made_now,
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
    if not stage.made_now:
        print("(was there already, made from the same)")
    return 0


def pairs(text: str, option: str) -> dict[str, str]:
    """`a=b,c=d` as a dictionary."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, sign, value = part.partition("=")
        if not (name and sign and value):
            raise OptionError(f"{option} is name=column,…, not {shown(text)}")
        found[name.strip()] = value.strip()
    return found
