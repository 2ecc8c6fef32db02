"""Callbacks: the same operations with functions that are called, instead of async and await.

Prints:

    subscribed
    notified of photo-1
    inserted photo-1
    retrieved b'the photo'
"""

import asyncio
from typing import Any

import thyme


async def main() -> None:
    async with thyme.join("lisbon") as world:
        callbacks = world.callbacks
        done = asyncio.Event()

        def on_notification(note: thyme.Notification) -> None:
            print("notified of", note.key.oid)
            callbacks.retrieve(note, on_retrieved)

        def on_retrieved(outcome: thyme.Outcome[Any]) -> None:
            print("retrieved", outcome.value if outcome.ok else outcome.error)
            done.set()

        def on_inserted(outcome: thyme.Outcome[Any]) -> None:
            print("inserted", outcome.value.oid if outcome.value else outcome.error)

        callbacks.subscribe("goal", None, None, on_notification, lambda _: print("subscribed"))
        callbacks.insert(b"the photo", ["goal"], on_done=on_inserted, oid="photo-1")
        await done.wait()


asyncio.run(main())
