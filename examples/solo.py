"""Solo: a local world in a directory; its objects and subscriptions survive a restart.

Prints:

    consumed: photo-1
    after the restart: photo-2
    worlds in the directory: lisbon
"""

import asyncio
import tempfile

import thyme


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with thyme.join("lisbon", data=directory) as world:
            feed = await world.subscribe("goal")
            await world.insert(b"1", tags=["goal"], oid="photo-1")
            await world.insert(b"2", tags=["goal"], oid="photo-2")
            print("consumed:", (await anext(feed)).key.oid)

        async with thyme.join("lisbon", data=directory) as world:
            feed = await world.resume(feed.sid)
            print("after the restart:", (await anext(feed)).key.oid)

        print("worlds in the directory:", *(info.name for info in thyme.worlds(directory)))


asyncio.run(main())
