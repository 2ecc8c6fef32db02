"""The oracle on Spark: computes the notifications of a perfect execution of a trace by one join.

Entry points: `expected_notifications`, `NotificationJoin`. The join key is a tag: each conjunction
has its rarest tag, each object all of its tags. Joined pairs are then checked in full: tags, time
frame, and earlier deletes, expiries and revocations. An object that satisfies several conjunctions
of a query counts for the first one, so each notification occurs once. Few subscriptions are sent to
all tasks; if they are many, objects and subscriptions are moved to the task of their tag, and a tag
with many pairs is split into pieces for several tasks. The result equals that of `traces.oracle`.
Clauses: P4, P8, S15, M10, M11, M14–M16, M18, M29.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from thyme.pipeline.schemas import CONJUNCTIONS, NOTIFICATIONS, rows_to_batch, select_schema
from thyme.pipeline.traces import StoreTable
from thyme.traces.operations import conjunctions_of

ORDER = ("at_us", "user", "sid", "oid")
"""Sort order of notifications, as in `traces.oracle`."""
PIECE_OBJECTS = 50_000
PIECE_PAIRS = 500_000
"""Maximum number of objects, and of pairs with subscriptions, in a piece of a tag."""
PIECES_MAX = 10_000
BROADCAST_MAX = 200_000
"""Maximum number of operations that are sent to every task: some tens of megabytes."""


def expected_notifications(operations: DataFrame, asking: int | None = None) -> DataFrame:
    """Every expected notification, unsorted, in the columns of NOTIFICATIONS.

    `asking` is the number of operations other than inserts, if it is known. If they are few, every
    task gets all of them, and the objects stay where they are.
    """
    return NotificationJoin(operations, asking).notifications()


class NotificationJoin:
    """The join of the objects of a trace with its subscriptions, for all objects or a sample."""

    def __init__(
        self,
        operations: DataFrame,
        asking: int | None = None,
        store: StoreTable = lambda _name, frame: frame,
    ) -> None:
        self._in_place = asking is not None and asking <= BROADCAST_MAX
        self._objects = _objects(operations, send_deletes=self._in_place)
        subscriptions = _subscriptions(operations)
        conjunctions = store("conjunctions", _conjunctions(subscriptions))
        counted = _with_tag(self._objects)
        if self._in_place:
            # Where a key has no alternative, it need not be the rarest tag.
            several = conjunctions.where(F.size("positive") > 1)
            wanted = F.broadcast(several.select(F.explode("positive").alias("tag")).distinct())
            counted = counted.join(wanted, "tag", "left_semi")
        self._counts = _count_objects(counted)
        keyed = _by_rarest_tag(subscriptions, conjunctions, self._counts)
        self._subscriptions = store("subscriptions", keyed)

    def notifications(self, one_in: int = 1) -> DataFrame:
        """The expected notifications of one in so many objects, in the columns of NOTIFICATIONS."""
        objects = self._objects
        if one_in > 1:
            objects = objects.where(F.pmod(F.xxhash64("oid"), F.lit(one_in)) == 0)
        pairs = self._pair_in_place(objects) if self._in_place else self._pair_by_pieces(objects)
        due = pairs.where(_is_in_frame() & _is_still_valid() & _is_match())
        notified = due.select(
            F.greatest("published_us", "asked_us").alias("at_us"),
            "user",
            "sid",
            "oid",
            "owner",
            (F.col("object_number") < F.col("number")).alias("past"),
        )
        return select_schema(notified, NOTIFICATIONS)

    def _pair_in_place(self, objects: DataFrame) -> DataFrame:
        """Pairs of an object and a conjunction whose key is one of its tags; all operations but the
        inserts are sent to every task."""
        return _with_tag(objects).join(F.broadcast(self._subscriptions), "tag")

    def _pair_by_pieces(self, objects: DataFrame) -> DataFrame:
        """The same pairs, made in tasks of about the same size, one for each tag or piece of a
        tag."""
        split = F.broadcast(_split_tags(self._subscriptions, self._counts))
        subscription_pieces = _with_pieces(self._subscriptions, split).withColumn(
            "piece", F.explode(F.sequence(F.lit(0), F.col("pieces") - 1))
        )
        object_pieces = _with_pieces(_with_tag(objects), split).withColumn(
            "piece", F.pmod(F.xxhash64("oid"), F.col("pieces")).cast("int")
        )
        return object_pieces.drop("pieces").join(subscription_pieces, ["tag", "piece"])


def _with_tag(objects: DataFrame) -> DataFrame:
    """One row per object and tag."""
    return objects.withColumn("tag", F.explode("tags"))


def _count_objects(objects: DataFrame) -> DataFrame:
    """The number of objects of each tag."""
    return objects.groupBy("tag").agg(F.count("*").alias("objects"))


def _objects(operations: DataFrame, *, send_deletes: bool) -> DataFrame:
    """The objects of a trace, each with the number of its delete, if any."""
    inserts = operations.where("op = 'insert'").select(
        F.col("number").alias("object_number"),
        F.col("at_us").alias("published_us"),
        F.col("user").alias("owner"),
        "oid",
        "tags",
        "life_us",
    )
    deletes = operations.where("op = 'delete'").select("oid", F.col("number").alias("deleted"))
    return inserts.join(F.broadcast(deletes) if send_deletes else deletes, "oid", "left")


def _subscriptions(operations: DataFrame) -> DataFrame:
    """The subscriptions of a trace, each with the number of its unsubscribe, if any."""
    subscribes = operations.where("op = 'subscribe'").select(
        "number", F.col("at_us").alias("asked_us"), "user", "sid", "query", "start_us", "end_us"
    )
    unsubscribes = operations.where("op = 'unsubscribe'")
    revoked = unsubscribes.select("sid", F.col("number").alias("revoked"))
    return subscribes.join(revoked, "sid", "left")


def _conjunctions(subscriptions: DataFrame) -> DataFrame:
    """The conjunctions of all queries, in the columns of CONJUNCTIONS."""
    return subscriptions.select("query").distinct().mapInArrow(_parse_queries, CONJUNCTIONS)


def _by_rarest_tag(
    subscriptions: DataFrame, conjunctions: DataFrame, counts: DataFrame
) -> DataFrame:
    """One row per subscription and conjunction, with its rarest tag, by the counts of objects."""
    rarest = (
        conjunctions.select("query", "place", F.explode("positive").alias("tag"))
        .join(counts, "tag", "left")
        .groupBy("query", "place")
        .agg(F.min(F.struct(F.coalesce("objects", F.lit(0)).alias("objects"), "tag")).alias("key"))
        .select("query", "place", "key.tag")
    )
    return subscriptions.join(conjunctions.join(rarest, ["query", "place"]), "query").drop(
        "query", "place"
    )


def _split_tags(subscriptions: DataFrame, counts: DataFrame) -> DataFrame:
    """The tags whose objects, or pairs with subscriptions, are split, and into how many pieces.

    They are few, however large the trace: each has many objects or many pairs.
    """
    objects, asking = F.col("objects"), F.coalesce("asking", F.lit(0))
    pieces = F.ceil(F.greatest(objects / PIECE_OBJECTS, objects * asking / PIECE_PAIRS))
    return (
        counts.join(subscriptions.groupBy("tag").agg(F.count("*").alias("asking")), "tag", "left")
        .select("tag", F.least(pieces, F.lit(PIECES_MAX)).cast("int").alias("pieces"))
        .where("pieces > 1")
    )


def _with_pieces(rows: DataFrame, split: DataFrame) -> DataFrame:
    """Adds the number of pieces of each row's tag."""
    pieces = F.coalesce("pieces", F.lit(1)).alias("pieces")
    return rows.join(split, "tag", "left").select(*rows.columns, pieces)


