"""Plain rows: parses simple rows of tables by Spark expressions instead of Python.

A row is plain if it is a flat JSON object without escapes, with an id and a user of printable
ASCII, a time as a whole number or in ISO 8601, a text, no tags, and hashtags of ASCII alone. For
such a row the post equals that of `posts.formats`, which is the definition; any other row, and each
one in doubt, is left to Python (`posts.rows`). So no plain row is rejected. Entry points:
`can_be_plain`, `with_plain_posts`.
Clauses: P1, P2, P8.
"""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from thyme.model.tags import OPERATOR_WORDS, TAG_BYTES_MAX, TAGS_PER_OBJECT_MAX
from thyme.model.time_frames import INSTANT_MAX_US, SECOND_US
from thyme.pipeline.posts.formats import COLUMNS, TABLES, PostReader

PLAIN = "plain"
"""The column that is true for rows that were parsed here."""
_NAME = re.compile(r"[ !#-\[\]-~]+")
"""Names of columns that JSON writes as they are."""
_MARK = "\x1f"
"""Separates the values that are found in a row; it does not occur in JSON."""

# Regular expressions of Java. Possessive quantifiers never go back, and need no stack. A class of
# single characters is a table, much faster than one with ranges. \z is the end; $ would also match
# before a last line break.
_CHAR = '[^"\\\\' + "".join(rf"\x{code:02x}" for code in range(32)) + "]"
_STRING = f'"{_CHAR}*+"'
_WHOLE = "(?:0|[1-9][0-9]{0,17}+)"
_REAL = rf"-?{_WHOLE}(?:\.[0-9]{{1,17}}+)?"
_MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{3}(?:[0-9]{3})?)?"
_ZONE = "(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])"
_VALUES = {
    "id": rf'"[!#-?A-\[\]-~]{{1,64}}+"|{_WHOLE}',
    "user": rf'"(?! )[ !#-\[\]-~]++(?<! )"|{_WHOLE}',
    "time": rf'"(?:{_MOMENT}{_ZONE}?|[0-9]{{1,18}}+)"|{_WHOLE}',
    "text": f'"{_CHAR}*+',
}
"""The values of plain rows, with their quotes; a text has the first one only."""
_SPACE = r"[ \t]*+"
# As in `posts.hashtags`, for texts of ASCII; words that cannot be tags do not match. The sign comes
# first, because Java looks for it much faster than for what is before it.
_WORDS = "|".join(sorted(OPERATOR_WORDS))
_HASHTAG = (
    rf"#(?<![&\w]#)(?=\w*[A-Za-z])(?!(?i:{_WORDS})(?!\w))(\w{{1,{TAG_BYTES_MAX}}}+)(?![\w#]|://)"
)
_URL = r"(?i)(?:https?://|www\.|\b[a-z0-9-]++(?:\.[a-z0-9-]++)++/)[!-~]*+"


def can_be_plain(reader: PostReader) -> bool:
    """Whether rows of this reader can be plain at all: a pattern must tell the columns apart, and
    times must not count in a unit of their own."""
    columns = [reader.column(name) for name in COLUMNS]
    distinct = len({*columns}) == len(columns)
    usual = reader.form in TABLES and reader.unit is None
    return usual and distinct and all(map(_NAME.fullmatch, columns))


def with_plain_posts(raw: DataFrame, reader: PostReader) -> DataFrame:
    """Rows of RAW with the columns of a post, `zone_assumed` and `plain`; a row that is not plain
    has nulls there, and false. The reader must be one that `can_be_plain`."""
    line = F.col("fields" if reader.form == "csv" else "raw")
    marked = "".join(f"{_MARK}${group}" for group in range(1, len(_VALUES) + 1))
    values = F.split(F.regexp_replace(line, _flat_object(reader), marked), _MARK)
    found = raw.withColumn("_values", F.when(F.col("raw_bytes").isNull(), values))
    is_flat = (F.size("_values") == len(_VALUES) + 1) & ~F.contains(line, F.lit(_MARK))
    given = found.withColumns({f"_{name}": _value(is_flat, name) for name in _VALUES})
    timed = given.withColumn("_at_us", _instant_us(zone_known=reader.zone is None))
    tagged = timed.withColumn("_found", _hashtags()).withColumn("_tags", _normalised_tags())
    made = tagged.withColumn(PLAIN, _is_plain(reader.now_us))
    columns = {
        "post_id": F.col("_id"),
        "user": F.col("_user"),
        "at_us": F.col("_at_us"),
        "text": F.col("_text"),
        "tags": F.col("_tags"),
        "zone_assumed": _lacks_zone(),
    }
    posts = (F.when(F.col(PLAIN), value).alias(name) for name, value in columns.items())
    return made.select(*raw.columns, *posts, PLAIN)


