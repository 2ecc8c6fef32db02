"""Delete: the owner removes an object; neither searches nor later subscriptions find it.

Prints:

    before: 2
    after: 1
    retrieve: not_found
"""

import asyncio

import thyme


async def main() -> None:
    async with thyme.join("lisbon") as world:
        await world.insert(b"a", tags=["goal"])
        key = await world.insert(b"b", tags=["goal"])
        print("before:", (await world.search("goal")).total)

        await world.delete(key)
        print("after:", (await world.search("goal")).total)
        try:
            await world.retrieve(key)
        except thyme.OperationError as error:
            print("retrieve:", error.code)


asyncio.run(main())
