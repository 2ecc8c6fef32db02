"""Reading posts: one row of a source, as a line of JSON, to one post or the reason against it.

No Spark and no files here, so that every source and every fault can be tried on one line;
`sources` does it for whole files.
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
"""What `--columns` can name; `id` and `tags` need not be there."""
_HASHTAG = re.compile(r"#(\w+)")
_MARKUP = re.compile(r"<[^>]*>")
_TWITTER_TIME = "%a %b %d %H:%M:%S %z %Y"

Fields = dict[str, Any]


class NoPost(InputError):  # noqa: N818 (a row that is no post is no error of ours)
    """A row that cannot be a post; the message is the reason, one of few."""

    code = "no_post"


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """How the rows of a source are read."""

    form: str
    columns: dict[str, str] = {}
    """For tables: which column is the id, the user, the time, the text, the tags."""
    zone: str | None = None
    """The zone of times that name none; without it such rows are no posts."""
    now_us: int = INSTANT_MAX_US
    """What is later is in the future."""

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
        """What the source calls a field of a post."""
        return self.columns.get(name, name)


def zone_of(name: str) -> timezone | ZoneInfo:
    """A time zone by its offset (`+01:00`) or its name (`Europe/Lisbon`)."""
    if found := re.fullmatch(r"([+-])(\d\d):?(\d\d)", name):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        if offset < timedelta(hours=24):
            return timezone(offset if found[1] == "+" else -offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise OptionError(f"there is no time zone {shown(name)}; +01:00, or UTC") from error


def read_post(line: str, reader: Reader) -> Post:
    """The post in a line of JSON, or a `NoPost` that says why there is none."""
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
    """The id that the source gives; a table need not have one, and then it is a digest."""
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
    """The instant that a source writes, as ISO 8601, as Twitter 1.1 does, or as a number.

    Numbers count from 1970 in seconds, milliseconds or microseconds, by their size.
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
    """The tags that a source lists, else those written in the text with `#`.

    Words that cannot be tags, such as `and`, are left out: nobody could ask for them.
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
            tags.add(as_tag(word))  # type: ignore[arg-type]  # as_tag refuses what is no text
        except TagError:
            continue
    if len(tags) > TAGS_PER_OBJECT_MAX:
        raise NoPost(f"more than {TAGS_PER_OBJECT_MAX} tags")
    return tuple(sorted(tags))


def _written(value: object) -> str | None:
    """Text, or a number that stands for it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip("\0") if isinstance(value, str) else None


# What each source calls things


def _at(fields: object, *path: str) -> Any:
    """What is found along a path of names; None where the path ends early."""
    for name in path:
        if not isinstance(fields, dict):
            return None
        fields = fields.get(name)
    return fields


def _listed(values: object, name: str) -> list[object] | None:
    """One field of each of a list of things."""
    if not isinstance(values, list):
        return None
    return [value.get(name) for value in values if isinstance(value, dict)]


def _twitter_v2(fields: Fields, _: Reader) -> Fields:
    # The stream wraps each post; a page of a search holds many, and is no post.
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
    """A post as the application shows it, or a commit as the stream of all posts has it."""
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
        # The address of a post is longer than an object's id may be; this much is as unique.
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
