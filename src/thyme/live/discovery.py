"""Discovery: which worlds there are around, from the greetings of their nodes.

Clauses: M21.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from thyme.live.datagrams import Hello, decode
from thyme.live.link import Address
from thyme.live.sockets import Sockets
from thyme.model.errors import DecodeError, WorldError, shown
from thyme.model.worlds import WorldInfo

WORLDS_MAX = 1_000
LISTEN_S = 2.5
"""Long enough for two greetings of everybody, so that one may be lost."""

Worlds = dict[str, WorldInfo]
"""The worlds heard of, by identifier."""


async def hear_worlds(
    sockets: Sockets, for_s: float = LISTEN_S, enough: Callable[[Worlds], bool] = lambda _: False
) -> Worlds:
    """Listens for a while, or until it is enough."""
    worlds: Worlds = {}
    satisfied = asyncio.Event()

    def on_datagram(datagram: bytes, address: Address) -> None:
        try:
            content = decode(datagram).content
        except DecodeError:
            return
        if isinstance(content, Hello) and len(worlds) < WORLDS_MAX:
            worlds.setdefault(content.world.wid, content.world)
            if enough(worlds):
                satisfied.set()

    before, sockets.on_datagram = sockets.on_datagram, on_datagram
    try:
        await asyncio.wait_for(satisfied.wait(), for_s)
    except TimeoutError:
        pass
    finally:
        sockets.on_datagram = before
    return worlds


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


def not_found(worlds: Worlds, wanted: str) -> WorldError:
    """What to say when a world does not answer."""
    names = ", ".join(sorted(shown(world.name) for world in worlds.values()))
    return WorldError(
        f"no world {shown(wanted)} was heard here ("
        + (f"there is {names}" if names else "nor any other; is this the right interface?")
        + "); --create makes it"
    )
