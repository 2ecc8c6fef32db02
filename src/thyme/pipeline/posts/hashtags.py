"""Hashtags: finds the tags in the text of a post, by the rules that Twitter published.

A hashtag is # and letters, marks, digits and underscores of any script, with at least one letter or
mark; a digit, letter or & before the # rules it out, and so do :// and another # after it. Parts of
URLs are no hashtags. Entry point: `find_hashtags`.
Clause: P1.
"""

from __future__ import annotations

import re
from functools import lru_cache
from unicodedata import category

_HASH = re.compile("[#＃]")
# Printable ASCII: a text may go on in another script right after a URL.
_URL = re.compile(r"(?:https?://|www\.|\b[a-z0-9-]+(?:\.[a-z0-9-]+)+/)[!-~]*", re.IGNORECASE)
_JOINERS = frozenset(
    "_\u200c\u200d\ua67e\u05be\u05f3\u05f4\uff5e\u301c\u309b\u309c\u30a0\u30fb\u3003\u0f0b\u0f0c\u00b7"
)
"""Characters that hashtags may contain although they are neither letters nor digits."""
_EMOJI_PARTS = ("\ufe0f", "\u20e3")
"""Characters that turn # into an emoji."""
_LETTER, _OTHER, _NONE = 2, 1, 0
_ASCII_HASHTAG = re.compile(r"(?<![&\w])#(?=\w*[A-Za-z])(\w++)(?!#|://)", re.ASCII)


def find_hashtags(text: str) -> list[str]:
    """The hashtags of a text, without #, in order."""
    if not _HASH.search(text):
        return []
    plain = _URL.sub(" ", text) if "/" in text or "www." in text.lower() else text
    return _ASCII_HASHTAG.findall(plain) if plain.isascii() else _find_in_any_script(plain)


def _find_in_any_script(plain: str) -> list[str]:
    """The hashtags of a text without URLs, character by character."""
    found = []
    for sign in _HASH.finditer(plain):
        begin = end = sign.end()
        before = plain[begin - 2 : begin - 1]
        if before and (before == "&" or _kind(before)):
            continue
        has_letter = False
        while end < len(plain) and (kind := _kind(plain[end])):
            has_letter |= kind == _LETTER
            end += 1
        after = plain[end : end + 3]
        if has_letter and not after.startswith(("#", "＃", "://")):
            word = plain[begin:end]
            if not word.startswith(_EMOJI_PARTS):
                found.append(word)
    return found


@lru_cache(maxsize=16_384)
def _kind(char: str) -> int:
    """Whether a hashtag may contain a character, and whether it is a letter or mark."""
    group = category(char)
    if char in _EMOJI_PARTS:
        return _NONE
    if group[0] in "LM":
        return _LETTER
    return _OTHER if group == "Nd" or char in _JOINERS else _NONE
