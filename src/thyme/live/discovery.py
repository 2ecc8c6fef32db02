"""Discovery: finds the worlds of the nodes in range from the hellos that they send.

The hello of a closed world shows its name; the rest can be read only with the secret.
Entry points: `discover_worlds`, `list_worlds`, `select_world`. Nodes send the hellos in
`thyme.transport.link`.
Clauses: M21, B5.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from msgspec.structs import replace

from thyme.live.sockets import NetworkConfig, Sockets
from thyme.model.errors import DecodeError, WorldError, safe_repr
from thyme.model.worlds import WorldInfo, is_auto_world
from thyme.transport.datagrams import (
    ENCRYPTED_MAGIC,
    Hello,
    decode,
    digest_world,
    read_world_digest,
)
from thyme.transport.encryption import DatagramCipher, derive_world_key
from thyme.transport.link_config import Address

WORLDS_MAX = 1_000
ANNOUNCED_MAX = 1_000
"""Maximum number of closed worlds of one name that are remembered."""
LISTEN_S = 2.5
"""Long enough for two hellos of every node, so that one may be lost."""

WorldsById = dict[str, WorldInfo]
"""Worlds by world id."""


class DiscoveredWorlds:
    """Worlds announced by the hellos received so far."""

    def __init__(self, name: str | None = None, secret: str | None = None) -> None:
        """`secret` is tried on closed worlds whose name or id is `name`."""
        self._name = name
        self._secret = secret
        self._candidates: dict[bytes, tuple[str, DatagramCipher]] = {}
        """Identifier and cipher of closed worlds, by their digest."""
        self._announced: dict[bytes, WorldInfo] = {}
        self.worlds: WorldsById = {}
        self.descriptions: list[WorldInfo] = []
        """Open worlds as they were described, the same one perhaps differently."""
        self.closed_worlds: WorldsById = {}
        """Closed worlds, of which only name and id are known."""

    def on_datagram(self, datagram: bytes) -> bytes | None:
        """Reads a received datagram; returns the datagram to send back, if any."""
        try:
            if datagram.startswith(ENCRYPTED_MAGIC):
                return self._decrypt(datagram)
            content = decode(datagram).content
        except DecodeError:
            return None
        if isinstance(content, Hello) and content.closed:
            self._add_closed(content.world)
        elif isinstance(content, Hello) and self._secret is None and len(self.worlds) < WORLDS_MAX:
            # With a secret, only a node that has it too is believed: its hello is encrypted.
            self.worlds.setdefault(content.world.world_id, content.world)
            if len(self.descriptions) < WORLDS_MAX and content.world not in self.descriptions:
                self.descriptions.append(content.world)
        return None

    def has_world(self, name: str) -> bool:
        """Whether an open or closed world has this name or id; that of nodes which choose their
        substrate does not count, since they would change to this world (B7)."""
        worlds = (*self.worlds.values(), *self.closed_worlds.values())
        found = (world for world in worlds if name in (world.name, world.world_id))
        return not all(map(is_auto_world, found))

    def _add_closed(self, world: WorldInfo) -> None:
        if len(self.closed_worlds) < WORLDS_MAX:
            self.closed_worlds.setdefault(world.world_id, world)
        if self._secret is None or self._name not in (world.name, world.world_id):
            return
        self._announced.setdefault(digest_world(world), world)
        while len(self._announced) > ANNOUNCED_MAX:
            del self._announced[next(iter(self._announced))]

    def _cipher_of(self, encrypted: bytes) -> tuple[str, DatagramCipher] | None:
        """The cipher of the closed world of a datagram. Deriving a key is slow, so the key of an
        announced world is derived once a datagram of it arrives: announcements cost nothing."""
        digest = read_world_digest(encrypted)
        known = self._candidates.get(digest)
        if known is None:
            world = self._announced.get(digest)
            if world is None or self._secret is None:
                return None
            cipher = DatagramCipher(derive_world_key(self._secret, world), world, os.urandom)
            known = self._candidates[digest] = world.world_id, cipher
        return known

    def _decrypt(self, encrypted: bytes) -> bytes | None:
        known = self._cipher_of(encrypted)
        if known is not None:
            wid, cipher = known
            try:
                decrypted = cipher.decrypt(encrypted)
            except DecodeError:
                return None
            for datagram in decrypted.datagrams:
                content = decode(datagram).content
                if isinstance(content, Hello) and content.world.world_id == wid:
                    self.worlds[wid] = content.world
            return decrypted.reply
        return None


async def discover_worlds(
    sockets: Sockets,
    timeout_s: float = LISTEN_S,
    is_complete: Callable[[DiscoveredWorlds], bool] = lambda _: False,
    *,
    name: str | None = None,
    secret: str | None = None,
) -> DiscoveredWorlds:
    """Collects the hellos received until `is_complete` returns True or the timeout ends."""
    discovered = DiscoveredWorlds(name, secret)
    complete = asyncio.Event()

    def on_datagram(datagram: bytes, address: Address) -> None:
        reply = discovered.on_datagram(datagram)
        if reply is not None:
            sockets.send(reply, address)
        if is_complete(discovered):
            complete.set()

    previous, sockets.on_datagram = sockets.on_datagram, on_datagram
    try:
        await asyncio.wait_for(complete.wait(), timeout_s)
    except TimeoutError:
        pass
    finally:
        sockets.on_datagram = previous
    return discovered


async def list_worlds(network: NetworkConfig, seconds: float = LISTEN_S) -> list[WorldInfo]:
    """The worlds of the nodes in range, by name; of a closed world only name and id are known."""
    sockets = Sockets(network)
    await sockets.open()
    try:
        discovered = await discover_worlds(sockets, seconds)
    finally:
        sockets.close()
    closed = [replace(world, closed=True) for world in discovered.closed_worlds.values()]
    worlds = [*discovered.worlds.values(), *closed]
    return sorted(worlds, key=lambda world: (world.name, world.world_id))


def select_world(worlds: WorldsById, name: str) -> WorldInfo | None:
    """The world with this id or name; raises `WorldError` if several worlds have the name."""
    if name in worlds:
        return worlds[name]
    named = [world for world in worlds.values() if world.name == name]
    named = [world for world in named if not is_auto_world(world)] or named
    if len(named) > 1:
        raise WorldError(
            f"{len(named)} worlds here are called {safe_repr(name)}: choose one by its id, "
            + " or ".join(sorted(world.world_id for world in named))
        )
    return named[0] if named else None


def not_found_error(discovered: DiscoveredWorlds, name: str, *, secret: bool) -> WorldError:
    """Error for a world that was not found or could not be decrypted."""
    if discovered.has_world(name):
        reason = "this secret does not open it" if secret else "needs a secret (--secret-file)"
        return WorldError(f"the world {safe_repr(name)} is closed: {reason}")
    known = {**discovered.worlds, **discovered.closed_worlds}
    names = ", ".join(sorted(safe_repr(world.name) for world in known.values()))
    return WorldError(
        f"no world {safe_repr(name)} was found ("
        + (f"found: {names}" if names else "none at all; is this the right interface?")
        + "); use --create to create it"
    )
