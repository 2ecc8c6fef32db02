"""The gallery outlives its server: killed under an open page, which goes on at another device."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.gallery.served import PATIENCE_S
from tests.gallery.test_browser import (
    PHONE,
    WIDE,
    a_browser,
    a_page,
    publish,
    pytestmark,
    some_photos,
)
from tests.live.nodes import free_group

__all__ = ["pytestmark"]
WORLD = "party"


@asynccontextmanager
async def a_gallery_process(folder: Path, group: str, *options: str) -> AsyncIterator[Any]:
    """Runs `thyme gallery` on loopback; yields its addresses and its process."""
    addresses = ("--http", "127.0.0.1:0", "--control", "127.0.0.1:0", "--lan", "127.0.0.1:0")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "thyme.cli", "gallery", "--world", WORLD, "--json"),
        *("--data", str(folder), "--interface", "127.0.0.1", "--group", group),
        *(*addresses, *options),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield json.loads(await process.stdout.readline()), process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def wait_for_copies(url: str, count: int) -> None:
    """Waits until a gallery keeps so many photos for other devices."""
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{url}/api/w/{WORLD}/status") as response:
                kept = (await response.json())["kept"].values()
            if sum(device["photos"] for device in kept) == count:
                return
            await asyncio.sleep(0.1)


async def kill(process: Process) -> None:
    process.send_signal(signal.SIGKILL)
    await process.wait()


def test_a_page_whose_server_was_killed_goes_on_at_another_device(tmp_path: Path) -> None:
    async def story() -> None:
        problems: list[str] = []
        group = free_group()
        async with (
            a_gallery_process(tmp_path / "1", group, "--create") as (first, machine),
            a_gallery_process(tmp_path / "2", group, "--name", "Rui") as (second, _),
            a_browser() as browser,
        ):
            laptop = await a_page(browser, problems, **WIDE)
            await laptop.goto(second["url"])
            phone = await a_page(browser, problems, **PHONE)
            await phone.goto(first["invitation"])
            await phone.fill("#name", "Ana")
            await phone.click("button[type=submit]")
            await phone.wait_for_selector(".tabs")
            await publish(phone, some_photos(tmp_path, 3), "goal", "a goal")
            await laptop.wait_for_selector(".tile img >> nth=2")
            await wait_for_copies(second["url"], 3)
            await phone.click('button[aria-label="Devices"]')  # it follows while it is open
            await phone.wait_for_selector(".galleries a:has-text('Rui')")
            await phone.keyboard.press("Escape")

            await kill(machine)
            await phone.wait_for_selector(".notice .galleries a:has-text('Rui')")
            shown = await phone.inner_text(".notice")
            assert second["lan_url"].removeprefix("http://") in shown
            await phone.click(".notice .galleries a")
            await phone.wait_for_url(f"{second['lan_url']}/")
            await phone.wait_for_selector(".tile img >> nth=2")
            assert await phone.locator(".tile-who").first.inner_text() == "Ana · now"
            assert "may look" in await phone.inner_text(".visitor")
            await phone.locator(".tile-button").first.click()
            await phone.click(".viewer .actions .primary")  # the photo itself, not its thumbnail
            await phone.wait_for_function(
                "() => document.querySelector('.viewer .stage img')?.src.includes('/objects/')"
            )
        assert problems == []

    asyncio.run(story())


def test_a_page_that_is_opened_again_without_its_server_offers_the_others(tmp_path: Path) -> None:
    """The list is kept in the browser: nobody needs to answer."""

    async def story() -> None:
        problems: list[str] = []
        group = free_group()
        async with (
            a_gallery_process(tmp_path / "1", group, "--create") as (first, machine),
            a_gallery_process(tmp_path / "2", group) as (second, _),
            a_browser() as browser,
        ):
            page = await a_page(browser, problems, **PHONE)
            await page.goto(first["invitation"])
            await page.fill("#name", "Ana")
            await page.click("button[type=submit]")
            await page.wait_for_function("() => localStorage['thyme-galleries']?.length > 10")
            assets = {}
            for name in ("", "assets/gallery.js", "assets/gallery.css", "assets/icon.svg"):
                assets[f"{first['lan_url']}/{name}"] = await page.evaluate(
                    "name => fetch('/' + name).then((reply) => reply.text())", name
                )
            await kill(machine)

            async def answer(route: Any) -> None:
                """Answers from what was loaded before, as the browser's cache would."""
                body = assets.get(route.request.url)
                kind = {"js": "text/javascript", "css": "text/css"}.get(
                    route.request.url.rpartition(".")[2], "text/html"
                )
                if body is None:
                    await route.abort()
                else:
                    await route.fulfill(body=body, content_type=kind)

            await page.route("**/*", answer)
            await page.goto(f"{first['lan_url']}/")
            await page.wait_for_selector(".elsewhere a")
            assert "does not answer" in await page.inner_text("main")
            await page.unroute("**/*")
            await page.click(".elsewhere a")
            await page.wait_for_url(f"{second['lan_url']}/")
            await page.wait_for_selector(".tabs")
        assert problems == []

    asyncio.run(story())
