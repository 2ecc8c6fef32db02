"""The page in a real browser: published on one node and seen on another, wide and on a phone."""

from __future__ import annotations

import asyncio
import io
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.daemon.pages import a_node, a_place
from tests.gallery.served import WORLD, a_gallery, a_jpeg, add_gallery
from tests.live.nodes import free_group

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt install chromium")
AXE = Path(__file__).parents[2] / "frontend/node_modules/axe-core/axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
GUEST_NAME = "gallery.test"
"""A host name for guests: over plain HTTP it is no secure context, as on a phone."""
WIDE = {"viewport": {"width": 1200, "height": 800}, "color_scheme": "light"}
PHONE = {
    "viewport": {"width": 390, "height": 700},
    "color_scheme": "dark",
    "has_touch": True,
    "is_mobile": True,
    "device_scale_factor": 2,
}


@asynccontextmanager
async def a_browser() -> AsyncIterator[Any]:
    """Starts Chromium."""
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", f"--host-resolver-rules=MAP {GUEST_NAME} 127.0.0.1"],
        )
        yield browser
        await browser.close()


async def a_page(browser: Any, problems: list[str], **options: Any) -> Any:
    """Opens an empty page that reports its problems."""
    context = await browser.new_context(locale="en", **options)
    context.set_default_timeout(60_000)
    page = await context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda entry: problems.append(entry.text) if "Content Security" in entry.text else None,
    )
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    return page


async def publish(page: Any, files: list[Path], tags: str, title: str) -> None:
    """Publishes files as a person would."""
    await page.click(".tools .add")
    await page.set_input_files("#files", files)
    await page.wait_for_selector(f".preview >> nth={len(files) - 1}")
    await page.fill("#tags", tags)
    await page.fill("#title", title)
    await page.click(".dialog-foot .primary")


def some_photos(folder: Path, count: int) -> list[Path]:
    """Files with pictures."""
    files = [folder / f"photo-{number}.jpg" for number in range(count)]
    for number, file in enumerate(files):
        file.write_bytes(a_jpeg(number + 1, (320, 240)))
    return files


def test_a_phone_publishes_on_one_node_and_a_laptop_sees_it_on_another(tmp_path: Path) -> None:
    async def story() -> None:
        group = free_group()
        problems: list[str] = []
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(a_node(network=a_place(group)))
            two = await stack.enter_async_context(
                a_node(network=a_place(group), create=False, world_id=None)
            )
            here = await add_gallery(stack, tmp_path / "1", one)
            there = await add_gallery(stack, tmp_path / "2", two, lan_names=(GUEST_NAME,))
            browser = await stack.enter_async_context(a_browser())
            laptop = await a_page(browser, problems, **WIDE)
            phone = await a_page(browser, problems, **PHONE)
            await laptop.goto(here.served.url)
            await laptop.wait_for_selector(".empty .code")
            invitation = there.served.invitation_url
            assert invitation is not None
            await phone.goto(invitation.replace("127.0.0.1", GUEST_NAME))
            await phone.fill("#name", "Ana")
            await phone.click("button[type=submit]")
            await phone.wait_for_selector(".tabs")
            assert not await phone.evaluate("isSecureContext")

            title = '<img src=x onerror="alert(1)"> 79\''
            await publish(phone, some_photos(tmp_path, 2), "goal, eder", title)
            await laptop.wait_for_selector(".tile img >> nth=1")
            await phone.wait_for_selector(".tile img >> nth=1")
            assert await laptop.locator(".tile-who").first.inner_text() == "Ana · now"
            tags = await laptop.locator(".tile-tags").first.inner_text()
            assert sorted(tags.split()) == ["#eder", "#goal"]

            await laptop.locator(".tile-button").first.focus()
            await laptop.keyboard.press("ArrowRight")
            await laptop.keyboard.press("Enter")
            await laptop.wait_for_selector(".viewer .stage img")
            assert await laptop.inner_text(".viewer h2") == title
            await laptop.click(".viewer .actions .primary")
            await laptop.wait_for_selector('.viewer a[href$="?save"]')
            await laptop.keyboard.press("Escape")
            await laptop.wait_for_selector(".viewer", state="detached")
            await laptop.click("text=Downloads")
            await laptop.wait_for_selector(".tile-mark")
            assert await laptop.locator(".tile").count() == 1
            width = await phone.evaluate("document.documentElement.scrollWidth")
            assert width <= PHONE["viewport"]["width"]  # type: ignore[index]
            assert problems == []

    asyncio.run(story())


