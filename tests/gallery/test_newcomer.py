"""Somebody who has never seen the gallery: from the command to the photo of another device, with
nothing but what terminal and page say."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.gallery.test_browser import PHONE, WIDE, a_browser, a_page, pytestmark, some_photos
from tests.live.nodes import free_group

__all__ = ["pytestmark"]
PATIENCE_S = 120.0


@asynccontextmanager
async def a_command(folder: Path) -> AsyncIterator[str]:
    """Runs the command as a newcomer would, at free ports; yields what it prints."""
    loopback = ("--http", "127.0.0.1:0", "--control", "127.0.0.1:0", "--interface", "127.0.0.1")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "thyme.cli", "gallery", "--create", "--lan", "127.0.0.1:0"),
        *(*loopback, "--group", free_group(), "--data", str(folder)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield (await process.stdout.readuntil(b"Ctrl-C")).decode()
    finally:
        process.terminate()
        await process.wait()


class Finger:
    """Clicks on what can be read, and counts."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self.clicks = 0

    async def click(self, words: str) -> None:
        self.clicks += 1
        await self._page.get_by_role("button", name=words, exact=True).click()


def test_four_clicks_and_a_name_bring_a_photo_to_the_first_screen(tmp_path: Path) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with a_command(tmp_path / "data") as printed, a_browser() as browser:
            opened = re.search(r"Open your gallery in a browser: +(\S+)", printed)
            assert opened is not None
            laptop = await a_page(browser, problems, **WIDE)
            await laptop.goto(opened[1])
            address = await laptop.inner_text(".address")  # under the code to scan
            assert address in printed

            phone = await a_page(browser, problems, **PHONE)
            finger = Finger(phone)
            await phone.goto(address)
            await phone.get_by_role("textbox").fill("Ana")
            await finger.click("Come in")
            await finger.click("Add photos")
            async with phone.expect_file_chooser() as chooser:
                await finger.click("Choose files")
            await (await chooser.value).set_files(some_photos(tmp_path, 1))
            await finger.click("Publish")

            await laptop.wait_for_selector(".tile img")
            assert await laptop.inner_text(".tile-who") == "Ana · now"
            assert finger.clicks == 4
        assert problems == []

    asyncio.run(story())
