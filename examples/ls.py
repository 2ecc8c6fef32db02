"""Thyme-LS: every node stores its own objects; subscriptions are flooded. Needs the extra `live`.

Prints:

    substrate: ls
    notified: from one, from other
    retrieved: b'the photo'
"""

import asyncio
import secrets

import thyme

NAME = f"example-{secrets.token_hex(4)}"
LOOPBACK = "127.0.0.1"


async def main() -> None:
    async with (
        thyme.join_network(NAME, substrate="ls", create=True, interface=LOOPBACK) as one,
        thyme.join_network(NAME, interface=LOOPBACK) as other,
        thyme.join_network(NAME, interface=LOOPBACK) as reader,
    ):
        print("substrate:", reader.info.substrate)
        feed = await reader.subscribe("goal")
        await one.insert(b"the photo", tags=["goal"], summary="from one")
        await other.insert(b"a clip", tags=["goal"], summary="from other")

        notes = {note.summary.decode(): note for note in [await anext(feed), await anext(feed)]}
        print("notified:", ", ".join(sorted(notes)))
        print("retrieved:", await reader.retrieve(notes["from one"]))


asyncio.run(main())
