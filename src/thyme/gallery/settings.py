"""Settings of a gallery server, as given on the command line."""

from __future__ import annotations

from pathlib import Path

import msgspec

GALLERY_PORT = 8480
HOST_NAME = "Host"
"""Name of a host who was not asked for a name yet."""
RIGHTS = ("look", "publish", "approve")
"""Rights of a guest, each of which includes those before it. The host has all rights."""


class GallerySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a gallery server."""

    folder: Path
    """Folder for guests, uploads and thumbnails."""
    nodes: tuple[tuple[str, str], ...]
    """Name of each world, and the URL of a node in it."""
    host_name: str = HOST_NAME
    local: tuple[str, int] = ("127.0.0.1", GALLERY_PORT)
    """Address of the page for this machine, whose users have all rights."""
    lan: tuple[str, int] | None = None
    """Address of the page for guests; None to serve none."""
    lan_names: tuple[str, ...] = ()
    """Further host names by which guests reach this machine."""
    tls: tuple[Path, Path] | None = None
    """Files of the certificate and key for the page for guests."""
    guest_rights: str = "publish"
    approval: bool = False
    """Whether photos of guests wait until somebody approves them."""
    guest_bytes_max: int = 2 * 2**30
    guest_photos_max: int = 1_000
    upload_bytes_max: int = 2 * 2**30
    copies_bytes_max: int = 2 * 2**30
    """How much the node keeps of the photos of other nodes, in a world without cells."""
    session_s: float = 7 * 24 * 3600.0
    """How long a guest stays known without a new invitation."""
