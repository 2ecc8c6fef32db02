"""Post formats: parses one source row, given as a line of JSON, into a post.

Entry point: `read_post`, which raises `InvalidPost` with the reason if the row is not a valid post.
This module uses neither Spark nor files; `posts.sources` applies it to whole files.
Clauses: P1, P2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from hashlib import blake2b
from html import unescape
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from thyme.model.errors import InputError, OptionError, TagError, shown
from thyme.model.frames import INSTANT_MAX_US, SECOND_US, as_instant_us
from thyme.model.ids import as_object_id
from thyme.model.tags import TAGS_PER_OBJECT_MAX, Tag, as_tag
from thyme.traces.posts import Post

FORMATS = ("twitter-v2", "twitter-v1", "mastodon", "bluesky", "csv", "jsonl", "parquet")
COLUMNS = ("id", "user", "time", "text", "tags")
"""Fields of a post that `--columns` can map; `id` and `tags` are optional."""
_HASHTAG = re.compile(r"#(\w+)")
_MARKUP = re.compile(r"<[^>]*>")
_TWITTER_TIME = "%a %b %d %H:%M:%S %z %Y"

Fields = dict[str, Any]


class NoPost(InputError):  # noqa: N818 (an invalid row is data, not an error)
    """A row that is not a valid post; the message is the reason, one of a fixed set."""

    code = "no_post"


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for parsing the rows of a source."""

    form: str
    columns: dict[str, str] = {}
    """For tables: the column of each field (id, user, time, text, tags)."""
    zone: str | None = None
    """Time zone of times without one; if None, such rows are invalid."""
    now_us: int = INSTANT_MAX_US
    """Posts later than this instant are invalid."""

    def __post_init__(self) -> None:
        if self.form not in FORMATS:
            raise OptionError(f"there is no format {shown(self.form)}; use {', '.join(FORMATS)}")
        for name in self.columns:
            if name not in COLUMNS:
                raise OptionError(f"a post has no {shown(name)}; it has {', '.join(COLUMNS)}")
        if self.columns and self.form not in ("csv", "jsonl", "parquet"):
            raise OptionError(f"columns are for csv, jsonl and parquet: {self.form} has its own")
        if self.zone is not None:
            zone_of(self.zone)

    def column(self, name: str) -> str:
        """The source's column for a field of a post."""
        return self.columns.get(name, name)


