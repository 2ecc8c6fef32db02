"""The page in a real browser: subscriptions, decisions about photos, a dark screen, Portuguese."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.gallery.served import GalleryUnderTest, a_gallery, a_jpeg
from tests.gallery.test_browser import (
    PHONE,
    WIDE,
    a_browser,
    a_page,
    publish,
    pytestmark,
    some_photos,
)

__all__ = ["pytestmark"]


async def come_in(page: Any, place: GalleryUnderTest, name: str) -> None:
    """Joins as a guest."""
    await page.goto(place.served.invitation_url)
    await page.fill("#name", name)
    await page.click("button[type=submit]")
    await page.wait_for_selector(".tabs")


async def wait_for_tiles(page: Any, count: int) -> None:
    await page.wait_for_function(
        "count => document.querySelectorAll('.tile').length == count", arg=count
    )


def test_a_subscription_is_built_by_clicking_or_typing_with_a_time_frame(tmp_path: Path) -> None:
    """M7, M11: the formula is explained while it is typed; the frame is chosen on a time line."""

    async def story() -> None:
        problems: list[str] = []
        async with a_gallery(tmp_path / "g") as place, a_browser() as browser:
            ana = await place.guest("Ana")
            for number, tags in enumerate(("goal,eder", "goal,replay", "crowd")):
                await ana.upload(a_jpeg(number), tags=tags)
            page = await a_page(browser, problems, **WIDE)
            await page.goto(place.served.url)
            await wait_for_tiles(page, 3)
            await page.click('button[aria-label="Subscriptions"]')
            await page.click(".entries button[aria-label^=Remove]")  # everything
            await page.wait_for_selector(".entries li", state="detached")

            await page.click(".chip[data-tag=goal]")
            await page.click(".chip[data-tag=replay]")
            await page.click(".chip[data-tag=replay]")  # twice: without it
            assert await page.input_value("#formula") == "goal & !replay"
            await page.wait_for_selector("#explained:has-text('1 of 3 photos match now')")
            await page.fill("#formula", "goal &")
            await page.wait_for_selector("#explained.bad:has-text('at character')")
            assert await page.locator(".dialog-foot .primary").is_disabled()
            await page.fill("#formula", "goal, not replay")
            await page.wait_for_selector("#explained:has-text('goal & !replay — 1 of 3')")
            await page.click(".dialog-foot .primary")
            await page.wait_for_selector(".entries li:has-text('Any time')")

            await page.fill("#formula", "crowd")
            await page.click("text=Only new ones")
            await page.click(".dialog-foot .primary:not([disabled])")
            await page.wait_for_selector(".entries li >> nth=1")
            await page.fill("#formula", "goal")
            await page.locator(".timeline .until").focus()
            await page.keyboard.press("Home")  # ends before the first photo
            await page.click(".dialog-foot .primary:not([disabled])")
            await page.wait_for_selector(".entries li >> nth=2")
            await page.keyboard.press("Escape")
            await wait_for_tiles(page, 1)
            await ana.upload(a_jpeg(7), tags="crowd")
            await wait_for_tiles(page, 2)
        assert problems == []

    asyncio.run(story())


def test_photos_are_kept_saved_discarded_brought_back_and_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with a_gallery(tmp_path / "g") as place, a_browser() as browser:
            ana, rui = await place.guest("Ana"), await place.guest("Rui")
            for number in range(2):
                await ana.upload(a_jpeg(number), title=f"Ana {number}", tags="goal")
            await rui.upload(a_jpeg(5), title="Rui", tags="crowd")
            page = await a_page(browser, problems, **PHONE)
            await come_in(page, place, "Eva")
            await wait_for_tiles(page, 3)

            await page.click(".tile:has(img[alt=Rui])")
            assert await page.get_by_role("button", name="Later, on Wi-Fi").count() == 0
            async with page.expect_download() as saved:
                await page.click(".actions >> text=Save to this device")
            assert (await saved.value).suggested_filename == "a.jpg"
            await page.click("text=Keep in Downloads")
            await page.wait_for_selector("text=Keep in Downloads", state="detached")
            await page.keyboard.press("Escape")
            await wait_for_tiles(page, 2)

            await page.click(".tile:has(img[alt='Ana 1'])")
            await page.click(".viewer >> text=Only theirs")
            await page.wait_for_selector(".filter-bar:has-text('Only by Ana')")
            await page.click(".tile:has(img[alt='Ana 1'])")
            await page.click(".actions >> text=Discard")
            await page.keyboard.press("Escape")
            await wait_for_tiles(page, 1)
            await page.click("text=Show all")
            await page.click(".tab:has-text('Hidden')")
            await page.click(".tile")
            await page.click(".actions >> text=Bring back")
            await page.keyboard.press("Escape")
            await wait_for_tiles(page, 0)
            await page.click(".tab:has-text('Available')")
            await wait_for_tiles(page, 2)

            await publish(page, some_photos(tmp_path, 1), "", "mine")
            await page.wait_for_selector(".tile:not(.queued):has(img[alt=mine])")
            await page.evaluate("window.confirm = () => true")
            await page.click(".tile:has(img[alt=mine])")
            await page.click(".viewer .danger")
            await wait_for_tiles(page, 0)
            host = await place.host()
            assert len(await host.items("wall")) == 3
        assert problems == []

    asyncio.run(story())


RECORD_EVENTS = """
    window.events = [];
    window.EventSource = class extends EventSource {
        constructor(...given) {
            super(...given);
            for (const kind of ["item", "gone"])
                this.addEventListener(kind, () => window.events.push(kind));
        }
    };
