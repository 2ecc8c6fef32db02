"""Fills a small disk; `test_full` runs it in a file system of its own: `full_disk.py DIR`.

Prints the result as JSON.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from pathlib import Path
from typing import Any

import thyme
from thyme.model.errors import DiskFullError
from thyme.model.ids import Key
from thyme.storage.node_profile import world_file
from thyme.storage.sqlite.store import SqliteStore

MIB = 2**20
NAME = f"full-{secrets.token_hex(4)}"


async def insert_until_full(world: thyme.World, size: int) -> tuple[list[Key], str]:
    """Inserts until the disk is full, several at once, since they share commits; returns the number
    stored and the error message."""
    taken: list[Key] = []
    while True:
        wanted = [world.insert(secrets.token_bytes(size), tags=["photo"]) for _ in range(4)]
        refused = ""
        for outcome in await asyncio.gather(*wanted, return_exceptions=True):
            if isinstance(outcome, DiskFullError):
                refused = str(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                taken.append(outcome)
        if refused:
            return taken, refused


async def story(directory: Path) -> dict[str, Any]:
    """Fills the disk three times: with objects, after deletes, and after other files were
    removed."""
    told: dict[str, Any] = {}
    filler = directory / "filler"
    filler.write_bytes(bytes(24 * MIB))
    world = thyme.join_network(
        NAME, substrate="es", create=True, data=directory / "data", interface="127.0.0.1"
    )
    async with world:
        first, told["words"] = await insert_until_full(world, MIB)
        told["first"] = len(first)
        notes = await world.subscribe("photo")
        told["past"] = notes.total == len(first)
        told["readable"] = len(await world.retrieve(await anext(notes))) == MIB
        for key in first[:4]:
            await world.delete(key)
        second, _ = await insert_until_full(world, MIB)
        told["after deletes"] = len(second)
        filler.unlink()
        third, _ = await insert_until_full(world, MIB)
        told["after others made room"] = len(third)
        left = {str(key) for key in (*first[4:], *second, *third)}
    store = SqliteStore(world_file(directory / "data", NAME))
    held = store.read("SELECT key FROM record WHERE shelf = 'object'")
    told["intact"] = left <= {key for (key,) in held}
    told["sound"] = store.read("PRAGMA integrity_check") == [("ok",)]
    store.close()
    return told


if __name__ == "__main__":
    print(json.dumps(asyncio.run(story(Path(sys.argv[1])))))
