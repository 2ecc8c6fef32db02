"""Object versions: updates of an object, each of which is an immutable object of its own.

A version has the object id of the first one, followed by `~` and its version number, which counts
microseconds and grows with each update. All versions but the first have a tag that names the
object, so a query finds them in every substrate. The version with the largest number is the latest,
in whatever order versions arrive; earlier ones stay until they are deleted or expire.
Entry points: `make_version`, `version_number`, `version_tag`, `sort_versions`.
Clauses: B9.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

from thyme.model.errors import InputError
from thyme.model.ids import Key, ObjectId, as_object_id
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag, as_tag

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NUMBER_CHARS = 11
_VERSION = re.compile(f"(.+)~([{_DIGITS}]{{{_NUMBER_CHARS}}})", re.DOTALL)
NUMBER_MAX = 36**_NUMBER_CHARS - 1
FIRST = 0
"""Number of the first version."""


def first_key(key: Key) -> Key:
    """The key of the first version of an object, given that of any version."""
    found = _VERSION.fullmatch(key.oid)
    return key if found is None else Key(ObjectId(found[1]), key.owner)


def version_number(key: Key) -> int:
    """The number of a version; `FIRST` for the first one."""
    found = _VERSION.fullmatch(key.oid)
    return FIRST if found is None else int(found[2], 36)


def version_tag(key: Key) -> Tag:
    """The tag of all later versions of an object; a subscription to it follows the object."""
    digest = blake2b(str(first_key(key)).encode(), digest_size=12).hexdigest()
    return as_tag(f"version-of:{digest}")


def make_version(key: Key, latest_number: int, now_us: int) -> Key:
    """The key of the next version of an object: later than the latest one, also if the clock was
    set back."""
    number = max(latest_number + 1, now_us)
    if number > NUMBER_MAX:
        raise InputError(f"the version number {number} is too large")
    digits = ""
    while len(digits) < _NUMBER_CHARS:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    first = first_key(key)
    try:
        return Key(as_object_id(f"{first.oid}~{digits}"), first.owner)
    except InputError:
        raise InputError(
            f"the object id {first.oid} is too long for versions: {_NUMBER_CHARS + 1} bytes more "
            "must fit"
        ) from None


def sort_versions(key: Key, found: Iterable[Metadata]) -> list[Metadata]:
    """The versions of an object among some objects, the latest first, each once."""
    first = first_key(key)
    versions = {each.key: each for each in found if first_key(each.key) == first}
    return sorted(versions.values(), key=lambda each: version_number(each.key), reverse=True)
