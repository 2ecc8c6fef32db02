"""Search: asks once for the most recent matches, without a subscription.

Prints:

    2 of 3 goals: photo-3, photo-2
    as an expression: photo-1
"""

import asyncio

import thyme
from thyme import tag


async def main() -> None:
    async with thyme.join("lisbon") as world:
        for number, player in enumerate(["eder", "ronaldo", "ronaldo"], start=1):
            await world.insert(b"...", tags=["goal", player], oid=f"photo-{number}")

        found = await world.search("goal", limit=2)
        oids = ", ".join(note.key.oid for note in found)
        print(f"{len(found)} of {found.total} goals: {oids}")

        found = await world.search(tag("goal") & ~tag("ronaldo"))
        print("as an expression:", ", ".join(note.key.oid for note in found))


asyncio.run(main())
