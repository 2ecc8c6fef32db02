"""Post formats: parses one source row, given as a line of JSON, into a post.

Entry points: `read_post`, which raises `InvalidPost` with the reason if the row is not a valid
post, and `split_page`, for lines with several posts. This module uses neither Spark nor files;
`posts.rows` applies it to whole tables.
Clauses: P1, P2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import blake2b
from html import unescape
from html.parser import HTMLParser
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from thyme.model.errors import InputError, OptionError, TagError, safe_repr
from thyme.model.ids import as_object_id
from thyme.model.tags import TAGS_PER_OBJECT_MAX, Tag, as_tag
from thyme.model.time_frames import INSTANT_MAX_US, SECOND_US, as_instant_us
from thyme.pipeline.posts.hashtags import find_hashtags
from thyme.traces.posts import Post

FORMATS = ("twitter-v2", "twitter-v1", "mastodon", "bluesky", "csv", "jsonl", "parquet")
COLUMNS = ("id", "user", "time", "text", "tags")
"""Fields of a post that `--columns` can map; `id` and `tags` are optional."""
TABLES = ("csv", "jsonl", "parquet")
UNITS = {"s": SECOND_US, "ms": 1_000, "us": 1}
_TWITTER_TIME = "%a %b %d %H:%M:%S %z %Y"
_NUMBER = re.compile(r"\d{1,19}(\.\d+)?(e\+?\d{1,2})?", re.IGNORECASE)
_UTC_WORD = re.compile(r" ?(UTC|GMT)$")
_TAG_SEPARATOR = re.compile(r"[\s,;|#＃\[\]'\"]+")

PostFields = dict[str, Any]


class InvalidPost(InputError):  # noqa: N818 (an invalid row is data, not an error)
    """A row that is not a valid post; the message is the reason, one of a fixed set."""

    code = "no_post"


class PostReader(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for parsing the rows of a source."""

    form: str
    columns: dict[str, str] = {}
    """For tables: the column of each field (id, user, time, text, tags)."""
    zone: str | None = None
    """Time zone of times without one; None: UTC, and the import counts such rows."""
    unit: str | None = None
    """Unit of times that are numbers: s, ms or us; None: by their magnitude."""
    origin: str | None = None
    """The instant from which such times count, as text; None: 1970."""
    now_us: int = INSTANT_MAX_US
    """Posts later than this instant are invalid."""

    def __post_init__(self) -> None:
        if self.form not in FORMATS:
            raise OptionError(
                f"there is no format {safe_repr(self.form)}; use {', '.join(FORMATS)}"
            )
        for name in self.columns:
            if name not in COLUMNS:
                raise OptionError(f"a post has no {safe_repr(name)}; it has {', '.join(COLUMNS)}")
        if self.columns and self.form not in TABLES:
            raise OptionError(f"columns are for csv, jsonl and parquet: {self.form} has its own")
        parse_zone(self.zone or "UTC")
        if self.unit not in (None, *UNITS):
            raise OptionError(
                f"there is no unit {safe_repr(self.unit)}; times count {', '.join(UNITS)}"
            )
        if self.origin is not None and self.unit is None:
            raise OptionError("times that count from an origin need a unit: s, ms or us")
        if self.unit is not None:
            _counted_us(self.unit, self.origin, self.zone)

    def column(self, name: str) -> str:
        """The source's column for a field of a post."""
        return self.columns.get(name, name)


