"""Jobs: run the stages posts, trace and oracle of the pipeline and store their tables.

Each function returns the finished stage, newly built or found in the warehouse. Reading and writing
happen here; the pure transformations are in `posts`, `traces` and `oracle`.
Clauses: P1–P4, P10.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.storagelevel import StorageLevel

from thyme.model.errors import InputError
from thyme.pipeline.oracle import ORDER, expected_notifications
from thyme.pipeline.reading import Reader
from thyme.pipeline.schemas import OPERATIONS, POSTS
from thyme.pipeline.sources import kept_posts, quarantined, raw_rows, read_rows
from thyme.pipeline.synth import synthetic_posts
from thyme.pipeline.traces import match_operations
from thyme.pipeline.warehouse import Draft, Stage, Warehouse, fingerprint_of_files
from thyme.traces.match import MatchConfig
from thyme.traces.rules import F_RULES, Rules
from thyme.traces.trace import KINDS


def import_posts(
    spark: SparkSession, warehouse: Warehouse, files: Sequence[str], reader: Reader
) -> Stage:
    """Imports posts from files; rows that are not posts go to the quarantine (P1, P2)."""
    config = {name: value for name, value in _plain(reader).items() if name != "now_us"}

    def build(draft: Draft) -> None:
        raw = raw_rows(spark, files, reader)
        rows = read_rows(raw, reader).persist(StorageLevel.DISK_ONLY)
        draft.write("posts", kept_posts(rows), order=("at_us", "post_id"))
        draft.write("quarantine", quarantined(rows), order=("source", "reason", "raw"))
        reasons = quarantined(rows).groupBy("reason").count().orderBy("reason").collect()
        counts = {row["reason"]: row["count"] for row in reasons}
        untagged = kept_posts(rows).where(F.size("tags") == 0).count()
        kept = rows.where("reason IS NULL").count()
        rows.unpersist()
        rows_in = raw.count()
        if rows_in != kept + sum(counts.values()):
            raise InputError(
                f"{rows_in} rows were read, but {kept} + {sum(counts.values())} written"
            )
        if not rows_in:
            raise InputError(f"there is no row in {', '.join(files)}; check the files and --format")
        draft.note(rows_in=rows_in, untagged=untagged, quarantined=counts, now_us=reader.now_us)

    inputs = {"files": _fingerprint(spark, files)}
    return warehouse.stage("posts", {"source": "files", **config}, inputs, build)


def synthesise_posts(
    spark: SparkSession, warehouse: Warehouse, seed: int, config: MatchConfig
) -> Stage:
    """Generates the posts of a synthetic football match (P1)."""

    def build(draft: Draft) -> None:
        draft.write("posts", synthetic_posts(spark, seed, config))

    settings = {"source": "match", "seed": seed, **_plain(config)}
    return warehouse.stage("posts", settings, {}, build)


def build_trace(
    spark: SparkSession,
    warehouse: Warehouse,
    posts: Stage,
    users: int,
    seed: int,
    rules: Rules = F_RULES,
    publishers_share: float | None = None,
) -> Stage:
    """Builds the trace of the most active users (P3)."""

    def build(draft: Draft) -> None:
        table = spark.read.schema(POSTS).parquet(posts.table("posts"))
        draft.write("operations", match_operations(table, users, seed, rules, publishers_share))
        made = spark.read.schema(OPERATIONS).parquet(str(draft.path("operations")))
        draft.note(users=users, operations=_kinds(made))

    config = {"users": users, "seed": seed, "publishers_share": publishers_share}
    inputs = {"posts": posts.fingerprint}
    return warehouse.stage("trace", {**config, "rules": _plain(rules)}, inputs, build)


def ask_oracle(spark: SparkSession, warehouse: Warehouse, trace: Stage) -> Stage:
    """Computes the notifications of a perfect execution of a trace (P4)."""

    def build(draft: Draft) -> None:
        operations = spark.read.schema(OPERATIONS).parquet(trace.table("operations"))
        draft.write("notifications", expected_notifications(operations), order=ORDER)

    return warehouse.stage("oracle", {}, {"trace": trace.fingerprint}, build)


def _kinds(operations: DataFrame) -> dict[str, int]:
    found = {row["op"]: row["count"] for row in operations.groupBy("op").count().collect()}
    return {kind: found.get(kind, 0) for kind in KINDS}


def _plain(config: msgspec.Struct) -> dict[str, object]:
    """Converts a configuration to JSON values, so that it equals its copy in the manifest."""
    plain: dict[str, object] = msgspec.json.decode(msgspec.json.encode(config))
    return plain


def _fingerprint(spark: SparkSession, files: Sequence[str]) -> str:
    """Fingerprint of local files by content; of remote files by size and modification time."""
    here = [path for path in files if "://" not in path]
    parts = [fingerprint_of_files(here)]
    if away := [path for path in files if "://" in path]:
        facts = spark.read.format("binaryFile").load(away)
        rows = facts.select("path", "length", F.unix_micros("modificationTime")).collect()
        parts += sorted(str(tuple(row)) for row in rows)
    return " ".join(parts)
