"""Wire versions: the range of packet versions that a node reads and writes, and their agreement.

Each hello announces a range; two nodes use the newest version that both ranges contain. So a world
is upgraded node by node: a node that reads an older version, too, uses it with older neighbours.
Entry points: `agree_version`, `VersionRange`. Clauses: M25.
"""

from __future__ import annotations

import msgspec

from thyme.wire.codec import VERSION, VERSION_MIN


class VersionRange(msgspec.Struct, frozen=True, array_like=True):
    """The oldest and the newest packet version that a node reads and writes."""

    oldest: int = 1
    newest: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.oldest <= self.newest <= 255:
            raise ValueError("versions are numbers from 1 to 255, the oldest first")

    def __str__(self) -> str:
        return str(self.newest) if self.oldest == self.newest else f"{self.oldest}-{self.newest}"


OWN_VERSIONS = VersionRange(VERSION_MIN, VERSION)


def agree_version(own: VersionRange, other: VersionRange) -> int | None:
    """The newest version that both nodes read; None if there is none."""
    newest = min(own.newest, other.newest)
    return newest if newest >= max(own.oldest, other.oldest) else None


class UnknownVersion(msgspec.Struct, frozen=True):
    """A node of this world in range, with which no version is agreed."""

    address: tuple[str, int]
    versions: VersionRange | None
    """None if not even its datagrams are understood."""
    last_seen_us: int

    def advice(self, own: VersionRange) -> str:
        """What the user should do."""
        if self.versions is None or self.versions.oldest > own.newest:
            return "upgrade this node"
        return "upgrade the other node"