def test_uploads_go_on_after_the_page_was_reloaded(tmp_path: Path) -> None:
    async def story() -> None:
        problems: list[str] = []
        async with (
            a_gallery(tmp_path / "g", lan_names=(GUEST_NAME,)) as place,
            a_browser() as browser,
        ):
            page = await a_page(browser, problems, **PHONE)
            invitation = place.served.invitation_url or ""
            await page.goto(invitation.replace("127.0.0.1", GUEST_NAME))
            await page.fill("#name", "Ana")
            await page.click("button[type=submit]")
            await page.wait_for_selector(".tabs")
            await page.route("**/uploads", lambda route: route.abort())
            await publish(page, some_photos(tmp_path, 3), "goal", "")
            await page.wait_for_selector(".uploads progress")
            await page.unroute("**/uploads")
            await page.reload()
            await page.click("text=Publications")
            await page.wait_for_selector(".tile img >> nth=2")
            await page.wait_for_selector(".uploads", state="hidden")
            host = await place.host()
            assert len(await host.items("wall")) == 3
        assert problems == []

    asyncio.run(story())


def test_a_page_of_others_follows_photos_with_the_client(tmp_path: Path) -> None:
    """The module of the page: stored photos, then new ones, each once, over a restart."""

    async def story() -> None:
        problems: list[str] = []
        async with a_gallery(tmp_path / "g") as place, a_browser() as browser:
            host = await place.host()
            for number in range(2):
                await host.upload(a_jpeg(number), title=f"stored {number}", tags="goal")
            await host.wait_for_items(2, "publications")
            page = await a_page(browser, problems, **WIDE)
            await page.goto(f"{place.served.url}/poster")
            await page.wait_for_selector(".poster-sheet")  # drawn late, in the place of all else
            await page.evaluate(
                """async () => {
                    const { GalleryClient } = await import("/assets/client.js");
                    const gallery = new GalleryClient("lisbon");
                    const seen = (window.seen = document.createElement("ol"));
                    seen.id = "seen";
                    document.body.append(seen);
                    (async () => {
                        for await (const { card } of gallery.subscribe("goal & !replay"))
                            seen.append(Object.assign(document.createElement("li"),
                                { textContent: card.title }));
                    })();
                    window.gallery = gallery;
                }"""
            )
            await page.wait_for_selector("#seen li >> nth=1")
            await host.upload(a_jpeg(5), title="a replay", tags="goal,replay")
            await host.upload(a_jpeg(6), title="new", tags="goal")
            await page.wait_for_selector("#seen li >> nth=2")
            size = await page.evaluate(
                """async () => {
                    const file = new File(["text"], "notes.txt");
                    await window.gallery.publish(file, { tags: ["goal"], title: "own" });
                    const { items } = await window.gallery.list("wall", { query: "goal" });
                    return (await window.gallery.retrieve(items.at(-1).card.key)).size;
                }"""
            )
            assert size > 100
            await page.wait_for_selector("#seen li >> nth=3")
            texts = await page.locator("#seen li").all_inner_texts()
            assert texts == ["stored 0", "stored 1", "new", "own"]
        assert problems == []

    asyncio.run(story())


RECORD = """async (type) => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 320, height: 240 });
    const pen = canvas.getContext("2d");
    const recorder = new MediaRecorder(canvas.captureStream(20), { mimeType: type });
    const parts = [];
    recorder.ondataavailable = ({ data }) => parts.push(data);
    const stopped = new Promise((resolve) => (recorder.onstop = resolve));
    recorder.start();
    for (let frame = 0; frame < 12; frame++) {
        pen.fillStyle = `rgb(200, ${20 * frame}, 40)`;
        pen.fillRect(0, 0, 320, 240);
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
    recorder.stop();
    await stopped;
    return [...new Uint8Array(await new Blob(parts).arrayBuffer())];
}"""