def _flat_object(reader: PostReader) -> str:
    """The pattern of a JSON object of scalars, in which our columns have plain values and there are
    no tags. Decoding such an object means the same to every JSON library; of a name that occurs
    twice, the last value counts, in a pattern too."""
    last = {"text": '"'}
    ours = "|".join(
        rf'"\Q{reader.column(name)}\E"{_SPACE}:{_SPACE}({value}){last.get(name, "")}'
        for name, value in _VALUES.items()
    )
    names = "|".join(rf"\Q{reader.column(name)}\E" for name in COLUMNS)
    scalar = f"{_STRING}|{_REAL}|null|true|false"
    other = rf'"(?!(?:{names})"){_CHAR}*+"{_SPACE}:{_SPACE}(?:{scalar})'
    after = rf'{_SPACE}(?:,{_SPACE}(?=")|(?=\}}))'
    return rf"^\{{{_SPACE}(?:(?:{ours}|{other}){after})++\}}\z"


def _value(is_flat: Column, name: str) -> Column:
    """A value without its quotes; null if the row is not flat or lacks the column."""
    quoted = F.get("_values", F.lit([*_VALUES].index(name) + 1))
    # Removing characters from the end goes through the whole value: not for the longest one.
    bare = F.ltrim(quoted, F.lit('"')) if name == "text" else F.btrim(quoted, F.lit('"'))
    return F.when(is_flat & (quoted != ""), bare)


def _lacks_zone() -> Column:
    is_number = F.col("_time").cast("long").isNotNull()
    return F.when(is_number, F.lit(False)).otherwise(F.col("_time").rlike(rf"^{_MOMENT}\z"))


def _instant_us(*, zone_known: bool) -> Column:
    """The instant of `_time`: `formats.parse_instant_us` for whole numbers and ISO 8601."""
    number = F.col("_time").cast("long")
    unit = F.when(number < 10**11, SECOND_US).when(number < 10**14, 1_000).otherwise(1)
    moment = F.unix_micros(F.col("_time").cast("timestamp"))
    is_known = F.lit(True) if zone_known else ~_lacks_zone()
    return F.when(number.isNotNull(), number * unit).when(is_known, moment)


def _hashtags() -> Column:
    """The hashtags of `_text` as they are written: `formats.parse_tags` for ASCII, unsorted. Null
    if another script may have hashtags, empty if the text has no #."""
    text = F.col("_text")
    has_hash = F.contains(text, F.lit("#"))
    has_host = F.contains(text, F.lit(".")) & text.rlike(r"(?i)www\.")
    may_have_url = F.contains(text, F.lit("/")) | has_host
    plain = F.when(may_have_url, F.regexp_replace(text, _URL, " ")).otherwise(text)
    found = F.regexp_extract_all(plain, F.lit(_HASHTAG), 1)
    none = F.array().cast("array<string>")
    is_ascii = F.octet_length(text) == F.char_length(text)
    return F.when(~has_hash & ~F.contains(text, F.lit("＃")), none).when(has_hash & is_ascii, found)


def _normalised_tags() -> Column:
    """The tags of `_found`: in lower case, sorted and distinct. One lower case of all words
    together, because the whole text is much longer."""
    found = F.col("_found")
    words = F.split(F.lower(F.array_join(found, _MARK)), _MARK)
    several = F.sort_array(F.array_distinct(words))
    return F.when(F.size(found) > 1, several).when(F.size(found) == 1, words).otherwise(found)


def _is_plain(now_us: int) -> Column:
    """Condition: all parts of the post are plain."""
    last_us = min(INSTANT_MAX_US, now_us)
    is_timed = F.coalesce(F.col("_at_us").between(0, last_us), F.lit(False))
    are_tags = F.col("_tags").isNotNull() & (F.size("_tags") <= TAGS_PER_OBJECT_MAX)
    return F.col("_id").isNotNull() & F.col("_user").isNotNull() & is_timed & are_tags
