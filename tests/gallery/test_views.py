"""Finding and taking photos: older ones, those of one person, tags, the time line, archives, and
several galleries side by side."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.pages import a_node, a_place
from tests.gallery.served import (
    WORLD,
    GalleryUnderTest,
    Visitor,
    a_gallery,
    a_jpeg,
    add_gallery,
    until,
)
from tests.live.nodes import free_group
from thyme.gallery.settings import GallerySettings
from thyme.gallery.web.gallery_world import GalleryWorld
from thyme.gallery.web.server import serve_gallery

BASE = f"/api/w/{WORLD}"


async def all_pages(visitor: Visitor, view: str, limit: int) -> list[list[str]]:
    """The titles of all photos of a view, page by page."""
    pages: list[list[str]] = []
    following = ""
    while following is not None:
        parameters = {"view": view, "limit": str(limit), "before": following}
        status, page = await visitor.ask("GET", f"{BASE}/items", params=parameters)
        assert status == 200, page
        pages.append([item["card"]["title"] for item in page["items"]])
        following = page["next"]
    return pages


def test_older_photos_come_page_by_page_each_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host, ana = await place.host(), await place.guest()
            for number in range(7):
                await ana.upload(a_jpeg(number), title=f"photo {number}")
            await host.wait_for_items(7)
            pages = await all_pages(host, "available", 3)
            assert [len(page) for page in pages] == [3, 3, 1]
            titles = [title for page in pages for title in page]
            assert titles == [f"photo {number}" for number in reversed(range(7))]

    asyncio.run(story())


def test_photos_of_one_person_tags_around_and_the_time_line(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host, ana, eva = await place.host(), await place.guest(), await place.guest("Eva")
            await ana.upload(a_jpeg(1), title="one", tags="goal,eder")
            await eva.upload(a_jpeg(2), title="two", tags="goal")
            await eva.upload(a_jpeg(3), title="three")
            found = await host.wait_for_items(3)
            by_eva = await host.items(by="Eva")
            assert [item["card"]["title"] for item in by_eva] == ["three", "two"]
            by_node = await host.items(by=found[0]["card"]["owner"])
            assert len(by_node) == 3

            _, tags = await host.ask("GET", f"{BASE}/tags")
            assert tags == [{"tag": "goal", "count": 2}, {"tag": "eder", "count": 1}]
            _, line = await host.ask("GET", f"{BASE}/timeline")
            assert sum(line["counts"]) == 3
            assert line["first_us"] < line["last_us"]
            _, line = await host.ask("GET", f"{BASE}/timeline", params={"query": "eder"})
            assert sum(line["counts"]) == 1
            _, status = await host.ask("GET", f"{BASE}/status")
            assert (status["photos"], status["own"]) == (3, 3)
            assert (status["kept"], status["storage"]["full"]) == ({}, False)

    asyncio.run(story())


def test_an_archive_has_all_photos_that_are_not_hidden(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host, ana = await place.host(), await place.guest()
            for number in range(3):
                await ana.upload(a_jpeg(number), "same.jpg", title=f"photo {number}")
            found = await host.wait_for_items(3)
            await host.ask(
                "POST", f"{BASE}/hidden", json={"what": found[0]["card"]["key"], "hidden": True}
            )
            _, made = await ana.ask("POST", f"{BASE}/archives", json={"keys": []})
            _, data = await ana.ask("GET", made["url"])
            archive = zipfile.ZipFile(io.BytesIO(data))
            assert archive.testzip() is None
            assert len(set(archive.namelist())) == 2
            assert (await host.ask("GET", made["url"]))[0] == 404  # a link is for who made it

    asyncio.run(story())


def test_galleries_side_by_side_are_separate(tmp_path: Path) -> None:
    async def story() -> None:
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
            host, ana = await place.host(), await place.guest()
            _, me = await ana.ask("GET", "/api/me")
            assert me["galleries"] == [WORLD, "porto"]
            await ana.upload(a_jpeg(), title="in Lisbon", tags="goal")
            await host.wait_for_items(1)
            other: dict[str, Any] = (await host.ask("GET", "/api/w/porto/items"))[1]
            assert other["items"] == []
            assert (await host.ask("GET", "/api/w/porto/tags"))[1] == []
            assert (await host.ask("GET", "/api/w/faro/items"))[0] == 404

    asyncio.run(story())


@pytest.mark.parametrize(
    "comes",
    [
        lambda status, owner: {**status, "base_station": "tower"},
        lambda status, owner: {**status, "neighbours": [{"node": owner}]},
    ],
    ids=["a station", "its device in the same Wi-Fi"],
)
def test_a_postponed_download_waits_until_its_device_or_a_station_is_near(
    tmp_path: Path, comes: Callable[..., dict[str, Any]]
) -> None:
    async def story() -> None:
        group = free_group()
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(a_node(network=a_place(group)))
            two = await stack.enter_async_context(
                a_node(network=a_place(group), create=False, world_id=None)
            )
            here = await add_gallery(stack, tmp_path / "1", one)
            there = await add_gallery(stack, tmp_path / "2", two, copies_bytes_max=0)
            await (await here.host()).upload(a_jpeg(), title="a goal")
            eva = await there.guest("Eva")
            [item] = await eva.wait_for_items(1)
            owner, asked, is_near = one.host.node_id.hex(), 0, False
            real = GalleryWorld.status

            async def status(world: GalleryWorld) -> dict[str, Any] | None:
                nonlocal asked
                asked += 1
                found = await real(world)
                assert found is not None
                far = {**found, "neighbours": [], "base_station": None}
                return comes(far, owner) if is_near else far

            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(GalleryWorld, "status", status)
            marks = {"keys": [item["card"]["key"]], "mark": "near"}
            assert (await eva.ask("POST", f"{BASE}/marks", json=marks))[0] == 204
            await until(lambda: asked >= 2)
            assert [item["mark"] for item in await eva.items()] == ["near"]
            is_near = True
            await eva.wait_for_items(1, "downloads")

    asyncio.run(story())