def test_every_kind_of_file_is_published_and_videos_play(tmp_path: Path) -> None:
    """Real small files: pictures and videos get a thumbnail, other files a name."""
    pytest.importorskip("pi_heif", reason="there is no wheel of pi-heif for this machine")

    async def story() -> None:
        problems: list[str] = []
        async with a_gallery(tmp_path / "g") as place, a_browser() as browser:
            page = await a_page(browser, problems, **WIDE)
            await page.goto(place.served.url)
            await page.wait_for_selector(".empty h2")
            files = {"photo.heic": (Path(__file__).parent / "photo.heic").read_bytes()}
            for kind in ("jpeg", "png", "webp", "gif", "avif"):
                out = io.BytesIO()
                Image.effect_noise((80, 60), 90).convert("RGB").save(out, kind)
                files[f"picture.{kind}"] = out.getvalue()
            for kind in ("webm", "mp4"):
                if await page.evaluate("t => MediaRecorder.isTypeSupported(t)", f"video/{kind}"):
                    files[f"clip.{kind}"] = bytes(await page.evaluate(RECORD, f"video/{kind}"))
            files["notes.pdf"] = b"%PDF-1.4 no picture"
            for name, data in files.items():
                (tmp_path / name).write_bytes(data)
            await publish(page, [tmp_path / name for name in files], "all", "")
            await page.wait_for_selector(f".tile >> nth={len(files) - 1}")
            await page.wait_for_selector(".uploads", state="hidden")

            host = await place.host()
            cards = {item["card"]["file_name"]: item["card"] for item in await host.items("wall")}
            assert set(cards) == set(files)
            shown = {name for name, card in cards.items() if card.get("has_thumbnail")}
            assert shown == set(files) - {"notes.pdf"}
            assert cards["photo.heic"]["type"] == cards["picture.avif"]["type"] == "image/jpeg"
            assert "clip.webm" in cards

            await page.locator(".tile", has=page.locator('img[alt="Video"]')).first.click()
            await page.wait_for_function(
                "(async () => { const video = document.querySelector('.viewer video');"
                "if (!video) return false; video.muted = true; await video.play();"
                "return video.currentTime > 0.1; })()"
            )
            key = cards["clip.webm"]["key"]
            status, body = await host.ask(
                "GET", f"/api/w/{WORLD}/objects/{key}", headers={"Range": "bytes=4-99"}
            )
            assert (status, body) == (206, files["clip.webm"][4:100])
        assert problems == []

    asyncio.run(story())


async def accessibility_errors(page: Any) -> list[str]:
    """WCAG 2.2 AA as far as axe can tell."""
    await page.evaluate(AXE.read_text())
    result = await page.evaluate("rules => axe.run({runOnly: rules})", RULES)
    return [
        f"{found['id']} {[node['target'] for node in found['nodes']]}"
        for found in result["violations"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, {**PHONE, "is_mobile": False}], ids=["wide", "phone"])
def test_no_page_has_an_accessibility_error(
    tmp_path: Path, size: dict[str, Any], theme: str
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci in frontend/")
    files = some_photos(tmp_path, 2)
    calm = {"bypass_csp": True, "reduced_motion": "reduce"}  # no fading while it is judged

    async def story() -> None:
        problems: list[str] = []
        found: dict[str, list[str]] = {}
        async with a_gallery(tmp_path / "g", approval=True) as place, a_browser() as browser:
            host, ana = await place.host(), await place.guest()
            helper = await place.guest("Eva")
            _, me = await helper.ask("GET", "/api/me")
            await host.ask("PATCH", f"/api/guests/{me['id']}", json={"rights": "approve"})
            for number in range(3):
                await helper.upload(a_jpeg(number + 1), title="a goal" * (number % 2), tags="goal")
            await helper.upload(b"%PDF-1.4", name="notes.pdf")
            await ana.upload(a_jpeg(9), title="waits")
            await host.wait_for_items(4)
            page = await a_page(browser, problems, **{**size, **calm, "color_scheme": theme})

            async def judge(step: str) -> None:
                found[step] = await accessibility_errors(page)

            await page.goto(place.served.url)
            await page.wait_for_selector(".tile img >> nth=2")
            await judge("available")
            for step in ("Subscriptions", "Invite", "Devices", "People", "Menu"):
                await page.click(f'button[aria-label="{step}"]')
                await page.wait_for_selector("dialog[open]")
                await judge(step)
                await page.keyboard.press("Escape")
            await page.locator(".tile-button", has=page.locator("img")).first.click()
            await page.wait_for_selector(".viewer .stage img")
            await judge("viewer")
            await page.keyboard.press("Escape")
            await page.click(".tab.select")
            await judge("selecting")
            await page.click(".tools .add")
            await page.set_input_files("#files", files)
            await page.wait_for_selector(".preview >> nth=1")
            await judge("adding")
            await page.keyboard.press("Escape")
            for step in ("Downloads", "Private", "Hidden"):
                await page.click(f".tab:has-text('{step}')")
                await judge(step)
            await page.goto(f"{place.served.url}/wall")
            await page.wait_for_selector(".wall-large img")
            await judge("wall")
            await page.goto(f"{place.served.url}/poster")
            await page.wait_for_selector(".poster-sheet .code")
            await judge("poster")
            await page.goto(place.served.lan_url)
            await page.wait_for_selector("h1")
            await judge("door")
            await page.goto(place.served.invitation_url)
            await page.wait_for_selector("#name")
            await judge("join")
        assert {step: errors for step, errors in found.items() if errors} == {}
        assert len(found) == 16
        assert problems == []

    asyncio.run(story())