"""


def test_a_photo_that_arrives_while_a_list_is_loading_is_shown(tmp_path: Path) -> None:
    """An answer may be older than an event that arrived before it."""

    async def story() -> None:
        problems: list[str] = []
        async with a_gallery(tmp_path / "g") as place, a_browser() as browser:
            ana = await place.guest("Ana")
            await ana.upload(a_jpeg(1), title="old", tags="goal")
            await ana.upload(a_jpeg(2), title="gone", tags="goal")
            (gone,) = [item for item in await ana.items("wall") if item["card"]["title"] == "gone"]
            page = await a_page(browser, problems, **WIDE)
            held = 0

            async def hold(route: Any) -> None:
                nonlocal held
                answer = await route.fetch()
                held += 1
                if held == 1:
                    await ana.upload(a_jpeg(3), title="new", tags="goal")
                    await ana.ask("DELETE", f"/api/w/lisbon/items/{gone['card']['key']}")
                    await page.wait_for_function("() => window.events.includes('gone')")
                await route.fulfill(response=answer)

            await page.add_init_script(RECORD_EVENTS)
            await page.goto(place.served.url)
            await wait_for_tiles(page, 2)
            await page.route("**/items?view=available*", hold)
            await page.click(".tab:has-text('Downloads')")
            await wait_for_tiles(page, 0)
            await page.click(".tab:has-text('Available')")
            await wait_for_tiles(page, 2)
            titles = await page.locator(".tile img").evaluate_all("all => all.map(one => one.alt)")
            assert titles == ["new", "old"]
            assert held == 1
        assert problems == []

    asyncio.run(story())


def test_a_filter_by_tag_and_an_archive_of_some(tmp_path: Path) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with a_gallery(tmp_path / "g") as place, a_browser() as browser:
            ana = await place.guest("Ana")
            for number in range(3):
                await ana.upload(a_jpeg(number), title=f"photo {number}", tags=f"t{number % 2}")
            page = await a_page(browser, problems, **WIDE)
            await page.goto(place.served.url)
            await wait_for_tiles(page, 3)
            await page.click(".tile:has(img[alt='photo 1'])")
            await page.click(".viewer .chip")
            await page.wait_for_selector(".filter-bar:has-text('Only #t1')")
            await wait_for_tiles(page, 1)
            await page.click("text=Show all")
            await wait_for_tiles(page, 3)
            await page.click(".tab.select")
            await page.click(".tile:has(img[alt='photo 0'])")
            await page.click(".tile:has(img[alt='photo 2'])")
            async with page.expect_download() as saved:
                await page.click("text=Save 2 (zip)")
            assert (await saved.value).suggested_filename.endswith(".zip")
        assert problems == []

    asyncio.run(story())


def test_uploads_go_on_after_the_screen_was_dark(tmp_path: Path) -> None:
    """A phone that is locked freezes the page and breaks its connections."""

    async def story() -> None:
        problems: list[str] = []
        async with a_gallery(tmp_path / "g") as place, a_browser() as browser:
            page = await a_page(browser, problems, **PHONE)
            await come_in(page, place, "Ana")
            phone = await page.context.new_cdp_session(page)
            await page.context.set_offline(True)
            await publish(page, some_photos(tmp_path, 4), "goal", "")
            await page.wait_for_selector(".uploads progress")
            await phone.send("Page.setWebLifecycleState", {"state": "frozen"})
            await asyncio.sleep(1)
            await phone.send("Page.setWebLifecycleState", {"state": "active"})
            await page.context.set_offline(False)
            host = await place.host()
            await host.wait_for_items(4)
            await page.wait_for_selector(".uploads", state="hidden")
            await wait_for_tiles(page, 4)
        assert problems == []

    asyncio.run(story())


FOLLOW = """async () => {
    const { GalleryClient } = await import("/assets/client.js");
    window.seen = [];
    (async () => {
        for await (const { card } of new GalleryClient("lisbon").subscribe("goal"))
            window.seen.push(card.title);
    })();
}"""


def test_the_client_reconnects_without_loss_or_doubles(tmp_path: Path) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with a_gallery(tmp_path / "g") as place, a_browser() as browser:
            host = await place.host()
            await host.upload(a_jpeg(1), title="stored", tags="goal")
            await host.wait_for_items(1, "publications")
            page = await a_page(browser, problems, **WIDE)
            await page.goto(f"{place.served.url}/poster")
            await page.evaluate(FOLLOW)
            await page.wait_for_function("() => window.seen.length == 1")
            for number in range(3):
                await page.context.set_offline(True)
                await host.upload(a_jpeg(10 + number), title=f"away {number}", tags="goal")
                await page.context.set_offline(False)
                await host.upload(a_jpeg(20 + number), title=f"back {number}", tags="goal")
                count = 3 + 2 * number
                await page.wait_for_function(f"() => window.seen.length >= {count}")
            wanted = [f"{kind} {number}" for number in range(3) for kind in ("away", "back")]
            assert await page.evaluate("window.seen") == ["stored", *wanted]
        assert problems == []

    asyncio.run(story())


def test_the_page_speaks_portuguese_also_when_something_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path / "g") as place, a_browser() as browser:
            context = await browser.new_context(locale="pt-PT", **PHONE)
            page = await context.new_page()
            await page.goto(f"{place.served.lan_url}/j/wrong")
            await page.fill("#name", "Ana")
            await page.click("text=Entrar")
            await page.wait_for_selector(".toast:has-text('Este convite não é válido')")
            await page.goto(place.served.invitation_url)
            await page.fill("#name", "Ana")
            await page.click("text=Entrar")
            await page.wait_for_selector(".tab:has-text('Disponíveis')")
            assert await page.get_attribute("html", "lang") == "pt"
            (tmp_path / "broken.jpg").write_bytes(a_jpeg()[:200])
            await page.click(".tools .add")
            await page.set_input_files("#files", [tmp_path / "broken.jpg"])
            await page.wait_for_selector(".preview")
            await page.click(".dialog-foot .primary")
            await page.wait_for_selector(".tile-line.bad:has-text('não se pode ler')")

    asyncio.run(story())


def test_the_wall_shows_approved_photos_as_they_come_and_the_poster_both_codes(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with a_gallery(tmp_path / "g", approval=True) as place, a_browser() as browser:
            host, ana = await place.host(), await place.guest("Ana")
            wall = await a_page(browser, problems, **WIDE)
            await wall.goto(f"{place.served.url}/wall")
            await wall.wait_for_selector(".wall-corner .code")
            await wall.wait_for_selector("text=The first photo will appear here.")
            for number in range(2):
                await ana.upload(a_jpeg(number), title=f"photo {number}")
            _, waiting = await host.ask("GET", "/api/w/lisbon/pending")
            await host.ask("POST", f"/api/w/lisbon/pending/{waiting[1]['id']}")
            await wall.wait_for_selector(".wall-large figcaption:has-text('photo 1')")
            assert await wall.locator(".wall-strip img").count() == 1

            await wall.goto(f"{place.served.url}/poster")
            await wall.wait_for_selector(".poster-sheet .code")
            assert await wall.locator(".poster-code:visible").count() == 1
            await wall.fill("#ssid", "Party; no. 1")
            await wall.wait_for_selector(".poster-code:has-text('Party; no. 1') img")
            assert await wall.locator(".poster-code:visible").count() == 2
        assert problems == []

    asyncio.run(story())