@lru_cache(maxsize=16)
def parse_zone(name: str) -> timezone | ZoneInfo:
    """Parses a time zone: an offset (`+01:00`) or a name (`Europe/Lisbon`)."""
    if name.upper() in ("UTC", "Z"):
        return UTC  # works on machines without a time zone database, too
    if found := re.fullmatch(r"([+-])(\d\d):?(\d\d)", name):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        if offset < timedelta(hours=24):
            return timezone(offset if found[1] == "+" else -offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise OptionError(
            f"there is no time zone {safe_repr(name)}; use an offset like +01:00 or a name like UTC"
        ) from error


class _Page(msgspec.Struct):
    """A page of an API: posts in a list, next to other fields."""

    data: list[msgspec.Raw] = []
    statuses: list[msgspec.Raw] = []
    posts: list[msgspec.Raw] = []


# A test of the first characters spares most lines the decoding.
_LIST = re.compile(r"\ufeff?\s*\[")
_PAGE = re.compile(r'\ufeff?\s*(\[|\{.*"(data|statuses|posts)"\s*:\s*\[)', re.DOTALL)


def split_page(line: str, form: str) -> list[str]:
    """The posts of a page of an API or of a JSON list, as lines of JSON with their original text;
    a line that is neither is returned alone."""
    kind: Any = list[msgspec.Raw] if form in TABLES else list[msgspec.Raw] | _Page
    if not (_LIST if form in TABLES else _PAGE).match(line):
        return [line]
    try:
        page = msgspec.json.decode(line.removeprefix("\ufeff"), type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return [line]
    posts = page.data or page.statuses or page.posts if isinstance(page, _Page) else page
    return [bytes(post).decode() for post in posts] or [line]


def read_post(line: str, reader: PostReader) -> Post:
    """Parses the post in a line of JSON; raises `InvalidPost` with the reason otherwise."""
    return make_post(read_fields(line, reader), reader)


def read_fields(line: str, reader: PostReader) -> PostFields:
    """Parses the fields id, user, time, text and tags of a post, as the source has them."""
    try:
        fields = msgspec.json.decode(line.removeprefix("\ufeff"))
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise InvalidPost("broken row" if reader.form == "csv" else "not JSON") from error
    if not isinstance(fields, dict):
        raise InvalidPost("not a post")
    return _FIELD_READERS[reader.form](fields, reader)


def make_post(found: PostFields, reader: PostReader) -> Post:
    """Makes a post of its fields; raises `InvalidPost` with the reason if they are invalid."""
    user = (_as_text(found.get("user")) or "").strip()
    text = _as_text(found.get("text")) or ""
    if not user:
        raise InvalidPost("no user")
    zone = parse_zone(reader.zone or "UTC")
    count_us: Callable[[float], int] = _from_number_us
    if reader.unit is not None:
        count_us = _counted_us(reader.unit, reader.origin, reader.zone)
    at_us = parse_instant_us(found.get("time"), zone, reader.now_us, count_us)
    tags = parse_tags(found.get("tags"), text)
    return Post(_post_id(found, user, at_us, text, reader), user, at_us, text, tags)


def _post_id(found: PostFields, user: str, at_us: int, text: str, reader: PostReader) -> str:
    """The id of a post in the source; a digest for tables without ids."""
    given = (_as_text(found.get("id")) or "").strip()
    if not given:
        if reader.form not in TABLES or "id" in reader.columns:
            raise InvalidPost("no id")
        digest = blake2b(f"{user}\n{at_us}\n{text}".encode(), digest_size=12)
        return digest.hexdigest()
    try:
        return as_object_id(given)
    except InputError as error:
        raise InvalidPost("bad id") from error


def _from_number_us(value: float) -> int:
    if isinstance(value, bool) or not 0 <= value < 1e18:
        raise InvalidPost("bad time")
    unit = SECOND_US if value < 1e11 else 1_000 if value < 1e14 else 1
    return round(value * unit)


@lru_cache(maxsize=16)
def _counted_us(unit: str, origin: str | None, zone: str | None) -> Callable[[float], int]:
    """The instant of a number in a unit, from an origin."""
    try:
        origin_us = parse_instant_us(origin, parse_zone(zone or "UTC")) if origin else 0
    except InvalidPost as error:
        raise OptionError(f"{safe_repr(origin)} is no time; write 2015-09-19T11:45Z") from error

    def count_us(value: float) -> int:
        if isinstance(value, bool) or not 0 <= value < 1e18:
            raise InvalidPost("bad time")
        return origin_us + round(value * UNITS[unit])

    return count_us


def parse_instant_us(
    value: object,
    zone: tzinfo = UTC,
    now_us: int = INSTANT_MAX_US,
    count_us: Callable[[float], int] = _from_number_us,
) -> int:
    """Parses the time of a post: ISO 8601, the formats of Twitter 1.1 and of e-mail, or a number.

    By default, numbers count from 1970, in seconds, milliseconds or microseconds depending on their
    magnitude; `count_us` may do it otherwise.
    """
    if isinstance(value, str):
        value = _clean_time(value)
        if _NUMBER.fullmatch(value):
            value = int(value) if value.isdigit() else float(value)
    if value is None or value == "":
        raise InvalidPost("no time")
    at_us = count_us(value) if isinstance(value, int | float) else _from_text_us(value, zone)
    if not 0 <= at_us <= INSTANT_MAX_US:
        raise InvalidPost("bad time")
    if at_us > now_us:
        raise InvalidPost("time in the future")
    return at_us


def _from_text_us(value: object, zone: tzinfo) -> int:
    if not isinstance(value, str):
        raise InvalidPost("bad time")
    moment = _parse_moment(value)
    try:
        return as_instant_us(moment if moment.tzinfo else moment.replace(tzinfo=zone), 0)
    except (InputError, OverflowError) as error:
        raise InvalidPost("bad time") from error


def _parse_moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(_UTC_WORD.sub("+00:00", text))
    except ValueError:
        pass
    try:
        return datetime.strptime(text, _TWITTER_TIME)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidPost("bad time") from error


def lacks_zone(value: object) -> bool:
    """Whether a valid time is given as text without a time zone."""
    if not isinstance(value, str) or _NUMBER.fullmatch(text := _clean_time(value)):
        return False
    return _parse_moment(text).tzinfo is None


def _clean_time(text: str) -> str:
    return text.replace("\0", "").strip()


def parse_tags(given: object, text: str) -> tuple[Tag, ...]:
    """The tags listed by the source, or else the hashtags in the text.

    Words that cannot be tags, such as `and`, are omitted: no query could contain them.
    """
    if isinstance(given, str):
        words: list[object] = [*filter(None, _TAG_SEPARATOR.split(given))]
    elif isinstance(given, list):
        words = [word.removeprefix("#") if isinstance(word, str) else word for word in given]
    else:
        words = [*find_hashtags(text)]
    if not words:
        return ()
    tags: set[Tag] = set()
    for word in words:
        try:
            tags.add(as_tag(word))  # type: ignore[arg-type]  # as_tag rejects values other than text
        except TagError:
            continue
    if len(tags) > TAGS_PER_OBJECT_MAX:
        raise InvalidPost(f"more than {TAGS_PER_OBJECT_MAX} tags")
    return tuple(sorted(tags))


def _as_text(value: object) -> str | None:
    """Text, or an integer as text; None for any other value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.replace("\0", "") if isinstance(value, str) else None


class _MarkupReader(HTMLParser):
    """Collects the text of a document; paragraphs and line breaks become line breaks."""

    _BLOCKS = frozenset({"p", "div", "li", "ul", "ol", "blockquote", "pre", "h1", "h2", "h3"})

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "br" or tag in self._BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def text_of_markup(markup: str) -> str:
    """The text of HTML, as a reader sees it."""
    reader = _MarkupReader()
    reader.feed(markup)
    reader.close()
    return "".join(reader.parts).strip("\n")


# The fields of each format


def _get_path(fields: object, *path: str) -> Any:
    """The value at a path of names in nested objects; None if the path is missing."""
    for name in path:
        if not isinstance(fields, dict):
            return None
        fields = fields.get(name)
    return fields


def _field_of_each(values: object, name: str) -> list[object] | None:
    """One field of each object in a list."""
    if not isinstance(values, list):
        return None
    return [value.get(name) for value in values if isinstance(value, dict)]


def _twitter_v2(fields: PostFields, _: PostReader) -> PostFields:
    # The stream wraps each post in `data`; `split_page` has split pages, with lists there.
    post = fields["data"] if isinstance(fields.get("data"), dict) else fields
    text = _get_path(post, "note_tweet", "text") or post.get("text")
    return {
        "id": post.get("id"),
        "user": post.get("author_id"),
        "time": post.get("created_at"),
        "text": unescape(text) if isinstance(text, str) else text,
        "tags": _field_of_each(_get_path(post, "entities", "hashtags"), "tag"),
    }


def _twitter_v1(fields: PostFields, _: PostReader) -> PostFields:
    whole = fields.get("extended_tweet")
    text = _get_path(whole, "full_text") or fields.get("full_text") or fields.get("text")
    hashtags = _get_path(whole, "entities", "hashtags") or _get_path(fields, "entities", "hashtags")
    return {
        "id": fields.get("id_str") or fields.get("id"),
        "user": _get_path(fields, "user", "id_str")
        or _get_path(fields, "user", "id")
        or _get_path(fields, "user", "screen_name"),
        "time": fields.get("created_at") or fields.get("timestamp_ms"),
        "text": unescape(text) if isinstance(text, str) else text,
        "tags": _field_of_each(hashtags, "text"),
    }


def _mastodon(fields: PostFields, _: PostReader) -> PostFields:
    content = fields.get("content")
    return {
        "id": fields.get("id"),
        "user": _get_path(fields, "account", "acct") or _get_path(fields, "account", "id"),
        "time": fields.get("created_at"),
        "text": text_of_markup(content) if isinstance(content, str) else content,
        "tags": _field_of_each(fields.get("tags"), "name"),
    }


def _bluesky(fields: PostFields, _: PostReader) -> PostFields:
    """Fields of a post view, or of a commit in the stream of all posts."""
    commit = fields.get("commit")
    record = _get_path(commit, "record") or fields.get("record")
    user = fields.get("did") if commit else _get_path(fields, "author", "did")
    uri = fields.get("uri")
    key = _get_path(commit, "rkey") or (uri.rpartition("/")[2] if isinstance(uri, str) else None)
    words = _get_path(record, "tags")
    words = list(words) if isinstance(words, list) else []
    for facet in _get_path(record, "facets") or []:
        words += [
            word for word in _field_of_each(_get_path(facet, "features"), "tag") or [] if word
        ]
    return {
        # The URI of a post may be too long for an object id; user and key are as unique.
        "id": f"{user}/{key}" if user and key else None,
        "user": user,
        "time": _get_path(record, "createdAt") or fields.get("time_us"),
        "text": _get_path(record, "text"),
        "tags": words or None,
    }


def _table_row(fields: PostFields, reader: PostReader) -> PostFields:
    columns = reader.columns
    if columns:
        return {name: fields.get(columns.get(name, name)) for name in COLUMNS}
    return fields


_FIELD_READERS: dict[str, Callable[[PostFields, PostReader], PostFields]] = {
    "twitter-v2": _twitter_v2,
    "twitter-v1": _twitter_v1,
    "mastodon": _mastodon,
    "bluesky": _bluesky,
    "csv": _table_row,
    "jsonl": _table_row,
    "parquet": _table_row,
}
