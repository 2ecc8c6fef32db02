"""Tags: the keywords of objects, by which queries find them.

A tag has one normal form (NFC, case-folded), so that equal tags are equal strings. Entry point:
`as_tag`, the only function that makes a `Tag`; every `Tag` is valid.
Clauses: M4.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import NewType

from thyme.model.errors import TagError, safe_repr

Tag = NewType("Tag", str)

TAG_BYTES_MAX = 128
TAGS_PER_OBJECT_MAX = 64
# Composing and folding can shorten a text; a longer one cannot become a valid tag.
_TEXT_CHARS_MAX = 8 * TAG_BYTES_MAX
OPERATORS = "&|!(),"
OPERATOR_WORDS = frozenset({"and", "or", "not"})


def as_tag(text: str) -> Tag:
    """Normalises a text to a tag; raises `TagError` for an invalid one."""
    if not isinstance(text, str):
        raise TagError(f"a tag is text, not {type(text).__name__}: {safe_repr(text)}")
    if not text:
        raise TagError("a tag cannot be empty")
    if len(text) > _TEXT_CHARS_MAX:
        raise TagError(f"a tag has at most {TAG_BYTES_MAX} bytes, this one {len(text)} characters")
    return _normalise(text)


@lru_cache(maxsize=65_536)
def _normalise(text: str) -> Tag:
    _check_characters(text)
    # Folding can leave NFC and composing can enable a fold: repeat both until nothing changes.
    folded = text
    while (again := _fold_once(folded)) != folded:
        folded = again
    if folded in OPERATOR_WORDS:
        raise TagError(f"{text!r} is a query operator and cannot be a tag")
    if (size := len(folded.encode())) > TAG_BYTES_MAX:
        raise TagError(f"a tag has at most {TAG_BYTES_MAX} bytes, {safe_repr(text, 30)} has {size}")
    return Tag(folded)


def as_tags(texts: Iterable[str]) -> tuple[Tag, ...]:
    """Normalises the tags of an object: sorted, distinct, at least one."""
    tags = tuple(sorted({as_tag(word) for word in as_tag_texts(texts)}))
    if not tags:
        raise TagError("an object needs at least one tag")
    if len(tags) > TAGS_PER_OBJECT_MAX:
        raise TagError(
            f"an object has at most {TAGS_PER_OBJECT_MAX} tags, this one has {len(tags)}"
        )
    return tags


def as_tag_texts(texts: object) -> Iterable[str]:
    """Returns a list of texts unchanged; raises `TagError` for a single text, which Python would
    iterate by characters, and for anything that is not iterable."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise TagError(f"tags are a list of words, not {type(texts).__name__}: {safe_repr(texts)}")
    return texts


def check_tags(tags: tuple[Tag, ...]) -> None:
    """Raises `TagError` for received tags that are not the output of `as_tags`."""
    if not _is_normalised(tags):
        raise TagError(f"tags must be normalised, sorted and distinct: {safe_repr(tags)}")


@lru_cache(maxsize=4_096)
def _is_normalised(tags: tuple[str, ...]) -> bool:
    return as_tags(tags) == tags


def _fold_once(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


def _check_characters(text: str) -> None:
    for position, char in enumerate(text):
        category = unicodedata.category(char)
        if char in OPERATORS:
            what = "query operator"
        elif char.isspace() or category[0] == "Z":
            what = "white space"
        elif category in ("Cc", "Cs"):
            what = "control character"
        else:
            continue
        error = TagError(
            f"a tag holds no {what}: {char!r} at character {position} of {safe_repr(text)}"
        )
        error.position = position
        raise error
