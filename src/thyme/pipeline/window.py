"""The window: the hours of an event that a trace covers, found from the posts.

Entry point: `find_window`, which builds the stage `window`: the timetable, the numbers of posts and
users, and a histogram of the posts over time. `complete_timetable` decides; this module counts, in
Spark, by minutes. The timetable of a synthetic match is known (`known_timetable`).
Clauses: P3, P8, P10.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from itertools import accumulate
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.storagelevel import StorageLevel

from thyme.model.errors import InputError
from thyme.model.time_frames import SECOND_US
from thyme.pipeline.schemas import HISTOGRAM, POSTS, select_schema
from thyme.pipeline.warehouse import Draft, Stage, Warehouse, stage_fingerprint
from thyme.traces.timetable import (
    HOUR_S,
    MINUTE_S,
    MINUTE_US,
    Timetable,
    TimetableChoice,
    complete_timetable,
)

WINDOW_STAGE = "window"
TOP_USERS = 200
"""Number of users whose tags are counted: as many as the largest network of an evaluation has."""
BINS_MAX = 240
_BIN_MINUTES = (
    1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720,
    *(1440 * days for days in (1, 2, 7, 14, 30, 90, 365, 3650)),
)  # fmt: skip


class WindowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the stage `window`. Users and `tagged` posts are those with tags."""

    timetable: Timetable
    posts: int
    tagged: int
    users: int
    first_us: int
    last_us: int
    """First and last minute with a post."""
    window_tagged: int
    window_users: int
    bin_s: int
    """Length of the time spans of the histogram."""
    top_tags: tuple[int, ...] = ()
    """Number of tags in the window of the most active user, of the two most active ones, and so on
    up to TOP_USERS; a tag counts once for each post."""

    def one_in(self, users: int, tags_max: int) -> int:
        """One in how many posts of the most active users have at most so many tags together."""
        if not self.top_tags:
            return 1
        tags = self.top_tags[min(users, len(self.top_tags)) - 1]
        return max(1, -(-tags // tags_max))


def find_window(
    spark: SparkSession, warehouse: Warehouse, posts: Stage, choice: TimetableChoice
) -> Stage:
    """Finds the hours to observe in the posts; with an empty choice, the busiest three (P3)."""

    def build(draft: Draft) -> None:
        table = posts.read(spark, "posts", POSTS)
        facts, histogram = measure_window(table, choice)
        draft.write("histogram", histogram, files=1)
        draft.add_notes(**msgspec.to_builtins(facts))

    return warehouse.get_or_build(WINDOW_STAGE, *_stage_inputs(posts, choice), build)


def find_window_stage(warehouse: Warehouse, posts: Stage, choice: TimetableChoice) -> Stage | None:
    """The finished stage `window` for these posts and this choice; None if there is none."""
    if WINDOW_STAGE not in warehouse.stage_names():
        return None
    stage = warehouse.open_stage(WINDOW_STAGE)
    wanted = stage_fingerprint(WINDOW_STAGE, *_stage_inputs(posts, choice))
    return stage if stage.fingerprint == wanted else None


def _stage_inputs(posts: Stage, choice: TimetableChoice) -> tuple[dict[str, Any], dict[str, str]]:
    config = {**msgspec.to_builtins(choice), "top_users": TOP_USERS}
    return config, {"posts": posts.fingerprint}


def window_facts(stage: Stage) -> WindowFacts:
    """The result of a finished stage `window`."""
    return msgspec.convert(stage.manifest.notes, WindowFacts)


def known_timetable(posts: Stage, choice: TimetableChoice) -> Timetable | None:
    """The timetable of a synthetic match, unless another one is chosen; None for other posts."""
    config: Mapping[str, Any] = posts.manifest.config
    if choice != TimetableChoice() or "timetable" not in config:
        return None
    return msgspec.convert(config["timetable"], Timetable)


def measure_window(posts: DataFrame, choice: TimetableChoice) -> tuple[WindowFacts, DataFrame]:
    """The window in a table of POSTS, and the histogram of all posts, in the columns of
    HISTOGRAM."""
    minutes = _count_by_minute(posts).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        found = minutes.agg(
            F.sum("posts"), F.sum("tagged"), F.min("minute"), F.max("minute")
        ).first()
        assert found is not None  # an aggregate without groups has one row
        total, tagged, first, last = found
        if not total:
            raise InputError("there are no posts: import some with thyme posts import")
        if not tagged:
            raise InputError(
                f"none of the {total:,} posts has a tag; a trace is made of posts with tags "
                "(map a column with --columns tags=…, or texts with #hashtags)"
            )
        timetable = complete_timetable(choice, MinuteCounts(minutes))
        bin_minutes = _bin_minutes(last - first + 1)
        bins = _histogram(minutes, bin_minutes).collect()
    finally:
        minutes.unpersist()
    users, window_users, window_tagged, top_tags = _count_users(posts, timetable)
    facts = WindowFacts(
        timetable=timetable,
        posts=total,
        tagged=tagged,
        users=users,
        first_us=first * MINUTE_US,
        last_us=last * MINUTE_US,
        window_tagged=window_tagged,
        window_users=window_users,
        bin_s=bin_minutes * MINUTE_S,
        top_tags=top_tags,
    )
    return facts, posts.sparkSession.createDataFrame(bins, HISTOGRAM)


class MinuteCounts:
    """The activity of posts (`PostActivity`), from a table of posts per minute."""

    def __init__(self, minutes: DataFrame) -> None:
        self._minutes = minutes.where("tagged > 0")

    def busiest_start_us(self, length_s: int) -> int:
        """Start of the busiest span. Spans are counted in parallel: time is cut into pieces, and a
        minute also belongs to the piece before if a span of that piece can reach it."""
        length = -(-length_s // MINUTE_S)
        size = max(length, 1_440)
        piece = F.floor(F.col("minute") / size)
        reached = F.floor((F.col("minute") - (length - 1)) / size)
        pieces = self._minutes.withColumn(
            "piece", F.explode(F.array_distinct(F.array(piece, reached)))
        )
        span = Window.partitionBy("piece").orderBy("minute").rangeBetween(0, length - 1)
        best = (
            pieces.withColumn("total", F.sum("tagged").over(span))
            .where(piece == F.col("piece"))
            .orderBy(F.desc("total"), "minute")
            .first()
        )
        assert best is not None  # the caller has counted posts with tags
        return int(best["minute"]) * MINUTE_US

    def last_post_us(self, start_us: int, end_us: int) -> int | None:
        """The last minute with a post in a span."""
        inside = self._minutes.where(
            (F.col("minute") * MINUTE_US > start_us - MINUTE_US)
            & (F.col("minute") * MINUTE_US < end_us)
        )
        found = inside.agg(F.max("minute").alias("minute")).first()
        minute = None if found is None else found["minute"]
        return None if minute is None else max(int(minute) * MINUTE_US, start_us)


def _count_by_minute(posts: DataFrame) -> DataFrame:
    minute = F.floor(F.col("at_us") / MINUTE_US).alias("minute")
    tagged = F.sum(F.when(F.size("tags") > 0, 1).otherwise(0))
    return posts.groupBy(minute).agg(F.count("*").alias("posts"), tagged.alias("tagged"))


def _bin_minutes(minutes: int) -> int:
    """Length of the histogram's time spans: a round one that gives few spans."""
    fitting = (width for width in _BIN_MINUTES if minutes <= width * BINS_MAX)
    return next(fitting, -(-minutes // BINS_MAX))


def _histogram(minutes: DataFrame, width: int) -> DataFrame:
    number = F.floor(F.col("minute") / width)
    sums = minutes.groupBy(number.alias("number")).agg(
        F.sum("posts").alias("posts"), F.sum("tagged").alias("tagged")
    )
    at_us = (F.col("number") * width * MINUTE_US).alias("at_us")
    return select_schema(sums.select(at_us, "posts", "tagged").orderBy("at_us"), HISTOGRAM)


def _count_users(posts: DataFrame, timetable: Timetable) -> tuple[int, int, int, tuple[int, ...]]:
    """Users with tagged posts, users with tagged posts in the window, these posts, and the tags of
    the most active users (`WindowFacts.top_tags`)."""
    at_us = F.col("at_us")
    inside = (at_us >= timetable.starts_us) & (at_us < timetable.ends_us)
    per_user = (
        posts.where(F.size("tags") > 0)
        .groupBy("user")
        .agg(
            F.sum(F.when(inside, 1).otherwise(0)).alias("inside"),
            F.sum(F.when(inside, F.size("tags")).otherwise(0)).alias("tags"),
        )
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    try:
        counts = per_user.agg(
            F.count("*"), F.count(F.when(F.col("inside") > 0, 1)), F.sum("inside")
        ).first()
        active = per_user.where("inside > 0").orderBy(F.desc("inside"), "user").limit(TOP_USERS)
        top_tags = accumulate(row["tags"] for row in active.select("tags").collect())
    finally:
        per_user.unpersist()
    assert counts is not None  # an aggregate without groups has one row
    return int(counts[0]), int(counts[1]), int(counts[2] or 0), tuple(top_tags)


# Messages


def check_users(facts: WindowFacts, users: int, zone: tzinfo = UTC) -> None:
    """Raises `InputError` if the window has posts of fewer users: it says which posts there are
    and which options to type."""
    if users <= facts.window_users:
        return
    first, last = facts.first_us, facts.last_us + MINUTE_US
    advice = []
    if facts.window_users:
        advice.append(f"--users {facts.window_users} for the users of this window")
    if facts.users > facts.window_users:
        hours = -(-(last - first) // (HOUR_S * SECOND_US))
        start = format_instant(first, zone, "%Y-%m-%dT%H:%M%z")
        advice.append(f"--start {start} --hours {hours} for all posts ({facts.users:,} users)")
    raise InputError(
        f"the window {format_span(facts.timetable.starts_us, facts.timetable.ends_us, zone)} has "
        f"posts with tags of {facts.window_users:,} users, not of {users:,}\n"
        f"the {facts.posts:,} posts ({facts.tagged:,} with tags, of {facts.users:,} users) are "
        f"from {format_span(first, last, zone)}\n"
        f"type {', or '.join(advice)}"
    )


def format_instant(at_us: int, zone: tzinfo = UTC, form: str = "%Y-%m-%d %H:%M") -> str:
    """An instant as text, in a time zone."""
    return datetime.fromtimestamp(at_us // SECOND_US, zone).strftime(form)


def format_span(start_us: int, end_us: int, zone: tzinfo = UTC) -> str:
    """A span of time as text: the date once if it is one day."""
    same_day = format_instant(start_us, zone, "%F") == format_instant(end_us, zone, "%F")
    end = format_instant(end_us, zone, "%H:%M" if same_day else "%Y-%m-%d %H:%M")
    return f"{format_instant(start_us, zone)} to {end} {format_instant(start_us, zone, '%Z')}"
