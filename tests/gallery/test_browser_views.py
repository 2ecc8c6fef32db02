"""The page in a real browser: fifty photos at once, drafts, several galleries, older photos."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.daemon.pages import a_node
from tests.gallery.served import WORLD, GalleryUnderTest, a_gallery, a_jpeg
from tests.gallery.test_browser import (
    PHONE,
    WIDE,
    a_browser,
    a_page,
    publish,
    pytestmark,
    some_photos,
)
from thyme.gallery.settings import GallerySettings
from thyme.gallery.web.server import serve_gallery

__all__ = ["pytestmark"]


def test_fifty_photos_at_once_from_a_phone(tmp_path: Path) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with a_gallery(tmp_path / "g") as place, a_browser() as browser:
            page = await a_page(browser, problems, **PHONE)
            await page.goto(place.served.invitation_url)
            await page.fill("#name", "Ana")
            await page.click("button[type=submit]")
            await page.wait_for_selector(".tabs")
            await publish(page, some_photos(tmp_path, 50), "party", "")
            host = await place.host()
            await host.wait_for_items(50)
            await page.wait_for_selector(".uploads", state="hidden")
        assert problems == []

    asyncio.run(story())


def test_drafts_stay_private_until_some_are_chosen_to_be_published(tmp_path: Path) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with a_gallery(tmp_path / "g") as place, a_browser() as browser:
            page = await a_page(browser, problems, **WIDE)
            await page.goto(place.served.url)
            await page.click(".tools .add")
            await page.set_input_files("#files", some_photos(tmp_path, 3))
            await page.wait_for_selector(".preview >> nth=2")
            await page.keyboard.press("Escape")
            await page.reload()
            await page.click(".tab:has-text('Private')")
            await page.wait_for_selector(".tile.queued >> nth=2")
            await page.click(".tab.select")
            await page.locator(".tile-button").nth(0).click()
            await page.locator(".tile-button").nth(2).click()
            await page.click(".select-bar .primary")
            await page.fill("#own-name", "Rui")
            await page.click(".dialog-foot .primary")
            host = await place.host()
            found = await host.wait_for_items(2, "publications")
            assert {item["card"]["by"] for item in found} == {"Rui"}
            await page.click(".tab:has-text('Private')")
            await page.wait_for_function("document.querySelectorAll('.tile.queued').length == 1")
        assert problems == []

    asyncio.run(story())


def test_galleries_side_by_side_are_chosen_at_the_top(tmp_path: Path) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(a_node()) for _ in range(2)]
            settings = GallerySettings(
                folder=tmp_path,
                nodes=((WORLD, nodes[0].url), ("porto", nodes[1].url)),
                local=("127.0.0.1", 0),
                lan=("127.0.0.1", 0),
            )
            served = await stack.enter_async_context(serve_gallery(settings))
            place = GalleryUnderTest(nodes[0], served, stack)
            ana = await place.guest()
            await ana.upload(a_jpeg(), title="in Lisbon")
            browser = await stack.enter_async_context(a_browser())
            page = await a_page(browser, problems, **PHONE)
            await page.goto(served.url)
            await page.wait_for_selector(".tile img")
            await page.get_by_label("Galleries").select_option("porto")
            await page.wait_for_selector(".empty h2")
            await page.reload()
            await page.wait_for_selector(".empty h2")
            assert await page.get_by_label("Galleries").input_value() == "porto"
            await page.get_by_label("Galleries").select_option(WORLD)
            await page.wait_for_selector(".tile img")
        assert problems == []

    asyncio.run(story())


def test_older_photos_appear_while_one_scrolls_and_few_tiles_are_in_the_page(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with a_gallery(tmp_path / "g") as place, a_browser() as browser:
            ana = await place.guest()
            for number in range(80):
                await ana.upload(a_jpeg(number), title=f"photo {number}")
            page = await a_page(browser, problems, **PHONE)
            asked: set[str] = set()
            page.on("request", lambda request: asked.add(request.url))
            await page.goto(place.served.url)
            await page.wait_for_selector(".tile img >> nth=8")
            await page.wait_for_function(
                """() => {
                    window.scrollTo(0, document.body.scrollHeight);
                    return document.querySelector('.tile img[alt="photo 0"]');
                }"""
            )
            assert len([url for url in asked if "before=" in url]) == 1
            assert await page.locator(".tile").count() < 60
        assert problems == []

    asyncio.run(story())


def test_a_photo_that_waits_for_approval_is_seen_by_its_author_and_by_who_approves(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with a_gallery(tmp_path / "g", approval=True) as place, a_browser() as browser:
            laptop = await a_page(browser, problems, **WIDE)
            await laptop.goto(place.served.url)
            phone = await a_page(browser, problems, **PHONE)
            await phone.goto(place.served.invitation_url)
            await phone.fill("#name", "Ana")
            await phone.click("button[type=submit]")
            await phone.wait_for_selector(".tabs")
            (tmp_path / "notes.pdf").write_bytes(b"%PDF-1.4")
            await publish(phone, [*some_photos(tmp_path, 2), tmp_path / "notes.pdf"], "goal", "")
            await phone.wait_for_selector(".tile.queued:has-text('Waiting for approval') >> nth=2")
            await phone.wait_for_selector(".uploads", state="hidden")
            host = await place.host()
            assert await host.items("wall") == []

            await laptop.click(".people-button.alert")
            await laptop.click(".pending-photo:has(img) >> nth=0 >> text=Approve")
            await laptop.wait_for_selector(".pending-photo >> nth=1")
            await laptop.click(".pending-photo:has(img) >> text=Reject")
            await laptop.wait_for_selector(".pending-photo:has(img)", state="detached")
            await phone.wait_for_selector(".tile:not(.queued) img")
            await phone.wait_for_selector(".tile.queued:has(img)", state="detached")

            await phone.evaluate("window.confirm = () => true")
            await phone.click(".tile.queued:has-text('notes.pdf')")  # its author takes it back
            await phone.wait_for_selector(".tile.queued", state="detached")
            await laptop.wait_for_selector(".pending-photo", state="detached")
            await laptop.keyboard.press("Escape")
            await laptop.wait_for_selector(".people-button:not(.alert)")
            assert len(await host.items("wall")) == 1
        assert problems == []

    asyncio.run(story())
