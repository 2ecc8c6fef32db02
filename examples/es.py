"""Thyme-ES: one node is the server, the others are its clients. Needs the extra `live`.

Prints:

    substrate: es
    notified: 79' 1-0
    retrieved after the owner left: b'the photo'
"""

import asyncio
import secrets

import thyme

NAME = f"example-{secrets.token_hex(4)}"
LOOPBACK = "127.0.0.1"


async def main() -> None:
    async with (
        thyme.join_network(NAME, substrate="es", create=True, interface=LOOPBACK) as server,
        thyme.join_network(NAME, interface=LOOPBACK) as reader,
    ):
        print("substrate:", server.info.substrate)
        feed = await reader.subscribe("goal")
        async with thyme.join_network(NAME, interface=LOOPBACK) as publisher:
            await publisher.insert(b"the photo", tags=["goal"], summary="79' 1-0")

        note = await anext(feed)
        print("notified:", note.summary.decode())
        print("retrieved after the owner left:", await reader.retrieve(note))


asyncio.run(main())
