"""The map of a lab: only its own page reads it."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientSession

from thyme.lab.lab_map import LabMap
from thyme.lab.plan import LabPlan

OWN = "the address of the map"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/map", {}, 200),
        ("/map", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ("/map/events", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("/map/events", {"Origin": OWN}, 200),
        ("/map/events", {"Origin": "http://evil.test"}, 403),
        ("/map/events", {"Origin": "http://127.0.0.1:1"}, 403),
        ("/map/events", {"Origin": "null"}, 403),
        ("/map/events", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ("/map/events", {"Sec-Fetch-Site": "same-site"}, 403),
        ("/map", {"Host": "evil.test"}, 421),
    ],
)
def test_pages_of_others_are_refused(path: str, headers: dict[str, str], status: int) -> None:
    async def story() -> None:
        lab_map = LabMap(LabPlan(), [(1.0, 1.0)], ["http://127.0.0.1:9"])
        url = (await lab_map.start(0)).removesuffix("/map")
        own = url if headers.get("Origin") == OWN else None
        sent = headers | ({} if own is None else {"Origin": own})
        try:
            async with (
                ClientSession() as session,
                session.get(url + path, headers=sent) as response,
            ):
                assert response.status == status
        finally:
            await lab_map.stop()

    asyncio.run(story())
