"""Benchmark of the gallery: live tiles, ten thousand photos, and many large uploads.

    ./run bench gallery            # everything; needs playwright and Chromium
    ./run bench gallery --only memory

- notify: from the insert of a photo to its tile on an open page, against the same notification at
  a plain subscriber of the node.
- scroll: the available view with 10,000 photos: time to the first thumbnails, and frames while it
  scrolls, against frames of a page without photos in the same browser.
- memory: 200 photos of 5 MB uploaded in one go: growth of the memory of node and gallery, against
  the bytes that were uploaded.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from PIL import Image

import thyme
from thyme.gallery.photos import GALLERY_TAG
from thyme.gallery.summary import PhotoSummary, encode_summary

WORLD = "bench"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


@asynccontextmanager
async def a_gallery(*options: str) -> AsyncIterator[tuple[dict[str, Any], int]]:
    """Runs `thyme gallery`; yields its addresses and process id."""
    with tempfile.TemporaryDirectory(prefix="bench-gallery-") as folder:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "thyme.cli", "gallery", "--world", WORLD, "--create"),
            *("--json", "--data", folder, "--http", "127.0.0.1:0", "--control", "127.0.0.1:0"),
            *("--interface", "127.0.0.1", "--group", "239.255.84.9:47999", *options),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        addresses = json.loads(await process.stdout.readline())
        ready = (await process.stderr.readline()).decode()
        addresses["node"] = ready.partition("http=")[2].split()[0]
        draining = asyncio.create_task(process.stderr.read())
        try:
            yield addresses, process.pid
        finally:
            process.terminate()
            await process.wait()
            await draining


@asynccontextmanager
async def a_page(url: str) -> AsyncIterator[Any]:
    """A page of a browser."""
    from playwright.async_api import async_playwright

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = await browser.new_context(
            bypass_csp=True, viewport={"width": 1280, "height": 800}
        )
        page = await context.new_page()
        await page.goto(url)
        yield page
        await browser.close()


def thumbnail(number: int) -> bytes:
    """A thumbnail of about the usual size."""
    picture = Image.effect_noise((320, 240), 20 + number % 40).convert("RGB")
    out = io.BytesIO()
    picture.save(out, "WEBP", quality=30)
    return out.getvalue()


async def insert(world: thyme.World, number: int, thumbnails: list[bytes]) -> None:
    summary = PhotoSummary(
        title=f"photo {number}",
        by="bench",
        type="image/jpeg",
        width=320,
        height=240,
        thumbnail=thumbnails[number % len(thumbnails)],
    )
    tags = [GALLERY_TAG, f"t{number % 50}"]
    await world.insert(number.to_bytes(8, "big"), tags=tags, summary=encode_summary(summary))


WATCH = """() => {
    window.tiles = {};
    new MutationObserver(() => {
        const now = performance.timeOrigin + performance.now();
        for (const image of document.querySelectorAll('.tile img'))
            window.tiles[image.alt] ??= now;
    }).observe(document.body, {childList: true, subtree: true});
}"""


async def bench_notify(rounds: int) -> None:
    thumbnails = [thumbnail(number) for number in range(8)]
    async with a_gallery() as (addresses, _), a_page(addresses["url"]) as page:
        await page.wait_for_selector(".empty h2")
        await page.evaluate(WATCH)
        node = addresses["node"]
        async with thyme.connect(node) as world, thyme.connect(node) as other:
            subscription = await other.subscribe(GALLERY_TAG)
            to_tile, to_subscriber = [], []
            for number in range(rounds):
                started = time.time()
                await insert(world, number, thumbnails)
                await anext(subscription)
                to_subscriber.append((time.time() - started) * 1e3)
                await page.wait_for_function(f"window.tiles['photo {number}']")
                shown = await page.evaluate(f"window.tiles['photo {number}']")
                to_tile.append(shown - started * 1e3)
    median, baseline = statistics.median(to_tile), statistics.median(to_subscriber)
    slow = sorted(to_tile)[int(len(to_tile) * 0.95)]
    print(f"notify: insert to tile, median {median:.0f} ms, 95 % {slow:.0f} ms (bar: 100)")
    print(f"  plain subscriber {baseline:.0f} ms: the page takes {median / baseline:.1f} x as long")


FRAMES = """async ([step, frames]) => {
    const times = [], long = [];
    const observer = new PerformanceObserver(
        (list) => long.push(...list.getEntries().map((entry) => entry.duration)));
    observer.observe({entryTypes: ['longtask']});
    let last = await new Promise(requestAnimationFrame);
    for (let frame = 0; frame < frames; frame++) {
        window.scrollBy(0, step);
        const now = await new Promise(requestAnimationFrame);
        times.push(now - last);
        last = now;
        if (window.scrollY + window.innerHeight >= document.body.scrollHeight - 1) {
            const loading = document.querySelector('.grid[aria-busy="true"]');
            if (!loading) break;
        }
    }
    observer.disconnect();
    return [times, long, window.scrollY];
}"""
FIRST_SHOWN = """() => {
    const seen = [...document.querySelectorAll('.tile img')].slice(0, 20);
    return seen.length == 20 && seen.every((image) => image.complete && image.naturalWidth);
}"""
READING_PX, FAST_PX = 30, 120
"""How far a frame scrolls: two and nine screens per second at 60 frames."""


def describe_frames(times: list[float], long: list[float]) -> str:
    rate = 1_000 / statistics.mean(times)
    late = sum(duration > 25 for duration in times) / len(times)
    return (
        f"{rate:.1f} frames/s, median {statistics.median(times):.1f} ms, {late:.1%} later than "
        f"25 ms, longest {max(times):.0f} ms; {len(long)} tasks over 50 ms"
    )


async def fill_gallery(addresses: dict[str, Any], count: int) -> None:
    """Publishes photos and waits until the gallery shows them all."""
    thumbnails = [thumbnail(number) for number in range(64)]
    size = statistics.mean(map(len, thumbnails)) / 1e3
    async with thyme.connect(addresses["node"]) as world:
        started = time.monotonic()
        for first in range(0, count, 100):
            numbers = range(first, min(first + 100, count))
            await asyncio.gather(*(insert(world, number, thumbnails) for number in numbers))
        print(f"scroll: {count} photos of {size:.0f} kB in {time.monotonic() - started:.0f} s")
    path = f"{addresses['url']}/api/w/{WORLD}/status"
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(path) as response:
                if (await response.json())["photos"] == count:
                    return
            await asyncio.sleep(0.2)


async def bench_scroll(count: int) -> None:
    async with a_gallery("--memory") as (addresses, _):
        await fill_gallery(addresses, count)
        async with a_page("about:blank") as page:
            await page.set_content("<div style='height: 300000px'></div>")
            empty, empty_long, _ = await page.evaluate(FRAMES, [FAST_PX, 600])
            firsts = []
            for _ in range(5):
                started = time.monotonic()
                await page.goto(addresses["url"])
                await page.wait_for_function(FIRST_SHOWN)
                firsts.append(time.monotonic() - started)
            shown = min(firsts), statistics.median(firsts)
            print(f"  first 20 thumbnails after {shown[1]:.2f} s, best {shown[0]:.2f} (bar: 1)")
            times, long, _ = await page.evaluate(FRAMES, [READING_PX, 600])
            print(f"  reading: {describe_frames(times, long)} (bar: 60)")
            times, long, reached = await page.evaluate(FRAMES, [FAST_PX, 10_000])
            tiles = await page.locator(".tile").count()
            last = await page.locator(".tile").last.get_attribute("aria-posinset")
            print(f"  fast: {describe_frames(times, long)} (bar: 60)")
            print(f"  to photo {last} after {reached:.0f} px, {tiles} tiles in the page")
            ratio = statistics.mean(empty) / statistics.mean(times)
            print(f"  without photos {describe_frames(empty, empty_long)}: ratio {ratio:.2f}")


def a_photo(size: int) -> bytearray:
    """A JPEG file of about this size."""
    side = int((size / 0.72) ** 0.5)
    out = io.BytesIO()
    Image.effect_noise((side, side), 60).convert("RGB").save(out, "JPEG", quality=90)
    return bytearray(out.getvalue())


def changed(photo: bytearray, number: int) -> bytes:
    """The same picture with other pixels."""
    at = len(photo) // 2 + 50 * number
    while 0xFF in photo[at - 1 : at + 2]:
        at += 1
    copy = bytearray(photo)
    copy[at] = (copy[at] + 1 + number % 200) % 255
    return bytes(copy)


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


async def bench_memory(count: int, size: int) -> None:
    photo = a_photo(size)
    async with a_gallery() as (addresses, pid), aiohttp.ClientSession() as session:
        path = f"{addresses['url']}/api/w/{WORLD}/uploads"
        states: dict[str, int] = {}
        peak = 0

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, resident_bytes(pid))
                await asyncio.sleep(0.05)

        async def upload(number: int) -> None:
            data = changed(photo, number)
            name = b64encode(f"photo-{number}.jpg".encode()).decode()
            headers = {
                "Tus-Resumable": "1.0.0",
                "Upload-Length": str(len(data)),
                "Upload-Metadata": f"filename {name}",
                "Content-Type": "application/offset+octet-stream",
            }
            async with session.post(path, headers=headers, data=data) as response:
                assert response.status == 201, await response.text()
                location = response.headers["Location"]
            while True:
                async with session.get(addresses["url"] + location) as response:
                    state = (await response.json())["state"]
                if state not in ("receiving", "processing"):
                    states[state] = states.get(state, 0) + 1
                    return
                await asyncio.sleep(0.5)

        await upload(count)  # warms up
        before = resident_bytes(pid)
        watching = asyncio.create_task(watch())
        started = time.monotonic()
        await asyncio.gather(*map(upload, range(count)))  # a hundred connections at once
        seconds = time.monotonic() - started
        watching.cancel()
    sent = count * len(photo)
    print(f"memory: {count} photos of {len(photo) / 1e6:.1f} MB in {seconds:.0f} s: {states}")
    print(f"  memory of node and gallery grew by {(peak - before) / 1e6:.0f} MB (bar: 100)")
    print(f"  {sent / max(1, peak - before):.0f} bytes uploaded for each byte of growth")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--only", choices=("notify", "scroll", "memory"))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--photos", type=int, default=10_000)
    parser.add_argument("--uploads", type=int, default=200)
    parser.add_argument("--bytes", type=int, default=5_000_000)
    args = parser.parse_args()
    chosen = (args.only,) if args.only else ("notify", "scroll", "memory")
    if CHROMIUM is None and chosen != ("memory",):
        print("no Chromium (apt install chromium): only memory is measured")
        chosen = ("memory",)
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    for name in chosen:
        match name:
            case "notify":
                asyncio.run(bench_notify(args.rounds))
            case "scroll":
                asyncio.run(bench_scroll(args.photos))
            case _:
                asyncio.run(bench_memory(args.uploads, args.bytes))


if __name__ == "__main__":
    main()