def zone_of(name: str) -> timezone | ZoneInfo:
    """Parses a time zone: an offset (`+01:00`) or a name (`Europe/Lisbon`)."""
    if found := re.fullmatch(r"([+-])(\d\d):?(\d\d)", name):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        if offset < timedelta(hours=24):
            return timezone(offset if found[1] == "+" else -offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise OptionError(
            f"there is no time zone {shown(name)}; use an offset like +01:00 or a name like UTC"
        ) from error


def read_post(line: str, reader: Reader) -> Post:
    """Parses the post in a line of JSON; raises `InvalidPost` with the reason otherwise."""
    try:
        fields = msgspec.json.decode(line.removeprefix("\ufeff"))
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise NoPost("broken row" if reader.form == "csv" else "not JSON") from error
    if not isinstance(fields, dict):
        raise NoPost("not a post")
    found = _FIELDS[reader.form](fields, reader)
    user, text = _written(found.get("user")), _written(found.get("text")) or ""
    if not user:
        raise NoPost("no user")
    at_us = instant_us(found.get("time"), reader)
    tags = tags_of(found.get("tags"), text)
    return Post(_post_id(found, user, at_us, text, reader), user, at_us, text, tags)


def _post_id(found: Fields, user: str, at_us: int, text: str, reader: Reader) -> str:
    """The id of a post in the source; a digest for tables without ids."""
    written = _written(found.get("id"))
    if not written:
        if reader.form not in ("csv", "jsonl", "parquet") or "id" in reader.columns:
            raise NoPost("no id")
        digest = blake2b(f"{user}\n{at_us}\n{text}".encode(), digest_size=12)
        return digest.hexdigest()
    try:
        return as_object_id(written)
    except InputError as error:
        raise NoPost("bad id") from error


def instant_us(value: object, reader: Reader) -> int:
    """Parses the time of a post: ISO 8601, the format of Twitter 1.1, or a number.

    Numbers count from 1970, in seconds, milliseconds or microseconds depending on their magnitude.
    """
    if isinstance(value, str):
        value = value.strip()
        if re.fullmatch(r"\d{1,19}(\.\d+)?", value):
            value = float(value) if "." in value else int(value)
    if value is None or value == "":
        raise NoPost("no time")
    at_us = _counted_us(value) if isinstance(value, int | float) else _parsed_us(value, reader)
    if not 0 <= at_us <= INSTANT_MAX_US:
        raise NoPost("bad time")
    if at_us > reader.now_us:
        raise NoPost("time in the future")
    return at_us


def _counted_us(value: float) -> int:
    if isinstance(value, bool) or not 0 <= value < 1e18:
        raise NoPost("bad time")
    unit = SECOND_US if value < 1e11 else 1_000 if value < 1e14 else 1
    return round(value * unit)


def _parsed_us(value: object, reader: Reader) -> int:
    if not isinstance(value, str):
        raise NoPost("bad time")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        try:
            moment = datetime.strptime(value, _TWITTER_TIME)
        except ValueError as error:
            raise NoPost("bad time") from error
    if moment.tzinfo is None:
        if reader.zone is None:
            raise NoPost("time without a zone")
        moment = moment.replace(tzinfo=zone_of(reader.zone))
    try:
        return as_instant_us(moment, 0)
    except (InputError, OverflowError) as error:
        raise NoPost("bad time") from error


def tags_of(given: object, text: str) -> tuple[Tag, ...]:
    """The tags listed by the source, or else the hashtags in the text.

    Words that cannot be tags, such as `and`, are omitted: no query could contain them.
    """
    if isinstance(given, str):
        words: list[object] = [*given.replace("#", " ").replace(",", " ").split()]
    elif isinstance(given, list):
        words = [word.removeprefix("#") if isinstance(word, str) else word for word in given]
    else:
        words = [*_HASHTAG.findall(text)]
    tags: set[Tag] = set()
    for word in words:
        try:
            tags.add(as_tag(word))  # type: ignore[arg-type]  # as_tag rejects values other than text
        except TagError:
            continue
    if len(tags) > TAGS_PER_OBJECT_MAX:
        raise NoPost(f"more than {TAGS_PER_OBJECT_MAX} tags")
    return tuple(sorted(tags))


def _written(value: object) -> str | None:
    """Text, or an integer as text; None for any other value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip("\0") if isinstance(value, str) else None


# The fields of each format


def _at(fields: object, *path: str) -> Any:
    """The value at a path of names in nested objects; None if the path is missing."""
    for name in path:
        if not isinstance(fields, dict):
            return None
        fields = fields.get(name)
    return fields


def _listed(values: object, name: str) -> list[object] | None:
    """One field of each object in a list."""
    if not isinstance(values, list):
        return None
    return [value.get(name) for value in values if isinstance(value, dict)]


def _twitter_v2(fields: Fields, _: Reader) -> Fields:
    # The stream wraps each post in `data`; a search result holds a list of posts there.
    post = fields["data"] if isinstance(fields.get("data"), dict) else fields
    if isinstance(fields.get("data"), list):
        raise NoPost("a page of posts, not a post")
    return {
        "id": post.get("id"),
        "user": post.get("author_id"),
        "time": post.get("created_at"),
        "text": _at(post, "note_tweet", "text") or post.get("text"),
        "tags": _listed(_at(post, "entities", "hashtags"), "tag"),
    }


def _twitter_v1(fields: Fields, _: Reader) -> Fields:
    whole = fields.get("extended_tweet")
    text = _at(whole, "full_text") or fields.get("full_text") or fields.get("text")
    hashtags = _at(whole, "entities", "hashtags") or _at(fields, "entities", "hashtags")
    return {
        "id": fields.get("id_str") or fields.get("id"),
        "user": _at(fields, "user", "id_str")
        or _at(fields, "user", "id")
        or _at(fields, "user", "screen_name"),
        "time": fields.get("created_at") or fields.get("timestamp_ms"),
        "text": unescape(text) if isinstance(text, str) else text,
        "tags": _listed(hashtags, "text"),
    }


def _mastodon(fields: Fields, _: Reader) -> Fields:
    content = fields.get("content")
    return {
        "id": fields.get("id"),
        "user": _at(fields, "account", "acct") or _at(fields, "account", "id"),
        "time": fields.get("created_at"),
        "text": unescape(_MARKUP.sub("", content)) if isinstance(content, str) else content,
        "tags": _listed(fields.get("tags"), "name"),
    }


def _bluesky(fields: Fields, _: Reader) -> Fields:
    """Fields of a post view, or of a commit in the stream of all posts."""
    commit = fields.get("commit")
    record = _at(commit, "record") or fields.get("record")
    user = fields.get("did") if commit else _at(fields, "author", "did")
    uri = fields.get("uri")
    key = _at(commit, "rkey") or (uri.rpartition("/")[2] if isinstance(uri, str) else None)
    words = _at(record, "tags")
    words = list(words) if isinstance(words, list) else []
    for facet in _at(record, "facets") or []:
        words += [word for word in _listed(_at(facet, "features"), "tag") or [] if word]
    return {
        # The URI of a post may be too long for an object id; user and key are as unique.
        "id": f"{user}/{key}" if user and key else None,
        "user": user,
        "time": _at(record, "createdAt") or fields.get("time_us"),
        "text": _at(record, "text"),
        "tags": words or None,
    }


def _table(fields: Fields, reader: Reader) -> Fields:
    return {name: fields.get(reader.column(name)) for name in COLUMNS}


_FIELDS: dict[str, Callable[[Fields, Reader], Fields]] = {
    "twitter-v2": _twitter_v2,
    "twitter-v1": _twitter_v1,
    "mastodon": _mastodon,
    "bluesky": _bluesky,
    "csv": _table,
    "jsonl": _table,
    "parquet": _table,
}
