"""Thyme-DCS: the devices of a place are the store, divided into cells. Needs the extra `live`.

Prints:

    substrate: dcs
    notified: 79' 1-0
    retrieved: b'the photo'
"""

import asyncio
import secrets
from contextlib import AsyncExitStack
from typing import Any

import thyme

NAME = f"example-{secrets.token_hex(4)}"
POSITIONS = [(60, 20), (20, 60), (60, 60)]


def device(position: tuple[float, float], **options: Any) -> thyme.World:
    return thyme.join_network(NAME, position=position, interface="127.0.0.1", **options)


async def main() -> None:
    async with AsyncExitStack() as devices:
        creator = device((20, 20), create=True, area=(80, 80), cell_m=40)  # four cells
        nodes = [await devices.enter_async_context(creator)]
        for position in POSITIONS:  # one device in each of the other cells
            nodes.append(await devices.enter_async_context(device(position)))
        print("substrate:", nodes[0].info.substrate)

        feed = await nodes[0].subscribe("goal")
        await nodes[3].insert(b"the photo", tags=["goal"], summary="79' 1-0")
        note = await anext(feed)
        print("notified:", note.summary.decode())
        print("retrieved:", await nodes[0].retrieve(note))


asyncio.run(main())
