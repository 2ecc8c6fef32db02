"""Discovery: which worlds there are around, from the greetings of their nodes.

Of a closed world everybody hears the name, and those who know its secret the rest.
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
"""For how many closed worlds of one name a secret is tried; each takes a moment."""
LISTEN_S = 2.5
"""Long enough for two greetings of everybody, so that one may be lost."""

Worlds = dict[str, WorldInfo]
"""Worlds by identifier."""


class Heard:
    """What was heard of."""

    def __init__(self, wanted: str | None = None, secret: str | None = None) -> None:
        """A secret is tried on the closed worlds that are called as wanted."""
        self._wanted = wanted
        self._secret = secret
        self._doors: dict[str, Seal] = {}
        self.worlds: Worlds = {}
        self.closed: Worlds = {}
        """Those of which only the name was told."""

    def hear(self, datagram: bytes) -> bytes | None:
        """A datagram came; returns what is to be sent back, if anything."""
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
        """Whether some world is called so."""
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
    """Listens for a while, or until it is enough."""
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
    """The world of a name, or of an identifier; raises when a name means several."""
    if wanted in worlds:
        return worlds[wanted]
    named = [world for world in worlds.values() if world.name == wanted]
    if len(named) > 1:
        raise WorldError(
            f"{len(named)} worlds here are called {shown(wanted)}: name one by its identifier, "
            + " or ".join(sorted(world.wid for world in named))
        )
    return named[0] if named else None


def not_found(heard: Heard, wanted: str, *, secret: bool) -> WorldError:
    """What to say when a world cannot be joined."""
    if heard.is_there(wanted):
        words = "this secret does not open it" if secret else "it takes a secret (--secret-file)"
        return WorldError(f"the world {shown(wanted)} is closed, and {words}")
    known = {**heard.worlds, **heard.closed}
    names = ", ".join(sorted(shown(world.name) for world in known.values()))
    return WorldError(
        f"no world {shown(wanted)} was heard here ("
        + (f"there is {names}" if names else "nor any other; is this the right interface?")
        + "); --create makes it"
    )
