"""Metadata removal: drops the parts of picture and video files that tell place, device and time.

The pictures themselves are not encoded again. Damaged files raise `ValueError`.
Entry points: `clean_jpeg`, `clean_png`, `clean_webp`, `clean_mp4`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_SOI, _EOI = b"\xff\xd8", b"\xff\xd9"
_START_OF_SCAN = 0xDA
_ICC_PREFIX = b"ICC_PROFILE\0"
_PNG_DROPPED = (b"eXIf", b"tEXt", b"iTXt", b"zTXt", b"tIME")
_WEBP_DROPPED = (b"EXIF", b"XMP ")
_VP8X_METADATA = 0x08 | 0x04
_MP4_CONTAINERS = (b"moov", b"trak")
_MP4_DROPPED = (b"udta", b"meta", b"uuid")
_WIPE_BYTES = 64 * 2**10


def clean_jpeg(data: bytes, exif: bytes = b"") -> bytes:
    """A JPEG file without metadata but `exif`, and without what follows the picture."""
    if data[:2] != _SOI:
        raise ValueError("not a JPEG file")
    kept = [_SOI]
    if exif:
        kept.append(b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif)
    at = 2
    while data[at : at + 2] != _EOI:
        while data[at : at + 2] == b"\xff\xff":  # fill bytes
            at += 1
        if at + 4 > len(data) or data[at] != 0xFF:
            raise ValueError("a JPEG segment is broken")
        marker = data[at + 1]
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if end > len(data):
            raise ValueError("the JPEG file ends early")
        if _keeps_jpeg_segment(marker, data[at + 4 : at + 16]):
            kept.append(data[at:end])
        at = end
        if marker == _START_OF_SCAN:
            at = _end_of_scan(data, end)
            kept.append(data[end:at])
    kept.append(_EOI)
    return b"".join(kept)


def _keeps_jpeg_segment(marker: int, head: bytes) -> bool:
    """Comments and application data are dropped but JFIF, colour profile and Adobe's transform."""
    if marker == 0xFE:
        return False
    if 0xE0 <= marker <= 0xEF:
        return marker in (0xE0, 0xEE) or (marker == 0xE2 and head.startswith(_ICC_PREFIX))
    return True


def _end_of_scan(data: bytes, at: int) -> int:
    """The position of the next marker after compressed data."""
    while (at := data.find(b"\xff", at)) >= 0:
        follower = data[at + 1 : at + 2]
        if follower and follower[0] != 0 and not 0xD0 <= follower[0] <= 0xD7:
            return at
        at += 1 if follower == b"\xff" else 2
    raise ValueError("the JPEG file ends early")


def clean_png(data: bytes) -> bytes:
    """A PNG file without text, time and EXIF, and without what follows the picture."""
    kept = [data[:8]]
    at = 8
    while at + 12 <= len(data):
        kind = data[at + 4 : at + 8]
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            break
        if kind not in _PNG_DROPPED:
            kept.append(data[at:end])
        if kind == b"IEND":
            return b"".join(kept)
        at = end
    raise ValueError("the PNG file ends early")


def clean_webp(data: bytes) -> bytes:
    """A WebP file without EXIF and XMP."""
    kept = []
    at = 12
    end_of_file = min(len(data), 8 + int.from_bytes(data[4:8], "little"))
    while at + 8 <= end_of_file:
        kind, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        end = at + 8 + size + size % 2
        chunk = data[at:end]
        if kind == b"VP8X":
            chunk = chunk[:8] + bytes([chunk[8] & ~_VP8X_METADATA]) + chunk[9:]
        if kind not in _WEBP_DROPPED:
            kept.append(chunk)
        at = end
    body = b"WEBP" + b"".join(kept)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def clean_mp4(path: Path) -> None:
    """Overwrites the metadata of a video with zeros, in place: other positions stay the same."""
    with path.open("r+b") as file:
        size = path.stat().st_size
        dropped = list(_find_dropped_boxes(file, 0, size))
        for start, body, end in dropped:
            file.seek(start + 4)
            file.write(b"free")
            file.seek(body)
            while body < end:
                count = min(_WIPE_BYTES, end - body)
                file.write(bytes(count))
                body += count


def _find_dropped_boxes(file: BinaryIO, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Start, body and end of each box of metadata between two positions."""
    while at + 8 <= end:
        file.seek(at)
        head = file.read(16)
        size, kind, body = int.from_bytes(head[:4], "big"), head[4:8], at + 8
        if size == 1:
            size, body = int.from_bytes(head[8:16], "big"), at + 16
        stop = end if size == 0 else min(at + size, end)
        if stop < body:
            return
        if kind in _MP4_DROPPED:
            yield at, body, stop
        elif kind in _MP4_CONTAINERS:
            yield from _find_dropped_boxes(file, body, stop)
        at = stop
