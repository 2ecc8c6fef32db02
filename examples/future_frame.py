"""Future frame: a subscription to an interval that has not begun, and that ends by itself.

Prints:

    notified: inside
    ended: its frame is over
"""

import asyncio
from datetime import timedelta

import thyme


async def main() -> None:
    async with thyme.join("lisbon") as world:
        feed = await world.subscribe(
            "goal",
            start=timedelta(seconds=0.5),  # from now; datetimes and microseconds work, too
            end=timedelta(seconds=1.5),
        )
        await world.insert(b"...", tags=["goal"], summary="too early")
        await asyncio.sleep(1)
        await world.insert(b"...", tags=["goal"], summary="inside")

        async for note in feed:  # until the frame ends
            print("notified:", note.summary.decode())
        print("ended:", feed.end_reason)


asyncio.run(main())
