"""Duplicates: finds the posts of an import whose id another post has.

Entry point: `DuplicateSearch`. Ids are compared by 64-bit hashes first, then exactly among the few
ids whose hash occurs twice. Of posts with the same id, the one of an earlier import is kept, else
the earliest; ties are broken by a hash of the line and its file, so the choice does not depend on
partitions.
Clauses: P2, P8, P11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, LongType, StructType

from thyme.pipeline.schemas import POSTS, STAGED, select_schema

if TYPE_CHECKING:
    from thyme.pipeline.tables import Draft

_SUSPECTS, _RANKED = "suspects", "ranked"
_KEYS = StructType().add("key", LongType())
_RANKED_ROWS = StructType(
    [*STAGED.fields, *StructType().add("age", IntegerType()).add("place", IntegerType()).fields]
)


class Duplicates(NamedTuple):
    """New posts with an id that occurs more than once."""

    ids: DataFrame
    """The ids of `losers`, each once."""
    winners: DataFrame
    """The new posts with one of these ids that are kept, in the columns of POSTS."""
    losers: DataFrame
    """The other ones, in the columns of STAGED."""


class DuplicateSearch:
    """The search for ids that occur twice, among new posts and those of `earlier` imports."""

    def __init__(self, spark: SparkSession, draft: Draft, earlier: DataFrame | None) -> None:
        self._spark = spark
        self._draft = draft
        self._earlier = earlier

    def find_suspects(self, posts: DataFrame) -> bool:
        """Whether the hash of an id of these new posts occurs twice."""
        keys = posts.select(_key())
        if self._earlier is not None:
            keys = keys.unionByName(self._earlier.select(_key()))
        twice = keys.groupBy("key").count().where("count > 1").select("key")
        return self._draft.write_scratch(_SUSPECTS, twice)["rows"] > 0

    def rank(self, rows: DataFrame) -> Duplicates | None:
        """Decides between the posts of an id. `rows` has all new posts with their lines, in the
        columns of STAGED; None if no id occurs twice after all."""
        suspects = self._draft.read_scratch(self._spark, _SUSPECTS, _KEYS)
        age = F.lit(1).alias("age")
        found = rows.withColumn("key", _key()).join(suspects, "key", "left_semi").select("*", age)
        if self._earlier is not None:
            first = self._earlier.select("post_id", _key(), F.lit(0).alias("age"))
            first = first.join(suspects, "key", "left_semi")
            found = found.unionByName(first, allowMissingColumns=True)
        tie = F.xxhash64("line", "source")
        order = Window.partitionBy("post_id").orderBy("age", "at_us", tie, "row")
        ranked = found.withColumn("place", F.row_number().over(order))
        self._draft.write_scratch(_RANKED, select_schema(ranked, _RANKED_ROWS))
        kept = self._draft.read_scratch(self._spark, _RANKED, _RANKED_ROWS).where("age = 1")
        losers = select_schema(kept.where("place > 1"), STAGED)
        ids = losers.select("post_id").distinct()
        winners = kept.where("place = 1").join(ids, "post_id", "left_semi")
        if losers.isEmpty():
            return None
        return Duplicates(ids, select_schema(winners, POSTS), losers)


def _key() -> Column:
    return F.xxhash64("post_id").alias("key")
