"""Synthetic posts on Spark: generates the posts of `traces.synthetic.football_match` in columns.

Entry point: `synthetic_posts`. A post is a function of the seed and its number, so partitions are
independent, and each row equals `FootballMatch.post` of its number. Draws are 64-bit products and
shifts that wrap around; a weighted choice looks up a start index by the high bits of a draw, then
searches from there. No Python runs per row.
Clauses: P1, P8.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's own examples do)

from thyme.model.time_frames import SECOND_US
from thyme.pipeline.schemas import POSTS, select_schema
from thyme.traces.synthetic import football_match
from thyme.traces.synthetic.counter_rng import PURPOSES, WEIGHT_BITS, WeightedChoice
from thyme.traces.synthetic.football_match import FootballMatch, FootballMatchConfig
from thyme.traces.synthetic.vocabulary import TEXT_WORDS

ROWS_PER_FILE = 250_000
_INCREMENT = 0x9E3779B97F4A7C15
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LOOKUP_BITS = 14
_TAG_DRAWS = tuple(f"tag{n}" for n in range(football_match.TAGS_MAX))
_DRAWS = {
    "user": football_match._USER,
    "second": football_match._SECOND,
    "within": football_match._WITHIN,
    "count": football_match._TAGS,
    "words": football_match._WORDS,
    "habit": football_match._HABIT,
    **{name: football_match._TAG_FIRST + n for n, name in enumerate(_TAG_DRAWS)},
    **{f"word{n}": football_match._WORD_FIRST + n for n in range(football_match._WORDS_MAX // 8)},
}
_CHOICE_OF_DRAW = {"user": "user", "second": "second", "count": "count"} | dict.fromkeys(
    _TAG_DRAWS, "tag"
)
"""The draws that make a weighted choice, and the name of that choice."""


def synthetic_posts(
    spark: SparkSession, seed: int, config: FootballMatchConfig, partitions: int | None = None
) -> DataFrame:
    """The posts of a match, sorted by number, in the columns of POSTS."""
    game = FootballMatch(seed, config)
    choices = {
        "user": game.user_choice,
        "second": game.second_choice,
        "count": game.list_choice if game.tag_lists else game.tag_count_choice,
        "tag": game.tag_choice,
    }
    pieces = partitions or -(-config.posts // ROWS_PER_FILE)
    drawn = _with_draws(spark.range(0, config.posts, 1, pieces), game.origin)
    with_lookup = drawn.join(F.broadcast(_lookup_row(spark, game, choices)))
    within_us = _scale_below(SECOND_US, F.col("within")) + F.col("second").cast("long") * SECOND_US
    chosen = _choose(with_lookup, choices).select(
        "id",
        "user",
        (within_us + config.timetable.starts_us).alias("at_us"),
        (_list_tags(game.habit_steps) if game.tag_lists else _drawn_tags()).alias("tags"),
        _post_words().alias("words"),
    )
    hashtags = F.array_join(F.transform("tags", lambda tag: F.concat(F.lit("#"), tag)), " ")
    words_length = F.greatest(
        F.lit(0), F.lit(football_match.TEXT_CHARS_MAX - 1) - F.length("hashtags")
    )
    made = chosen.withColumn("hashtags", hashtags).select(
        F.col("id").cast("string").alias("post_id"),
        F.concat(F.lit("fan"), F.col("user") + 1).alias("user"),
        "at_us",
        F.concat(F.rtrim(F.substr("words", F.lit(1), words_length)), F.lit(" "), "hashtags").alias(
            "text"
        ),
        "tags",
    )
    return select_schema(made, POSTS)


def _with_draws(numbers: DataFrame, origin: int) -> DataFrame:
    """Each number with its draws, one column per purpose (`counter_rng.draw`)."""
    step = F.lit(_signed(_INCREMENT * PURPOSES)) * F.col("id")
    values = {
        name: F.lit(_signed(origin + _INCREMENT * (lane + 1))) + step
        for name, lane in _DRAWS.items()
    }
    frame = numbers.withColumns(values)
    for shift, factor in _MIXERS:
        frame = frame.withColumns(
            {name: _xor_shifted(name, shift) * F.lit(_signed(factor)) for name in _DRAWS}
        )
    return frame.withColumns({name: _xor_shifted(name, 31) for name in _DRAWS})


def _xor_shifted(name: str, shift: int) -> Column:
    return F.col(name).bitwiseXOR(F.shiftrightunsigned(name, shift))


def _signed(value: int) -> int:
    """An unsigned 64-bit integer as a signed one, as in Java."""
    return (value + 2**63) % 2**64 - 2**63


def _scale_below(most: int, drawn: Column) -> Column:
    """Spark expression of `counter_rng.scale_below`."""
    return F.shiftright(F.shiftrightunsigned(drawn, 32) * most, 32)


def _lookup_row(
    spark: SparkSession, game: FootballMatch, choices: dict[str, WeightedChoice]
) -> DataFrame:
    """One row of lookup arrays, to be joined to every post.

    As constants they would be part of the query plan, which Spark often compares and copies.
    """
    columns: dict[str, pa.Array] = {
        "tag_words": pa.array([game.tag_names], pa.list_(pa.string())),
        "text_words": pa.array([TEXT_WORDS], pa.list_(pa.string())),
        "tag_lists": pa.array([game.tag_lists], pa.list_(pa.list_(pa.string()))),
        "list_of_user": pa.array([game.list_of_user], pa.list_(pa.int32())),
    }
    for name, choice in choices.items():
        starts, steps = lookup_table(choice.ends)
        # Padding, above any draw, for the indices that a search may read past the end.
        beyond = [2**WEIGHT_BITS] * (2 * steps[0] if steps else 0)
        columns[f"{name}_starts"] = pa.array([starts], pa.list_(pa.int32()))
        columns[f"{name}_ends"] = pa.array([[*choice.ends, *beyond]], pa.list_(pa.int64()))
    return spark.createDataFrame(pa.table(columns))


def _choose(frame: DataFrame, choices: dict[str, WeightedChoice]) -> DataFrame:
    """Replaces draws by the chosen indices, as `WeightedChoice.choose` does.

    Each step of the search is a step of the plan: a single expression would repeat the index of
    each step several times and grow exponentially.
    """
    lots = {f"{name}_lot": F.shiftrightunsigned(name, 64 - WEIGHT_BITS) for name in _CHOICE_OF_DRAW}
    frame = frame.withColumns(lots).withColumns(
        {
            name: F.get(
                f"{wheel}_starts",
                F.shiftright(f"{name}_lot", WEIGHT_BITS - _LOOKUP_BITS).cast("int"),
            )
            for name, wheel in _CHOICE_OF_DRAW.items()
        }
    )
    steps = {name: lookup_table(wheel.ends)[1] for name, wheel in choices.items()}
    for step in sorted({step for some in steps.values() for step in some}, reverse=True):
        frame = frame.withColumns(
            {
                name: _search_step(name, wheel, step)
                for name, wheel in _CHOICE_OF_DRAW.items()
                if step in steps[wheel]
            }
        )
    return frame


def _search_step(name: str, choice: str, step: int) -> Column:
    place = F.col(name)
    reached = F.get(f"{choice}_ends", place + (step - 1)) <= F.col(f"{name}_lot")
    return F.when(reached, place + step).otherwise(place)


def lookup_table(ends: Sequence[int]) -> tuple[list[int], list[int]]:
    """The start index of the search for each value of a draw's high bits, and the step sizes of the
    search from there, each half of the previous one."""
    width = 1 << (WEIGHT_BITS - _LOOKUP_BITS)
    starts = [bisect_right(ends, number * width) for number in range(2**_LOOKUP_BITS + 1)]
    most = max(after - before for before, after in pairwise(starts))
    return starts[:-1], [1 << bit for bit in reversed(range(most.bit_length()))]


def _list_tags(habit_steps: int) -> Column:
    """The tags of a post of a match with tag lists: the choice `count` is then a list."""
    habit = _scale_below(football_match._HABIT_STEPS, F.col("habit"))
    own = F.get("list_of_user", F.col("user"))
    return F.get("tag_lists", F.when(habit < habit_steps, own).otherwise(F.col("count")))


def _drawn_tags() -> Column:
    drawn = F.array(*(F.get("tag_words", F.col(name)) for name in _TAG_DRAWS))
    return F.sort_array(F.array_distinct(F.slice(drawn, F.lit(1), F.col("count") + 1)))


def _post_words() -> Column:
    span = football_match._WORDS_MAX - football_match._WORDS_MIN + 1
    count = _scale_below(span, F.col("words")) + football_match._WORDS_MIN
    drawn = [
        F.shiftright(_byte(f"word{number // 8}", number % 8) * len(TEXT_WORDS), 8)
        for number in range(football_match._WORDS_MAX)
    ]
    chosen = F.array(*(F.get("text_words", number.cast("int")) for number in drawn))
    return F.array_join(F.slice(chosen, F.lit(1), count.cast("int")), " ")


def _byte(name: str, number: int) -> Column:
    """Byte `number` of a draw, the highest byte first."""
    return F.shiftrightunsigned(name, 56 - 8 * number).bitwiseAND(F.lit(255).cast("long"))
