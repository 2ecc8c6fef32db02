"""A local world needs neither the packages of the `live` extra nor the simulator."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PROGRAM = textwrap.dedent(
    """
    import asyncio, sys

    for name in ("aiohttp", "nacl", "uvloop", "thyme.sim"):
        sys.modules[name] = None  # an import raises ImportError

    import thyme

    async def main():
        async with thyme.join("lisbon") as world:
            await world.insert(b"a photo", tags=["goal"], summary="0-1")
            note = await anext(await world.subscribe("goal"))
            print(note.metadata.summary.decode(), (await world.retrieve(note)).decode())

    asyncio.run(main())
    """
)


def test_a_local_world_runs_without_network_cryptography_or_simulator() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("0-1 a photo\n", "")
