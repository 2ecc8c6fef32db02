"""World choice: a world that was joined by its name, and never answered, is not kept for good.

In an open world anybody can announce a world of the same name, or the same world with a false
server. A node that joined by name remembers when its world answered: the server of an ES world with
a code that only it can compute, any other world with a neighbour. A stored choice that never did is
dropped at the next start if another world of the name is announced, and nothing was stored in it.
Entry points: `keeps_choice`, `choose_again`, `AnswerWatch`. Worlds are found by `discovery`.
Clauses: M21, B5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from thyme.live.discovery import LISTEN_S, discover_worlds
from thyme.live.node_options import NodeOptions
from thyme.live.sockets import Sockets
from thyme.model.worlds import WorldInfo, is_auto_world
from thyme.storage.node_profile import NodeProfile
from thyme.storage.store import RecordTable, Store
from thyme.substrates.common.catalogue import OBJECTS
from thyme.substrates.dcs.state.replica_store import REPLICAS

_ANSWERED = RecordTable("world answered", bool)
_WATCH_S = 1.0
_CHOSEN_BY_NAME = ("es", "ls", "dcs")


def save_answered(store: Store) -> None:
    """Remembers that the world of a node answered."""
    store.put(_ANSWERED, "world", True)
    store.commit()


def has_answered(store: Store) -> bool:
    """Whether the world of a node ever answered."""
    return any(answered for _, answered in store.load(_ANSWERED))


def keeps_choice(options: NodeOptions, profile: NodeProfile, store: Store) -> bool:
    """Whether a node stays in the world of its store, whatever worlds are announced."""
    world = profile.world
    if options.create or options.secret is not None or world.closed:
        return True
    if world.substrate not in _CHOSEN_BY_NAME or options.world != world.name:
        return True
    if world.server == profile.node_id or has_answered(store):
        return True
    return (
        next(store.load(OBJECTS), None) is not None or next(store.load(REPLICAS), None) is not None
    )


async def choose_again(
    profile: NodeProfile, sockets: Sockets, rng: Random, seconds: float = LISTEN_S
) -> NodeProfile:
    """The profile of a node whose world never answered: in another world of the name, if one is
    announced; else the same one."""
    name = profile.world.name
    discovered = await discover_worlds(sockets, seconds, name=name)
    others = [
        world
        for world in discovered.descriptions
        if world.name == name and world != profile.world and not is_auto_world(world)
    ]
    return NodeProfile(rng.choice(others), profile.node_id) if others else profile


class AnswerWatch:
    """Looks every second whether the world of a node has answered, until it has."""

    def __init__(
        self, store: Store, answers: Callable[[], bool], is_closed: Callable[[], bool]
    ) -> None:
        """`answers` says whether the world has answered, `is_closed` whether the node ended."""
        self._store = store
        self._answers = answers
        self._is_closed = is_closed
        if not has_answered(store):
            self._look_later()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(_WATCH_S, self._look)

    def _look(self) -> None:
        if self._is_closed():
            return
        if self._answers():
            save_answered(self._store)
        else:
            self._look_later()


def find_namesakes(own: WorldInfo, received: dict[str, WorldInfo]) -> list[str]:
    """The ids of other worlds here that have the name of a world. Nodes that choose their substrate
    and a server that they may use are in worlds of one name on purpose."""
    return sorted(
        wid
        for wid, world in received.items()
        if world.name == own.name
        and wid != own.world_id
        and not is_auto_world(world)
        and not (is_auto_world(own) and world.substrate == "es")
    )
