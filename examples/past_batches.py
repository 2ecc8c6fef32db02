"""More: past matches come in batches, newest first, as many as the application asks for.

Prints:

    total: 5
    first batch: minute 4, minute 3
    next batch: minute 2, minute 1
    last batch: minute 0
"""

import asyncio

import thyme


async def main() -> None:
    async with thyme.join("lisbon") as world:
        for minute in range(5):
            await world.insert(b"...", tags=["goal"], summary=f"minute {minute}")

        feed = await world.subscribe("goal", batch=2)
        await feed.caught_up()  # the first batch has been delivered
        print("total:", feed.total)
        print("first batch:", summaries(feed.drain()))
        await feed.more(2)
        print("next batch:", summaries(feed.drain()))
        await feed.more(2)
        print("last batch:", summaries(feed.drain()))


def summaries(notes: list[thyme.Notification]) -> str:
    return ", ".join(note.summary.decode() for note in notes)


asyncio.run(main())
