"""The gallery over HTTP: photos go in, others see them, and each keeps what they want."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import subprocess
import zipfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import thyme
from tests.daemon.pages import a_node, a_place
from tests.gallery.served import WORLD, a_gallery, a_jpeg, add_gallery, tus_headers, until
from tests.live.nodes import free_group
from thyme import gallery


async def read_event(stream: Any, kind: str) -> dict[str, Any]:
    """The next server-sent event of a kind."""
    name = ""
    async with asyncio.timeout(60):
        while True:
            line = (await stream.content.readline()).decode().strip()
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: ") and name == kind:
                found: dict[str, Any] = json.loads(line.removeprefix("data: "))
                return found


def test_a_photo_of_a_guest_appears_on_the_page_of_the_host(tmp_path: Path) -> None:
    """M13, M16: the notification carries the thumbnail, the owner and the tags."""

    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host, ana = await place.host(), await place.guest("Ana")
            async with host.session.get(f"{host.url}/api/events") as stream:
                await read_event(stream, "reset")
                status, upload = await ana.upload(a_jpeg(), tags="goal, Eder", title="79'")
                event = await read_event(stream, "item")
            assert (status, upload["state"]) == (201, "published")
            card = event["item"]["card"]
            assert card["key"] == upload["key"]
            assert (card["by"], card["title"]) == ("Ana", "79'")
            assert card["tags"] == ["eder", "gallery", "goal"]
            [mine] = await ana.items("publications")
            assert mine["card"] == card
            assert await ana.items("available") == []
            path = f"/api/w/{WORLD}/thumbnails/{card['key']}"
            status, thumbnail = await host.ask("GET", path)
            assert thumbnail[8:12] == b"WEBP"

    asyncio.run(story())


def test_a_photo_is_published_on_one_node_and_kept_discarded_or_saved_on_another(
    tmp_path: Path,
) -> None:
    """M19: the other node retrieves the bytes; marks move photos between the views."""

    async def story() -> None:
        group = free_group()
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(a_node(network=a_place(group)))
            two = await stack.enter_async_context(
                a_node(network=a_place(group), create=False, world_id=None)
            )
            here = await add_gallery(stack, tmp_path / "1", one)
            there = await add_gallery(stack, tmp_path / "2", two)
            host, eva = await here.host(), await there.guest("Eva")
            photos = [a_jpeg(number, (300, 200)) for number in range(3)]
            for number, photo in enumerate(photos):
                await host.upload(photo, f"p{number}.jpg", tags="goal")
            found = await eva.wait_for_items(3)
            first, second, third = (item["card"]["key"] for item in reversed(found))

            marks = f"/api/w/{WORLD}/marks"
            status, _ = await eva.ask("POST", marks, json={"keys": [first], "mark": "downloaded"})
            assert status == 204
            await eva.ask("POST", marks, json={"keys": [second], "mark": "discarded"})
            await eva.ask("POST", marks, json={"keys": [third], "mark": "near"})
            assert [item["card"]["key"] for item in await eva.items("hidden")] == [second]
            # The publishing node is a neighbour: what waits for it is downloaded.
            kept = await eva.wait_for_items(2, "downloads")
            assert {item["card"]["key"] for item in kept} == {first, third}
            path = f"/api/w/{WORLD}/objects/{first}"
            status, data = await eva.ask("GET", path)
            assert Image.open(io.BytesIO(data)).size == (300, 200)
            status, part = await eva.ask("GET", path, headers={"Range": "bytes=2-5"})
            assert (status, part) == (206, data[2:6])

            archive = {"keys": [first, third]}
            _, made = await eva.ask("POST", f"/api/w/{WORLD}/archives", json=archive)
            _, zipped = await eva.ask("GET", made["url"])
            names = zipfile.ZipFile(io.BytesIO(zipped)).namelist()
            assert sorted(name.split("_", 1)[1] for name in names) == ["Host_p0.jpg", "Host_p2.jpg"]

            assert (await host.ask("DELETE", f"/api/w/{WORLD}/items/{first}"))[0] == 204
            status, error = await eva.ask("GET", path)
            assert status == 404, error

    asyncio.run(story())


def test_an_upload_goes_on_where_it_was_torn_also_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        photo = a_jpeg(7, (400, 300))
        body = {"Content-Type": "application/offset+octet-stream", "Tus-Resumable": "1.0.0"}
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(a_node())
            async with AsyncExitStack() as first:
                place = await add_gallery(first, tmp_path, node)
                host = await place.host()
                headers = tus_headers(len(photo), filename="a.jpg")
                async with host.session.post(
                    f"{host.url}/api/w/{WORLD}/uploads", headers=headers
                ) as response:
                    location = response.headers["Location"]
                headers = body | {"Upload-Offset": "0"}
                status, _ = await host.ask("PATCH", location, headers=headers, data=photo[:100])
                assert status == 204
                status, error = await host.ask(
                    "PATCH", location, headers=body | {"Upload-Offset": "50"}, data=b"x"
                )
                assert (status, error["error"]) == (409, "wrong_offset")
            place = await add_gallery(stack, tmp_path, node)
            host = await place.host()
            async with host.session.head(host.url + location) as response:
                assert response.headers["Upload-Offset"] == "100"
            headers = body | {"Upload-Offset": "100"}
            await host.ask("PATCH", location, headers=headers, data=photo[100:])
            assert (await host.outcome(location))["state"] == "published"
            [item] = await host.wait_for_items(1, "publications")
            _, data = await host.ask("GET", f"/api/w/{WORLD}/objects/{item['card']['key']}")
            assert data == photo

    asyncio.run(story())


def test_a_connection_that_breaks_in_a_body_keeps_the_bytes_before(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host, photo = await place.host(), a_jpeg(7)
            address = host.url.removeprefix("http://")
            headers = tus_headers(len(photo)) | {"Host": address, "Content-Length": str(len(photo))}
            headers["Content-Type"] = "application/offset+octet-stream"
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            _, writer = await asyncio.open_connection(*address.split(":"))
            writer.write(f"POST /api/w/{WORLD}/uploads HTTP/1.1\r\n{lines}\r\n".encode())
            writer.write(photo[:100])
            await writer.drain()
            folder = tmp_path / "uploads"
            await until(lambda: any(folder.glob("*.json")))
            writer.close()
            [record] = folder.glob("*.json")
            await until(lambda: record.with_suffix("").stat().st_size == 100)
            body = {
                "Content-Type": headers["Content-Type"],
                "Tus-Resumable": "1.0.0",
                "Upload-Offset": "100",
            }
            location = f"/api/uploads/{record.stem}"
            await host.ask("PATCH", location, headers=body, data=photo[100:])
            assert (await host.outcome(location))["state"] == "published"

    asyncio.run(story())


def test_the_same_picture_twice_is_published_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host, ana = await place.host(), await place.guest()
            _, first = await host.upload(a_jpeg(), tags="goal")
            _, second = await ana.upload(a_jpeg(), "again.jpg")
            assert (second["state"], second["key"]) == ("duplicate", first["key"])
            assert len(await host.items("wall")) == 1

    asyncio.run(story())


def test_photos_of_guests_wait_for_approval(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path, approval=True) as place:
            host, ana, eva = await place.host(), await place.guest(), await place.guest("Eva")
            _, upload = await ana.upload(a_jpeg(1), title="one")
            _, other = await ana.upload(a_jpeg(2), title="two")
            assert (upload["state"], other["state"]) == ("pending", "pending")
            pending = f"/api/w/{WORLD}/pending"
            assert await eva.ask("GET", pending) == (200, [])
            assert len((await ana.ask("GET", pending))[1]) == 2
            assert (await eva.ask("GET", f"{pending}/{upload['id']}"))[0] == 404
            assert (await ana.ask("POST", f"{pending}/{upload['id']}"))[0] == 403
            assert (await eva.ask("DELETE", f"{pending}/{upload['id']}"))[0] == 403
            assert (await host.ask("POST", f"{pending}/{upload['id']}"))[0] == 200
            assert (await host.ask("DELETE", f"{pending}/{other['id']}"))[0] == 204
            [item] = await eva.wait_for_items(1)
            assert item["card"]["title"] == "one"

    asyncio.run(story())


def test_subscriptions_choose_what_a_guest_sees(tmp_path: Path) -> None:
    """M7, M11, M15, M18: a formula as people type it, and a time frame."""

    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host, ana = await place.host(), await place.guest()
            await host.upload(a_jpeg(1), tags="goal,eder", title="one")
            await host.upload(a_jpeg(2), tags="goal,replay", title="two")
            await ana.wait_for_items(2)
            path = f"/api/w/{WORLD}/subscriptions"
            _, [everything] = await ana.ask("GET", path)
            await ana.ask("DELETE", f"{path}/{everything['id']}")
            assert await ana.items() == []
            _, made = await ana.ask("POST", path, json={"query": "goal, not replay"})
            assert made["query"] == "goal & !replay"
            assert [item["card"]["title"] for item in await ana.wait_for_items(1)] == ["one"]
            _, explained = await ana.ask(
                "GET", f"/api/w/{WORLD}/explanation", params={"query": "goal & replay"}
            )
            assert (explained["matching"], explained["total"]) == (1, 2)
            status, error = await ana.ask(
                "GET", f"/api/w/{WORLD}/explanation", params={"query": "goal &"}
            )
            assert (status, error["error"]) == (400, "bad_query_syntax")
            await ana.ask("DELETE", f"{path}/{made['id']}")
            await ana.ask("POST", path, json={"query": "goal", "end_us": 1})
            assert await ana.items() == []

    asyncio.run(story())


def test_a_subscription_finds_objects_of_other_applications(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            ana = await place.guest()
            async with thyme.connect(place.node.url) as world:
                await world.insert(b"text", tags=["notes"], summary="<b>hello</b>")
            path = f"/api/w/{WORLD}/subscriptions"
            await ana.ask("POST", path, json={"query": "notes"})
            [item] = await ana.wait_for_items(1)
            assert item["card"]["title"] == "<b>hello</b>"

    asyncio.run(story())


def test_a_page_that_was_cut_off_gets_the_events_it_missed(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host = await place.host()
            async with host.session.get(f"{host.url}/api/events") as stream:
                line = (await stream.content.readline()).decode()
            last = line.removeprefix("id: ").strip()
            await host.upload(a_jpeg(), title="missed")
            await host.wait_for_items(1, "publications")
            headers = {"Last-Event-ID": last}
            async with host.session.get(f"{host.url}/api/events", headers=headers) as stream:
                event = await read_event(stream, "item")
                assert event["item"]["card"]["title"] == "missed"
            headers = {"Last-Event-ID": "other-5"}
            async with host.session.get(f"{host.url}/api/events", headers=headers) as stream:
                await read_event(stream, "reset")

    asyncio.run(story())


def test_a_script_publishes_and_follows(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place, thyme.connect(place.node.url) as world:
            host = await place.host()
            file = tmp_path / "goal.jpg"
            file.write_bytes(a_jpeg(3, (100, 50)))
            await gallery.publish_photo(world, file, tags=["goal"], by="a script")
            [item] = await host.wait_for_items(1)
            assert item["card"]["by"] == "a script"
            async for photo in gallery.follow(world, "goal"):
                assert (photo.tags, photo.summary.width) == (("goal",), 100)
                break
            assert file.read_bytes() == a_jpeg(3, (100, 50))

    asyncio.run(story())


def test_a_node_that_restarts_loses_nothing(tmp_path: Path) -> None:
    """M24: the gallery connects again, and what was uploaded meanwhile is published then."""

    async def story() -> None:
        group = free_group()
        store = {"network": a_place(group), "data": tmp_path / "node"}
        async with AsyncExitStack() as stack:
            async with a_node(**store) as node:
                port = int(node.url.rpartition(":")[2])
                place = await add_gallery(stack, tmp_path / "gallery", node)
                host = await place.host()
                await host.upload(a_jpeg(1), title="before")
                await host.wait_for_items(1, "publications")
            world = place.served.state.worlds[WORLD]
            await until(lambda: not world.is_connected)
            headers = tus_headers(len(a_jpeg(2)), title="meanwhile")
            headers["Content-Type"] = "application/offset+octet-stream"
            locations = []
            for _ in range(2):  # the same picture twice
                async with host.session.post(
                    f"{host.url}/api/w/{WORLD}/uploads", headers=headers, data=a_jpeg(2)
                ) as response:
                    locations.append(response.headers["Location"])
            status, error = await host.ask("GET", f"/api/w/{WORLD}/status")
            assert (status, error["connected"]) == (200, False)
            async with a_node(**store, http_port=port):
                ends = [(await host.outcome(location))["state"] for location in locations]
                assert sorted(ends) == ["duplicate", "published"]
                found = await host.wait_for_items(2, "publications")
                assert [item["card"]["title"] for item in found] == ["meanwhile", "before"]

    asyncio.run(story())


def test_a_certificate_encrypts_the_connections_of_guests(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=gallery.test", "-out", str(files[0]), "-keyout", str(files[1])),
        ],
        check=True,
        capture_output=True,
    )

    async def story() -> None:
        names = ("gallery.test",)
        async with a_gallery(tmp_path / "g", tls=files, lan_names=names) as place:
            link = place.served.invitation_url or ""
            assert link.startswith("https://gallery.test:")
            assert place.served.url.startswith("http://127.0.0.1:")
            port = link.split(":")[2].partition("/")[0]
            visitor = await place.a_visitor(f"https://127.0.0.1:{port}")
            body = {"token": place.token, "name": "Ana"}
            async with visitor.session.post(
                f"{visitor.url}/api/join", json=body, ssl=False
            ) as response:
                assert response.status == 201
                cookie = response.headers["Set-Cookie"]
                assert {"HttpOnly", "Secure", "SameSite=Strict"} <= set(cookie.split("; "))

    asyncio.run(story())
