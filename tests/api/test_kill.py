"""M24: state survives kill -9. A real process inserts and subscribes until it is killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import thyme

PROGRAM = textwrap.dedent(
    """
    import asyncio, sys
    import thyme

    async def main(data, life):
        async with thyme.join("lisbon", data=data) as world:
            for number in range(1_000_000):
                key = await world.insert(
                    b"x" * (number % 5000), tags=["goal", f"n{number % 7}"], oid=f"{life}-{number}"
                )
                print("insert", key.oid, flush=True)
                if number % 10 == 0:
                    subscription = await world.subscribe(f"goal & n{number % 7}", batch=0)
                    print("subscribe", subscription.sid, flush=True)
                if number % 10 == 5:
                    print("deleting", key.oid, flush=True)
                    await world.delete(key)
                    print("delete", key.oid, flush=True)

    asyncio.run(main(sys.argv[1], sys.argv[2]))
    """
)


def acknowledged_until_killed(data: Path, life: int, lines: int) -> list[list[str]]:
    """Runs a process until it is killed; returns the objects and subscriptions it acknowledged."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(data), str(life)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        heard = [process.stdout.readline().split() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        heard += [line.split() for line in process.stdout]
    assert process.returncode == -signal.SIGKILL
    return [words for words in heard if len(words) == 2]


def test_m24_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path) -> None:
    acknowledged: list[list[str]] = []
    for life, lines in enumerate((40, 7, 90)):
        acknowledged += acknowledged_until_killed(tmp_path, life, lines)

    inserted = {name for act, name in acknowledged if act == "insert"}
    deleted = {name for act, name in acknowledged if act == "delete"}
    deleting = {name for act, name in acknowledged if act == "deleting"}  # the last may be undone
    subscribed = {name for act, name in acknowledged if act == "subscribe"}
    assert len(inserted) > 80
    assert deleted
    assert subscribed

    async def look() -> None:
        async with thyme.join("lisbon", data=tmp_path) as world:
            found = await world.search("goal", limit=100_000)
            there = {note.key.oid for note in found}
            assert inserted - deleting <= there
            assert not deleted & there
            assert subscribed <= {held.sid for held in await world.subscriptions()}
            for note in found:
                assert len(await world.retrieve(note)) == note.metadata.size

    asyncio.run(look())
