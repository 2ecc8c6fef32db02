"""Announcement: the address of a gallery, as the summary of an object in its world.

The object is signed by its node as all objects are, expires, and holds no invitation: who reads it
learns where the gallery is, and cannot come in. Announcements come from strangers:
`decode_announcement` accepts any bytes. Entry points: `Announcement`, `encode_announcement`,
`decode_announcement`.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from thyme.gallery.summary import NAME_CHARS_MAX, clean_text

ADDRESS_TAG = "gallery-address"
"""The tag of announcements, by which galleries find each other."""
PREFIX = b"thyme-gallery/1\n"
URL_CHARS_MAX = 200
KEY_BYTES = 32
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,100}}\Z){_LABEL}(\.{_LABEL})+\Z")


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a gallery is, the name of its host, and the public key of its passes."""

    url: str
    name: str
    key: bytes


def encode_announcement(announcement: Announcement) -> bytes:
    """Encodes an announcement."""
    return PREFIX + msgspec.msgpack.encode(announcement)


def decode_announcement(data: bytes) -> Announcement | None:
    """Decodes an announcement; None if it is none, or its address is not that of a gallery."""
    if not data.startswith(PREFIX):
        return None
    try:
        found = msgspec.msgpack.decode(data[len(PREFIX) :], type=Announcement)
    except msgspec.MsgspecError:
        return None
    if len(found.key) != KEY_BYTES or not is_gallery_url(found.url):
        return None
    return msgspec.structs.replace(found, name=clean_text(found.name, NAME_CHARS_MAX))


def is_gallery_url(url: str) -> bool:
    """Whether a URL can be that of a gallery in the same network.

    That is `http://ADDRESS:PORT` with an address for private networks, or `https://NAME:PORT`: a
    stranger cannot lead people to a plain page on the internet, nor to another path.
    """
    if len(url) > URL_CHARS_MAX or not url.isascii() or not url.isprintable():
        return False
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    host = parts.hostname or ""
    if not port or url != f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}":
        return False
    try:
        address = ip_address(host)
    except ValueError:
        return parts.scheme == "https" and _HOST_NAME.match(host) is not None
    reachable = not (address.is_unspecified or address.is_multicast)
    return parts.scheme in ("http", "https") and address.is_private and reachable


def is_loopback_url(url: str) -> bool:
    """Whether only this machine can open a URL."""
    try:
        return ip_address(urlsplit(url).hostname or "").is_loopback
    except ValueError:
        return False
