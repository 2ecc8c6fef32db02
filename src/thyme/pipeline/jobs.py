"""Jobs: run the stages posts, trace and oracle of the pipeline and store their tables.

Each function returns the finished stage, newly built or found in the warehouse. Reading and writing
happen here; the pure transformations are in `posts`, `traces` and `oracle`.
Clauses: P1–P4, P10.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from pyspark.sql import DataFrame, SparkSession

from thyme.pipeline.oracle import ORDER, NotificationJoin
from thyme.pipeline.posts import compaction
from thyme.pipeline.posts.formats import PostReader
from thyme.pipeline.posts.importing import InputFile, PostImport, find_input_files
from thyme.pipeline.posts.synthetic import synthetic_posts
from thyme.pipeline.schemas import NOTIFICATIONS, OPERATIONS, POSTS
from thyme.pipeline.session import partition_by_size
from thyme.pipeline.tables import Sample, sampling_rate
from thyme.pipeline.traces import StoreTable, operations_from_posts, trace_to_table
from thyme.pipeline.warehouse import Draft, Stage, Warehouse, stage_fingerprint
from thyme.sim.encounters.mobuser_trace import MobUserPopulation, mobuser_trace
from thyme.traces.posts_to_trace import JOURNAL_RULES, TraceRules
from thyme.traces.synthetic.football_match import FootballMatchConfig
from thyme.traces.synthetic.lecture_trace import LectureConfig, lecture_trace
from thyme.traces.trace import KINDS

_NOTIFICATIONS_PER_FILE = 500_000
_UNPACKED = 6
"""Rough size of a compressed file's contents, in its own size."""


def import_posts(
    spark: SparkSession,
    warehouse: Warehouse,
    files: Sequence[str],
    reader: PostReader,
    *,
    replace: bool = False,
) -> Stage:
    """Imports posts from files; rows that are not posts go to the quarantine (P1, P2).

    Files are added to those of earlier imports, each once, or with `replace` take their place.
    """
    found = find_input_files(spark, files)
    current = warehouse.find_stage("posts")
    base = None if replace or current is None else current if _is_import(current) else None
    job = PostImport(spark, found, reader, base)
    if base is not None and not job.files:
        return base
    config = {
        "source": "files",
        **{name: value for name, value in _as_json(reader).items() if name != "now_us"},
    }
    listed = blake2b(msgspec.json.encode(job.files), digest_size=16).hexdigest()
    inputs = {"files": listed, "earlier": base.fingerprint if base else ""}
    partition_by_size(spark, sum(_unpacked_bytes(each) for each in job.files))
    fingerprint = stage_fingerprint("posts", config, inputs)
    return warehouse.commit("posts", fingerprint, config, inputs, job.build, base)


def compact_posts(spark: SparkSession, warehouse: Warehouse) -> Stage:
    """Merges the small files that many imports left; the rows stay the same (P10)."""
    base = warehouse.open_stage("posts")
    if not compaction.has_small_files(base):
        return base

    def build(draft: Draft) -> None:
        compaction.compact_posts(spark, draft, base)
        draft.add_notes(**base.manifest.notes)

    manifest = base.manifest
    return warehouse.commit(
        "posts", base.fingerprint, manifest.config, manifest.inputs, build, base
    )


def _is_import(stage: Stage) -> bool:
    return stage.manifest.config.get("source") == "files"


def _unpacked_bytes(file: InputFile) -> int:
    return file.bytes * (_UNPACKED if file.file.endswith((".gz", ".parquet")) else 1)


def generate_posts(
    spark: SparkSession, warehouse: Warehouse, seed: int, config: FootballMatchConfig
) -> Stage:
    """Generates the posts of a synthetic football match (P1)."""

    def build(draft: Draft) -> None:
        draft.write("posts", synthetic_posts(spark, seed, config), schema=POSTS)

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
        partition_by_size(spark, _UNPACKED * posts.manifest.tables["posts"].bytes)
        window_us = rules.timetable.starts_us, rules.timetable.ends_us
        table = posts.read(spark, "posts", POSTS, window_us)

        store = _store_in(spark, draft)
        operations = operations_from_posts(table, users, seed, rules, publishers_share, store)
        draft.write("operations", operations, schema=OPERATIONS, distinct=("oid", "text"))
        made = draft.read(spark, "operations", OPERATIONS)
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
        draft.write("operations", trace_to_table(spark, trace), files=1, schema=OPERATIONS)
        draft.add_notes(users=config.users, operations=trace.counts())

    settings = {"source": "lecture", "seed": seed, **_as_json(config)}
    return warehouse.get_or_build("trace", settings, {}, build)


def build_mobuser_trace(
    spark: SparkSession, warehouse: Warehouse, seed: int, config: MobUserPopulation
) -> Stage:
    """Draws the trace of the users of the MobUser paper (U9)."""

    def build(draft: Draft) -> None:
        trace = mobuser_trace(seed, config)
        draft.write("operations", trace_to_table(spark, trace), files=1, schema=OPERATIONS)
        draft.add_notes(users=config.users, operations=trace.counts())

    settings = {"source": "mobuser", "seed": seed, **_as_json(config)}
    return warehouse.get_or_build("trace", settings, {}, build)


def compute_oracle(spark: SparkSession, warehouse: Warehouse, trace: Stage) -> Stage:
    """Computes the notifications of a perfect execution of a trace (P4)."""

    def build(draft: Draft) -> None:
        partition_by_size(spark, _UNPACKED * trace.manifest.tables["operations"].bytes)
        operations = trace.read(spark, "operations", OPERATIONS)
        counts: dict[str, int] = trace.manifest.notes["operations"]
        asking = sum(count for kind, count in counts.items() if kind != "insert")
        join = NotificationJoin(operations, asking, _store_in(spark, draft))
        one_in = sampling_rate(counts["insert"])
        sample = Sample(join.notifications(one_in), one_in)
        expected = join.notifications()
        draft.write(
            "notifications",
            expected,
            order=ORDER,
            schema=NOTIFICATIONS,
            sample=sample,
            rows_per_file=_NOTIFICATIONS_PER_FILE,
        )

    return warehouse.get_or_build("oracle", {}, {"trace": trace.fingerprint}, build)


def _store_in(spark: SparkSession, draft: Draft) -> StoreTable:
    """Keeps frames as intermediate results of a build."""

    def store(name: str, frame: DataFrame) -> DataFrame:
        draft.write_scratch(name, frame)
        return draft.read_scratch(spark, name, frame.schema)

    return store


def _count_kinds(operations: DataFrame) -> dict[str, int]:
    found = {row["op"]: row["count"] for row in operations.groupBy("op").count().collect()}
    return {kind: found.get(kind, 0) for kind in KINDS}


def _as_json(config: msgspec.Struct) -> dict[str, object]:
    """Converts a configuration to JSON values, so that it equals its copy in the manifest."""
    values: dict[str, object] = msgspec.json.decode(msgspec.json.encode(config))
    return values
