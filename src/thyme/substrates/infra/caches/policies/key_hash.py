"""Hashes of keys that are equal in every process.

Python's own hash of text and bytes differs from process to process, and a frequency sketch must
not: same scenario and seed, same evictions.
"""

from __future__ import annotations

from zlib import crc32

from thyme.model.errors import InputError
from thyme.model.ids import Key

# Odd, without a pattern, and of 29 bits: a product with 32 bits needs no integer of two words.
_FIRST_MULTIPLIER = 0x1E37_79B1
_SECOND_MULTIPLIER = 0x11B5_4A35
_WIDE = 0xFFFF_FFFF_FFFF_FFFF
_HALF = 0xFFFF_FFFF
_LOW = 0x3FFF_FFFF  # 30 bits: Python computes with such integers fastest


def hash_pair(key: object) -> tuple[int, int]:
    """Two independent hashes of 30 bits of a cache key.

    A cache key is an integer, text, bytes, an object's key, or a tuple of these.
    """
    number = key if type(key) is int else _fingerprint(key)
    if not 0 <= number <= _HALF:
        number = (number ^ number >> 32) & _HALF
    # The second hash is of other bits than the first: `>>` mixes high bits into low ones.
    second = (number ^ number >> 15) * _SECOND_MULTIPLIER
    return number * _FIRST_MULTIPLIER >> 16 & _LOW, second >> 18 & _LOW


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
                # A CRC of the numbers: it tells apart tuples with the same parts in another order.
                number = crc32((_fingerprint(part) & _WIDE).to_bytes(8, "big"), number)
            return number
        case _:
            raise InputError(
                "a cache key is an integer, text, bytes, an object's key, or a tuple of these, "
                f"not {type(key).__name__}"
            )