def _is_in_frame() -> Column:
    """Condition: the object was published inside the frame, ends included."""
    published = F.col("published_us")
    after = F.col("start_us").isNull() | (F.col("start_us") <= published)
    return after & (F.col("end_us").isNull() | (published <= F.col("end_us")))


def _is_still_valid() -> Column:
    """Condition: when the later operation of the pair was issued, the earlier one still held: the
    subscription was not revoked, or the object neither deleted nor expired."""
    inserted, asked = F.col("object_number"), F.col("number")
    active = F.col("revoked").isNull() | (F.col("revoked") > inserted)
    undeleted = F.col("deleted").isNull() | (F.col("deleted") > asked)
    alive = F.col("life_us").isNull() | (
        F.col("published_us") + F.col("life_us") > F.col("asked_us")
    )
    return F.when(inserted > asked, active).otherwise(undeleted & alive)


def _is_match() -> Column:
    """Condition: the object satisfies the conjunction and no earlier one of the query. A single
    tag is the key of the pair, so the object has it."""
    lone = (F.size("positive") == 1) & (F.size("negative") == 0) & (F.size("earlier") == 0)
    already = F.exists("earlier", lambda each: _satisfies(each["positive"], each["negative"]))
    first = (F.size("earlier") == 0) | ~already
    satisfied = _satisfies(F.col("positive"), F.col("negative")) & first
    return F.when(lone, F.lit(True)).otherwise(satisfied)


def _satisfies(positive: Column, negative: Column) -> Column:
    wanted = F.size(F.array_except(positive, F.col("tags"))) == 0
    return wanted & ~F.arrays_overlap(negative, F.col("tags"))


def _parse_queries(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parses queries into rows of CONJUNCTIONS."""
    tags = pa.list_(pa.string())
    literals = pa.struct([("positive", tags), ("negative", tags)])
    schema = pa.schema(
        [
            ("query", pa.string()),
            ("place", pa.int32()),
            *literals,
            ("earlier", pa.list_(literals)),
        ]
    )
    for batch in batches:
        rows = []
        for query in batch.column("query").to_pylist():
            parts = [
                {"positive": list(each.positive), "negative": list(each.negative)}
                for each in conjunctions_of(query)
            ]
            rows += [
                {"query": query, "place": place, **part, "earlier": parts[:place]}
                for place, part in enumerate(parts)
            ]
        yield rows_to_batch(rows, schema)
