"""Benchmark of the map: frames per second with 200 simulated and with 12 live nodes.

    ./run bench map                # both; needs playwright and Chromium
    ./run bench map --only recorded --nodes 200

Frames are counted in Chromium, without a graphics card, while the busiest part of the recording
plays, or while objects are inserted, notified and retrieved in a lab; the baseline is a page of the
same browser that draws nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

import thyme
from thyme.lab.supervisor import STATE_FILE, LabState
from thyme.model.time_frames import SECOND_US
from thyme.sim.results.summary import summarise_run
from thyme.sim.results.tables import PAGE, result_folder
from thyme.sim.run import run
from thyme.sim.scenario import Scenario, Series, Substrate, Timeline

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
WIDTH, HEIGHT = 1280, 900
COUNT_FRAMES = """seconds => new Promise(done => {
    const first = performance.now(), drawn = window.thymeMap?.frames ?? 0;
    let frames = 0, longest = 0, last = first;
    const frame = now => {
        frames++;
        longest = Math.max(longest, now - last);
        last = now;
        if (now - first < seconds * 1000) requestAnimationFrame(frame);
        else done({
            fps: frames / (now - first) * 1000, longest,
            drawn: ((window.thymeMap?.frames ?? 0) - drawn) / (now - first) * 1000,
        });
    };
    requestAnimationFrame(frame);
})"""
PLAY_BUSIEST = """() => {
    const { run } = thymeMap, { at } = run.tables.application;
    let best = 0, most = 0, first = 0;
    for (let row = 0; row < at.length; row++) {
        while (at[first] < at[row] - 10) first++;
        if (row - first > most) { most = row - first; best = at[first]; }
    }
    thymeMap.seek(best);
    thymeMap.toggle();
    return most / 10;
}"""


@asynccontextmanager
async def a_browser() -> AsyncIterator[Any]:
    from playwright.async_api import async_playwright

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield await browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, locale="en")
        await browser.close()


def record(folder: Path, nodes: int) -> Path:
    """Simulates devices that move; returns the page of the run."""
    timeline = Timeline(
        starts_us=5 * SECOND_US,
        joins_us=5 * SECOND_US,
        operations_us=40 * SECOND_US,
        quiet_us=5 * SECOND_US,
    )
    scenario = Scenario(
        substrate=Substrate.DCS, nodes=nodes, kind=Series.MOBILE, seed=1, timeline=timeline
    )
    with result_folder(folder / "result") as result:
        with result.open_recording() as file:
            found = run(scenario, recording_file=file)
        result.write_results(found, summarise_run(found))
    return folder / "result" / PAGE


async def measure_recorded(context: Any, nodes: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-map-") as name:
        page_file = await asyncio.to_thread(record, Path(name), nodes)
        page = await context.new_page()
        empty = await page.evaluate(COUNT_FRAMES, seconds)
        await page.goto(page_file.as_uri())
        await page.wait_for_selector("#now b")
        for layer in ("", "neighbours"):
            if layer:
                await page.click(f"label:has-text('{layer}')")
            rate = await page.evaluate(PLAY_BUSIEST)
            found = await page.evaluate(COUNT_FRAMES, seconds)
            await page.evaluate("thymeMap.pause()")
            show(f"{nodes} simulated nodes, {rate:.0f} messages/s {layer}", found, empty)
        await page.close()


async def measure_live(context: Any, nodes: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-map-") as folder:
        command = [sys.executable, "-P", "-m", "thyme.cli", "lab"]
        up = [*command, "up", "--map", "--nodes", str(nodes), "--dir", folder, "--json"]
        await asyncio.to_thread(subprocess.run, up, check=True, stdout=subprocess.DEVNULL)
        try:
            state = msgspec.json.decode((Path(folder) / STATE_FILE).read_bytes(), type=LabState)
            page = await context.new_page()
            empty = await page.evaluate(COUNT_FRAMES, seconds)
            traffic = asyncio.create_task(make_traffic([node.url for node in state.nodes]))
            await page.goto(state.map_url)
            await page.wait_for_selector("#now b")
            await asyncio.sleep(3)
            found = await page.evaluate(COUNT_FRAMES, seconds)
            rate = await page.evaluate(
                "thymeMap.run.tables.application.at.length / thymeMap.run.span"
            )
            traffic.cancel()
            show(f"{nodes} live nodes, {rate:.0f} messages/s", found, empty)
        finally:
            await asyncio.to_thread(subprocess.run, [*command, "down", "--dir", folder], check=True)


async def make_traffic(urls: list[str]) -> None:
    """Inserts at all nodes in turn; two subscribers retrieve everything."""

    async def retrieve_all(url: str) -> None:
        async with thyme.connect(url) as world:
            async for note in await world.subscribe("goal"):
                await world.retrieve(note)

    async with asyncio.TaskGroup() as group:
        for url in urls[1:3]:
            group.create_task(retrieve_all(url))
        number = 0
        while True:
            async with thyme.connect(urls[number % len(urls)]) as world:
                await world.insert(bytes(2_000), tags=["goal"])
            number += 1
            await asyncio.sleep(0.1)


def show(what: str, found: dict[str, float], empty: dict[str, float]) -> None:
    print(
        f"{what}: {found['drawn']:.0f} frames/s ({found['fps'] / empty['fps']:.2f} of an empty "
        f"page's {empty['fps']:.0f}), longest {found['longest']:.0f} ms"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(prog="bench map")
    parser.add_argument("--only", choices=("recorded", "live"))
    parser.add_argument("--nodes", type=int, default=200, help="simulated nodes")
    parser.add_argument("--live", type=int, default=12, help="live nodes")
    parser.add_argument("--seconds", type=float, default=8.0)
    args = parser.parse_args()
    if CHROMIUM is None:
        sys.exit("bench map: no Chromium: apt install chromium")
    async with a_browser() as context:
        if args.only != "live":
            await measure_recorded(context, args.nodes, args.seconds)
        if args.only != "recorded":
            await measure_live(context, args.live, args.seconds)


if __name__ == "__main__":
    asyncio.run(main())
