"""The map in a real browser: one page for recordings and for live nodes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.pages import a_node, a_place
from tests.gallery.served import add_gallery
from tests.gallery.test_browser import AXE, CHROMIUM, PHONE, RULES, WIDE, a_browser, a_page
from tests.live.nodes import free_group
from tests.sim.playback.test_page import STORY, written
from thyme.model.worlds import Area
from thyme.sim.playback.page import PlaybackGrid, write_page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt install chromium")
STATE = """() => {
    const { run } = window.thymeMap;
    return {
        at: [...run.tables.application.at], took: [...run.tables.application.took],
        names: run.names, places: [0, 0.025, 0.05, 1].map((t) => run.position(2, t)),
        up: [0, 0.0099, 0.01].map((t) => [0, 1, 2].map((node) => run.isUp(node, t))),
        faults: [0.009, 0.01, 0.02].map((t) => run.activeFaults(t))
            .map(({ windows, groups }) => [windows.length, groups]),
        modes: [0, 2].map((row) => run.mode(run.tables.application, row)),
    };
}"""


def a_recorded_page(folder: Path) -> str:
    source, target = folder / "run.jsonl", folder / "run.html"
    source.write_bytes(written(STORY))
    grid = PlaybackGrid(3, 1, 40.0)
    write_page(source, target, title="A run", area=Area(120.0, 40.0), grid=grid)
    return target.as_uri()


async def accessibility_errors(page: Any) -> list[str]:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci in frontend/")
    await page.evaluate(AXE.read_text())
    result = await page.evaluate("rules => axe.run({runOnly: rules})", RULES)
    return [f"{found['id']} {found['nodes'][0]['target']}" for found in result["violations"]]


def test_s17_a_recording_is_played_from_a_file(tmp_path: Path) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with a_browser() as browser:
            page = await a_page(browser, problems, **WIDE)
            await page.goto(a_recorded_page(tmp_path))
            await page.wait_for_selector("#now b")
            seen = await page.evaluate(STATE)
            assert seen["names"] == ["ann", "ben", "cy"]
            assert seen["at"] == pytest.approx([0.001, 0.003, 0.007, 0.06])
            assert seen["took"] == pytest.approx([0.001, 0.001, 0.002, 0])
            places = [(80.0, 10.0), (85.125, -5.25), (90.25, -20.5), (90.25, -20.5)]
            assert seen["places"] == [pytest.approx(place) for place in places]
            assert seen["up"] == [[True, True, False], [True, True, False], [True, False, False]]
            assert seen["faults"] == [[0, None], [1, [[0], [1, 2]]], [0, [[0], [1, 2]]]]
            assert seen["modes"] == ["other", "perimeter"]
        assert problems == []

    asyncio.run(story())


def test_the_life_of_an_object_is_a_story_to_step_through_with_the_keyboard(tmp_path: Path) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with a_browser() as browser:
            page = await a_page(browser, problems, **WIDE)
            await page.goto(a_recorded_page(tmp_path))
            await page.select_option("#object", label="photo (at 3 nodes)")
            steps = await page.locator(".steps li").all_inner_texts()
            assert steps == [
                "0.001 s ann asks: Insert",
                "0.001 s Packet/InsertObject: ann → ben",
                "0.006 s ann is told: Finished Insert, after 5.0 ms",
                "0.008 s ann stores it (owner)",
                "0.008 s ben stores it (active replica, in the owner's cell)",
                "0.012 s cy stores it (passive replica, where it was retrieved)",
                "0.014 s ben no longer stores it",
            ]
            await page.focus("text=Next")
            for _ in range(3):
                await page.keyboard.press("Enter")
            status = await page.inner_text(".story [role=status]")
            assert status.startswith("Step 3 of 7: ann is told")
            assert await page.evaluate("thymeMap.t") == pytest.approx(0.007)
            await page.focus("#net")
            await page.keyboard.press("ArrowRight")
            assert await page.evaluate("thymeMap.t") > 0.0071
        assert problems == []

    asyncio.run(story())


def test_the_tables_say_what_the_picture_shows_and_no_page_has_an_accessibility_error(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with a_browser() as browser:
            for options in (WIDE, {**PHONE, "is_mobile": False}):
                page = await a_page(browser, problems, bypass_csp=True, **options)
                await page.goto(a_recorded_page(tmp_path) + "#t=0.013&object=photo")
                await page.click("summary")
                await page.wait_for_selector("table >> nth=2")
                nodes = await page.locator("table >> nth=0").locator("tbody tr").all_inner_texts()
                assert nodes[1].split("\t")[:4] == ["ben", "", "off", "1"]
                last = page.locator("table >> nth=1").locator("tbody tr").first
                words = (await last.inner_text()).split("\t")
                assert words[2:5] == ["ann", "cy", "perimeter"]
                assert words[5] == "dropped after 2.0 ms: exceeded"
                assert await accessibility_errors(page) == []
                width = await page.evaluate("document.documentElement.scrollWidth")
                assert width <= options["viewport"]["width"]  # type: ignore[index]
        assert problems == []

    asyncio.run(story())


def test_a_live_node_shows_itself_its_neighbours_and_its_messages(tmp_path: Path) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with AsyncExitStack() as stack:
            group = free_group()
            area = {"area": Area(80.0, 40.0), "cell_m": 40.0}
            one = await stack.enter_async_context(
                a_node(network=a_place(group), position=(20.0, 20.0), **area)
            )
            two = await stack.enter_async_context(
                a_node(network=a_place(group), create=False, world_id=None, position=(60.0, 20.0))
            )
            gallery = await add_gallery(stack, tmp_path / "g", one)
            browser = await stack.enter_async_context(a_browser())
            page = await a_page(browser, problems, **WIDE)
            await page.goto(f"{one.url}/map")
            await page.wait_for_selector("#node option >> nth=2", state="attached")
            ids = [each.live.profile.node_id.hex()[:6] for each in (one, two)]
            assert await page.evaluate("thymeMap.run.names") == ids
            status, key = await two.ask("POST", "/v1/objects?tags=goal&oid=photo", data=b"bytes")
            assert status == 201, key
            await page.wait_for_selector("#object option:has-text('photo')", state="attached")
            await page.wait_for_selector("label:has-text('IndexObject')")
            assert await accessibility_errors_of_live(browser, one.url, problems) == []

            host = await a_page(browser, problems, **PHONE)
            await host.goto(f"{gallery.served.url}/map")
            await host.wait_for_selector("#node option >> nth=2", state="attached")
        assert problems == []

    asyncio.run(story())


async def accessibility_errors_of_live(browser: Any, url: str, problems: list[str]) -> list[str]:
    page = await a_page(browser, problems, bypass_csp=True, **{**PHONE, "is_mobile": False})
    await page.goto(f"{url}/map")
    await page.wait_for_selector("#now b")
    return await accessibility_errors(page)
