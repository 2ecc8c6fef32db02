"""Retrieve: gets the bytes of a notified object and verifies them.

Prints:

    notified: 9 bytes
    retrieved: b'the photo'
    not notified: not_found
"""

import asyncio

import thyme


async def main() -> None:
    async with thyme.join("lisbon") as world:
        feed = await world.subscribe("goal")
        await world.insert(b"the photo", tags=["goal"], oid="photo-1")

        note = await anext(feed)  # metadata only
        print("notified:", note.metadata.size, "bytes")
        print("retrieved:", await world.retrieve(note))

        other = await world.insert(b"a poster", tags=["advert"])
        try:
            await world.retrieve(other)  # only notified objects can be retrieved
        except thyme.OperationError as error:
            print("not notified:", error.code)


asyncio.run(main())
