"""Subscribe: a query over tags notifies of stored objects first, then of new ones.

Prints:

    stored: 12' a corner
    new: 79' 1-0
    active subscriptions: 0
"""

import asyncio

import thyme


async def main() -> None:
    async with thyme.join("lisbon") as world:
        await world.insert(b"...", tags=["corner", "ronaldo"], summary="12' a corner")

        feed = await world.subscribe("(goal | corner) & !replay")
        await world.insert(b"...", tags=["goal", "replay"], summary="not notified")
        await world.insert(b"...", tags=["goal", "eder"], summary="79' 1-0")

        for _ in range(2):
            note = await anext(feed)  # or: async for note in feed
            print("stored:" if note.from_history else "new:", note.summary.decode())

        await feed.cancel()
        print("active subscriptions:", len(await world.subscriptions()))


asyncio.run(main())
