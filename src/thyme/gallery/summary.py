"""Photo summaries: thumbnail, title and author of a photo, as the summary of its object.

The summary of an object travels with its notifications, so a page can show a photo before it is
retrieved. Entry points: `PhotoSummary`, `encode_summary`, `decode_summary`. Summaries come from
strangers: `decode_summary` accepts any bytes and limits every field.
"""

from __future__ import annotations

import msgspec

from thyme import errors

PREFIX = b"thyme-photo/1\n"
TITLE_CHARS_MAX = 500
NAME_CHARS_MAX = 80
FILE_NAME_CHARS_MAX = 120
THUMBNAIL_BYTES_MAX = 48 * 2**10
FILE_TYPE = "application/octet-stream"
PICTURE_TYPES = ("image/jpeg", "image/png", "image/webp", "image/gif")
VIDEO_TYPES = ("video/mp4", "video/webm")
SHOWN_TYPES = frozenset((*PICTURE_TYPES, *VIDEO_TYPES))
"""Types that a page may show; everything else is only downloaded."""
_PIXELS_MAX = 1_000_000


class PhotoSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a photo without its bytes. `by` is a claim of the node that published it."""

    title: str = ""
    by: str = ""
    file_name: str = ""
    type: str = FILE_TYPE
    width: int = 0
    height: int = 0
    taken_us: int | None = None
    """When the camera took the photo, by its own clock; None if it does not say."""
    thumbnail: bytes = b""


def encode_summary(summary: PhotoSummary) -> bytes:
    """Encodes a summary."""
    if len(summary.thumbnail) > THUMBNAIL_BYTES_MAX:
        raise errors.MetadataError(f"a thumbnail has at most {THUMBNAIL_BYTES_MAX} bytes")
    return PREFIX + msgspec.msgpack.encode(_limit(summary))


def decode_summary(data: bytes) -> PhotoSummary:
    """Decodes a summary; one of another application becomes the title."""
    if data.startswith(PREFIX):
        try:
            return _limit(msgspec.msgpack.decode(data[len(PREFIX) :], type=PhotoSummary))
        except msgspec.MsgspecError:
            return PhotoSummary()
    return PhotoSummary(title=clean_text(data.decode("utf-8", "replace"), TITLE_CHARS_MAX))


def clean_text(text: str, chars_max: int) -> str:
    """A text in one line, without control characters, shortened."""
    printable = "".join(char if char.isprintable() else " " for char in text[: 4 * chars_max])
    return " ".join(printable.split())[:chars_max]


def clean_file_name(text: str) -> str:
    """The last part of a path, without characters that are special in file names."""
    name = clean_text(text.replace("\\", "/").rpartition("/")[2], FILE_NAME_CHARS_MAX)
    return "".join("_" if char in '<>:"|?*' else char for char in name).strip(". ")


def _limit(summary: PhotoSummary) -> PhotoSummary:
    known = summary.type in SHOWN_TYPES
    fits = len(summary.thumbnail) <= THUMBNAIL_BYTES_MAX and _is_thumbnail(summary.thumbnail)
    return msgspec.structs.replace(
        summary,
        title=clean_text(summary.title, TITLE_CHARS_MAX),
        by=clean_text(summary.by, NAME_CHARS_MAX),
        file_name=clean_file_name(summary.file_name),
        type=summary.type if known else FILE_TYPE,
        width=min(max(summary.width, 0), _PIXELS_MAX),
        height=min(max(summary.height, 0), _PIXELS_MAX),
        thumbnail=summary.thumbnail if fits else b"",
    )


def _is_thumbnail(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP"
