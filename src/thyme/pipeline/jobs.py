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
from thyme.pipeline.posts.formats import PostReader
from thyme.pipeline.posts.sources import invalid_rows, load_raw_rows, parse_rows, valid_posts
from thyme.pipeline.posts.synthetic import synthetic_posts
from thyme.pipeline.schemas import OPERATIONS, POSTS
from thyme.pipeline.traces import operations_from_posts, trace_to_table
from thyme.pipeline.warehouse import Draft, Stage, Warehouse, files_fingerprint
from thyme.traces.football_match import FootballMatchConfig
from thyme.traces.lecture_trace import LectureConfig, lecture_trace
from thyme.traces.posts_to_trace import JOURNAL_RULES, TraceRules
from thyme.traces.trace import KINDS


def import_posts(
    spark: SparkSession, warehouse: Warehouse, files: Sequence[str], reader: PostReader
) -> Stage:
    """Imports posts from files; rows that are not posts go to the quarantine (P1, P2)."""
    config = {name: value for name, value in _as_json(reader).items() if name != "now_us"}

    def build(draft: Draft) -> None:
        raw = load_raw_rows(spark, files, reader)
        rows = parse_rows(raw, reader).persist(StorageLevel.DISK_ONLY)
        draft.write("posts", valid_posts(rows), order=("at_us", "post_id"))
        draft.write("quarantine", invalid_rows(rows), order=("source", "reason", "raw"))
        reasons = invalid_rows(rows).groupBy("reason").count().orderBy("reason").collect()
        counts = {row["reason"]: row["count"] for row in reasons}
        untagged = valid_posts(rows).where(F.size("tags") == 0).count()
        kept = rows.where("reason IS NULL").count()
        zone_assumed = rows.where("reason IS NULL AND zone_assumed").count()
        rows.unpersist()
        rows_in = raw.count()
        if rows_in != kept + sum(counts.values()):
            raise InputError(
                f"{rows_in} rows were read, but {kept} + {sum(counts.values())} written"
            )
        if not rows_in:
            raise InputError(f"there is no row in {', '.join(files)}; check the files and --format")
        draft.add_notes(
            rows_in=rows_in,
            untagged=untagged,
            zone_assumed=zone_assumed,
            quarantined=counts,
            now_us=reader.now_us,
        )

    inputs = {"files": _fingerprint_files(spark, files)}
    return warehouse.get_or_build("posts", {"source": "files", **config}, inputs, build)


def generate_posts(
    spark: SparkSession, warehouse: Warehouse, seed: int, config: FootballMatchConfig
) -> Stage:
    """Generates the posts of a synthetic football match (P1)."""

    def build(draft: Draft) -> None:
        draft.write("posts", synthetic_posts(spark, seed, config))

    settings = {"source": "match", "seed": seed, **_as_json(config)}
    return warehouse.get_or_build("posts", settings, {}, build)


def build_trace(
    spark: SparkSession,
    warehouse: Warehouse,
    posts: Stage,
    users: int,
    seed: int,
    rules: TraceRules = JOURNAL_RULES,
    publishers_share: float | None = None,
) -> Stage:
    """Builds the trace of the most active users (P3)."""

    def build(draft: Draft) -> None:
        table = spark.read.schema(POSTS).parquet(posts.table_path("posts"))
        draft.write(
            "operations", operations_from_posts(table, users, seed, rules, publishers_share)
        )
        made = spark.read.schema(OPERATIONS).parquet(str(draft.path("operations")))
        draft.add_notes(users=users, operations=_count_kinds(made))

    config = {"users": users, "seed": seed, "publishers_share": publishers_share}
    inputs = {"posts": posts.fingerprint}
    return warehouse.get_or_build("trace", {**config, "rules": _as_json(rules)}, inputs, build)


def build_lecture_trace(
    spark: SparkSession, warehouse: Warehouse, seed: int, config: LectureConfig
) -> Stage:
    """Draws the trace of a lecture (S13)."""

    def build(draft: Draft) -> None:
        trace = lecture_trace(seed, config)
        draft.write("operations", trace_to_table(spark, trace), files=1)
        draft.add_notes(users=config.users, operations=trace.counts())

    settings = {"source": "lecture", "seed": seed, **_as_json(config)}
    return warehouse.get_or_build("trace", settings, {}, build)


def compute_oracle(spark: SparkSession, warehouse: Warehouse, trace: Stage) -> Stage:
    """Computes the notifications of a perfect execution of a trace (P4)."""

    def build(draft: Draft) -> None:
        operations = spark.read.schema(OPERATIONS).parquet(trace.table_path("operations"))
        draft.write("notifications", expected_notifications(operations), order=ORDER)

    return warehouse.get_or_build("oracle", {}, {"trace": trace.fingerprint}, build)


def _count_kinds(operations: DataFrame) -> dict[str, int]:
    found = {row["op"]: row["count"] for row in operations.groupBy("op").count().collect()}
    return {kind: found.get(kind, 0) for kind in KINDS}


def _as_json(config: msgspec.Struct) -> dict[str, object]:
    """Converts a configuration to JSON values, so that it equals its copy in the manifest."""
    values: dict[str, object] = msgspec.json.decode(msgspec.json.encode(config))
    return values


def _fingerprint_files(spark: SparkSession, files: Sequence[str]) -> str:
    """Fingerprint of local files by content; of remote files by size and modification time."""
    here = [path for path in files if "://" not in path]
    parts = [files_fingerprint(here)]
    if away := [path for path in files if "://" in path]:
        facts = spark.read.format("binaryFile").load(away)
        rows = facts.select("path", "length", F.unix_micros("modificationTime")).collect()
        parts += sorted(str(tuple(row)) for row in rows)
    return " ".join(parts)
