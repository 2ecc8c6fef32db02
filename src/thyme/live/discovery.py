"""Discovery: finds the worlds of the nodes in range from the hellos that they send.

The hello of a closed world shows its name; the rest can be read only with the secret.
Entry points: `discover_worlds`, `select_world`. Nodes send the hellos in `thyme.transport.link`.
Clauses: M21, B5.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from thyme.live.datagrams import SEALED_MAGIC, Hello, decode
from thyme.live.seal import Seal, world_key
from thyme.live.sockets import Sockets
from thyme.live.terms import Address
from thyme.model.errors import DecodeError, WorldError, shown
from thyme.model.worlds import WorldInfo

WORLDS_MAX = 1_000
DOORS_MAX = 8
"""Maximum number of closed worlds of one name to try a secret on; deriving each key is slow."""
LISTEN_S = 2.5
"""Long enough for two hellos of every node, so that one may be lost."""

Worlds = dict[str, WorldInfo]
"""Worlds by world id."""


class Heard:
    """Worlds announced by the hellos received so far."""

    def __init__(self, wanted: str | None = None, secret: str | None = None) -> None:
        """`secret` is tried on closed worlds whose name or id is `name`."""
        self._wanted = wanted
        self._secret = secret
        self._doors: dict[str, Seal] = {}
        self.worlds: Worlds = {}
        self.closed: Worlds = {}
        """Closed worlds, of which only name and id are known."""

    def hear(self, datagram: bytes) -> bytes | None:
        """Reads a received datagram; returns the datagram to send back, if any."""
        try:
            if datagram.startswith(SEALED_MAGIC):
                return self._open(datagram)
            content = decode(datagram).content
        except DecodeError:
            return None
        if isinstance(content, Hello) and content.closed:
            self._on_closed(content.world)
        elif isinstance(content, Hello) and len(self.worlds) < WORLDS_MAX:
            self.worlds.setdefault(content.world.wid, content.world)
        return None

    def is_there(self, name: str) -> bool:
        """Whether an open or closed world has this name or id."""
        both = (*self.worlds.values(), *self.closed.values())
        return any(name in (world.name, world.wid) for world in both)

    def _on_closed(self, world: WorldInfo) -> None:
        if len(self.closed) < WORLDS_MAX:
            self.closed.setdefault(world.wid, world)
        if self._secret is None or self._wanted not in (world.name, world.wid):
            return
        if world.wid not in self._doors and len(self._doors) < DOORS_MAX:
            self._doors[world.wid] = Seal(world_key(self._secret, world), world, os.urandom)

    def _open(self, sealed: bytes) -> bytes | None:
        for wid, door in self._doors.items():
            try:
                opened = door.open(sealed)
            except DecodeError:
                continue
            for datagram in opened.datagrams:
                content = decode(datagram).content
                if isinstance(content, Hello) and content.world.wid == wid:
                    self.worlds[wid] = content.world
            return opened.reply
        return None


async def hear_worlds(
    sockets: Sockets,
    for_s: float = LISTEN_S,
    enough: Callable[[Heard], bool] = lambda _: False,
    *,
    wanted: str | None = None,
    secret: str | None = None,
) -> Heard:
    """Collects the hellos received until `is_complete` returns True or the timeout ends."""
    heard = Heard(wanted, secret)
    satisfied = asyncio.Event()

    def on_datagram(datagram: bytes, address: Address) -> None:
        reply = heard.hear(datagram)
        if reply is not None:
            sockets.send(reply, address)
        if enough(heard):
            satisfied.set()

    before, sockets.on_datagram = sockets.on_datagram, on_datagram
    try:
        await asyncio.wait_for(satisfied.wait(), for_s)
    except TimeoutError:
        pass
    finally:
        sockets.on_datagram = before
    return heard


def pick(worlds: Worlds, wanted: str) -> WorldInfo | None:
    """The world with this id or name; raises `WorldError` if several worlds have the name."""
    if wanted in worlds:
        return worlds[wanted]
    named = [world for world in worlds.values() if world.name == wanted]
    if len(named) > 1:
        raise WorldError(
            f"{len(named)} worlds here are called {shown(wanted)}: choose one by its id, "
            + " or ".join(sorted(world.wid for world in named))
        )
    return named[0] if named else None


def not_found(heard: Heard, wanted: str, *, secret: bool) -> WorldError:
    """Error for a world that was not found or could not be decrypted."""
    if heard.is_there(wanted):
        reason = "this secret does not open it" if secret else "needs a secret (--secret-file)"
        return WorldError(f"the world {shown(wanted)} is closed: {reason}")
    known = {**heard.worlds, **heard.closed}
    names = ", ".join(sorted(shown(world.name) for world in known.values()))
    return WorldError(
        f"no world {shown(wanted)} was found ("
        + (f"found: {names}" if names else "none at all; is this the right interface?")
        + "); use --create to create it"
    )
