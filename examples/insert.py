"""Insert: stores an object with tags and a summary; its key identifies it from then on.

Prints:

    key: photo-1 of this node
    guarantee refused: unsupported
"""

import asyncio
from datetime import timedelta

import thyme


async def main() -> None:
    async with thyme.join("lisbon") as world:
        key = await world.insert(
            b"\xff\xd8 a photo",
            tags=["goal", "eder"],
            summary="79' 1-0",  # part of every notification
            oid="photo-1",  # unique among your objects; random without
            ttl=timedelta(hours=2),  # the object expires after two hours
        )
        owner = "this node" if key.owner == world.node_id else "another node"
        print(f"key: {key.oid} of {owner}")

        try:
            await world.insert(b"", tags=["goal"], durable=True)  # but this world is in memory
        except thyme.OperationError as error:
            print("guarantee refused:", error.code)


asyncio.run(main())
