"""M35: an application that inserts faster than its node stores waits, in the order of arrival."""

from __future__ import annotations

import asyncio

import pytest

from thyme.api.insert_gate import BYTES_MAX, INSERTS_MAX, InsertGate


@pytest.mark.parametrize(("size", "fits"), [(0, INSERTS_MAX), (2**20, BYTES_MAX // 2**20)])
def test_m35_a_bounded_number_of_inserts_is_unfinished(size: int, fits: int) -> None:
    async def story() -> None:
        gate = InsertGate()
        inside: list[int] = []
        done = asyncio.Event()

        async def insert(number: int) -> None:
            await gate.enter(size)
            inside.append(number)
            await done.wait()
            gate.leave(size)

        tasks = [asyncio.create_task(insert(number)) for number in range(fits + 5)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert inside == list(range(fits))
        tasks[fits].cancel()  # a waiting insert that is given up blocks nobody
        done.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert inside == [*range(fits), *range(fits + 1, fits + 5)]

    asyncio.run(story())


def test_m35_an_insert_that_is_larger_than_the_limit_passes_alone() -> None:
    async def story() -> None:
        gate = InsertGate()
        for size in (2 * BYTES_MAX, 1):
            async with asyncio.timeout(5):
                await gate.enter(size)
            gate.leave(size)

    asyncio.run(story())
