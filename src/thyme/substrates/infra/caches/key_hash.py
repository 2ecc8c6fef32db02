"""Hashes of keys that are equal in every process.

Python's own hash of text and bytes differs from process to process, and a frequency sketch must
not: same scenario and seed, same evictions.
"""

from __future__ import annotations

from zlib import crc32

from thyme.model.errors import InputError
from thyme.model.ids import Key

_MULTIPLIER = 0x9E37_79B9_7F4A_7C15  # 2^64 divided by the golden ratio
_MASK = 0xFFFF_FFFF_FFFF_FFFF


def key_hash(key: object) -> int:
    """A hash of 64 bits of an integer, text, bytes, an object's key, or a tuple of these."""
    number = (key if type(key) is int else _fingerprint(key)) * _MULTIPLIER & _MASK
    return (number ^ number >> 32) * _MULTIPLIER & _MASK


def _fingerprint(key: object) -> int:
    match key:
        case int():
            return key
        case str():
            return crc32(key.encode())
        case bytes():
            return crc32(key)
        case Key():
            return crc32(key.owner, crc32(key.oid.encode()))
        case tuple():
            number = len(key)
            for part in key:
                number = (number * _MULTIPLIER + _fingerprint(part)) & _MASK
            return number
        case _:
            raise InputError(
                "a cache key is an integer, text, bytes, an object's key, or a tuple of these, "
                f"not {type(key).__name__}"
            )
