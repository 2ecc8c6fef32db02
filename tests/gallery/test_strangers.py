"""Bad input and strangers: refused or escaped, said clearly, and nothing is lost."""

from __future__ import annotations

import asyncio
import errno
import io
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.gallery.served import PATIENCE_S, WORLD, GalleryUnderTest, a_gallery, a_jpeg, tus_headers
from thyme.gallery.web.item_routes import ItemRoutes
from thyme.gallery.web.security import Door, GalleryRoute
from thyme.gallery.web.server import all_routes

SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(2)</script></svg>'
HTML = '<img src=x onerror="alert(1)">'


def routes_of(place: GalleryUnderTest) -> list[GalleryRoute]:
    """All routes of a gallery."""
    door = Door(is_local=False, hosts=frozenset())
    items = ItemRoutes(place.served.state, place.served.publisher)
    return all_routes(place.served.state, items, door, None)


def filled(path: str) -> str:
    """A path with something in every place."""
    for name in ("key", "id", "sid", "name", "token"):
        path = path.replace(f"{{{name}}}", "x")
    return path.replace("{world}", WORLD)


def test_who_has_not_joined_gets_nothing_on_any_route(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            stranger = await place.a_visitor()
            open_paths = set()
            for route in routes_of(place):
                status, _ = await stranger.ask(route.method, filled(route.path))
                if route.right:
                    assert status == 401, route
                else:
                    open_paths.add(f"{route.method} {route.path}")
            assert open_paths == {
                "GET /",
                "GET /wall",
                "GET /poster",
                "GET /map",
                "GET /map/{name}",
                "GET /j/{token}",
                "GET /assets/{name}",
                "GET /generate_204",
                "GET /hotspot-detect.html",
                "POST /api/join",
                "POST /api/visit",
                "OPTIONS /api/w/{world}/uploads",
            }

    asyncio.run(story())


@pytest.mark.parametrize("right", ["look", "publish", "approve"])
def test_a_guest_without_a_right_is_refused_on_every_route_that_demands_it(
    tmp_path: Path, right: str
) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            token = place.served.state.guests.invite(right)
            guest = await place.guest("Eva", token)
            order = ["", "look", "publish", "approve", "host"]
            refused = 0
            for route in routes_of(place):
                if order.index(route.right) > order.index(right):
                    status, error = await guest.ask(route.method, filled(route.path))
                    assert status == 403, route
                    assert route.method == "HEAD" or error["error"] == "no_right", route
                    refused += 1
            assert refused

    asyncio.run(story())


def test_a_page_of_another_origin_and_a_rebound_name_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host = await place.host()
            join = {"json": {"token": place.token, "name": "Eve"}}
            for headers, wanted in (
                ({"Origin": "http://evil.example"}, "wrong_origin"),
                ({"Origin": "null"}, "wrong_origin"),
                ({"Sec-Fetch-Site": "cross-site"}, "wrong_origin"),
                ({"Host": "evil.example"}, "wrong_host"),
                ({"Host": "evil.example:80"}, "wrong_host"),
            ):
                status, error = await host.ask("POST", "/api/join", headers=headers, **join)
                assert (status, error["error"]) in ((403, wanted), (421, wanted))
            # The address for this machine gives all rights, so reading is refused as well.
            for headers in (
                {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
                {"Host": "evil.example"},
                {"Origin": "http://evil.example"},
            ):
                assert (await host.ask("GET", "/api/me", headers=headers))[0] in (403, 421)
            navigated = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
            assert (await host.ask("GET", "/", headers=navigated))[0] == 200
            own = {"Origin": place.served.url, "Sec-Fetch-Site": "same-origin"}
            status, _ = await host.ask("PATCH", "/api/me", headers=own, json={"name": "João"})
            assert status == 204

    asyncio.run(story())


def test_invitations_are_refused_when_replayed_renewed_or_guessed(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host, visitor = await place.host(), await place.a_visitor()
            _, link = await host.ask("POST", "/api/invitations", json={"rights": "approve"})
            once = link["url"].rpartition("/")[2]
            helper = await place.guest("Rui", once)
            assert (await helper.ask("GET", "/api/guests"))[0] == 200
            body = {"token": once, "name": "Eve"}
            status, error = await visitor.ask("POST", "/api/join", json=body)
            assert (status, error["error"]) == (403, "used_invitation")
            old = place.token
            assert (await host.ask("POST", "/api/invitation"))[0] == 200
            body["token"] = old
            status, error = await visitor.ask("POST", "/api/join", json=body)
            assert (status, error["error"]) == (403, "bad_invitation")
            body = {"token": place.token, "name": " \0 "}
            assert (await visitor.ask("POST", "/api/join", json=body))[0] == 400
            for _ in range(20):
                status, error = await visitor.ask(
                    "POST", "/api/join", json={"token": "guess", "name": "Eve"}
                )
            assert (status, error["error"]) == (429, "too_many_tries")

    asyncio.run(story())


def test_a_session_expires_and_a_blocked_guest_is_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host, ana = await place.host(), await place.guest()
            await ana.upload(a_jpeg(), title="rude")
            await host.wait_for_items(1)
            _, me = await ana.ask("GET", "/api/me")
            await host.ask("PATCH", f"/api/guests/{me['id']}", json={"blocked": True})
            status, error = await ana.ask("GET", "/api/me")
            assert (status, error["error"]) == (403, "blocked")
            assert await host.items("available") == []
            await host.ask("PATCH", f"/api/guests/{me['id']}", json={"blocked": False})
            assert (await ana.ask("GET", "/api/me"))[0] == 200
            assert len(await host.items("available")) == 1
            place.served.state.database.execute("UPDATE sessions SET expires_s = 1")
            status, error = await ana.ask("GET", "/api/me")
            assert (status, error["error"]) == (401, "session_expired")

    asyncio.run(story())


def test_an_open_page_hears_nothing_after_its_session_expired(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host, ana = await place.host(), await place.guest()
            async with ana.session.get(f"{ana.url}/api/events") as stream:
                await stream.content.readuntil(b"\n\n")
                place.served.state.database.execute("UPDATE sessions SET expires_s = 1")
                await host.upload(a_jpeg(), title="secret")
                async with asyncio.timeout(PATIENCE_S):
                    assert await stream.content.read() == b""

    asyncio.run(story())


def test_the_address_for_guests_refuses_other_origins_and_names(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            ana = await place.guest()
            for headers, wanted in (
                ({"Host": "evil.example"}, (421, "wrong_host")),
                ({"Host": place.served.url.removeprefix("http://")}, (421, "wrong_host")),
                ({"Origin": place.served.url}, (403, "wrong_origin")),
            ):
                for method in ("GET", "PATCH"):
                    body = {"name": "Eve"}
                    status, error = await ana.ask(method, "/api/me", headers=headers, json=body)
                    assert (status, error["error"]) == wanted
            assert (await ana.ask("GET", "/api/me"))[1]["name"] == "Ana"

    asyncio.run(story())


def test_a_file_of_4_gb_is_refused_before_its_first_byte(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host = await place.host()
            path = f"/api/w/{WORLD}/uploads"
            status, error = await host.ask("POST", path, headers=tus_headers(4 * 2**30))
            assert (status, error["error"]) == (413, "too_large")
            assert list((tmp_path / "uploads").iterdir()) == []

    asyncio.run(story())


def test_quotas_are_per_guest(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path, guest_photos_max=1, guest_bytes_max=10_000) as place:
            ana, eva = await place.guest(), await place.guest("Eva")
            path = f"/api/w/{WORLD}/uploads"
            status, error = await ana.ask("POST", path, headers=tus_headers(10_001))
            assert (status, error["error"]) == (403, "over_quota")
            assert (await ana.upload(a_jpeg(1)))[1]["state"] == "published"
            status, error = await ana.upload(a_jpeg(2))
            assert (status, error["error"]) == (403, "over_quota")
            assert (await eva.upload(a_jpeg(3)))[1]["state"] == "published"

    asyncio.run(story())


def test_a_full_disk_is_said_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host = await place.host()
            await host.upload(a_jpeg(1))
            full = shutil._ntuple_diskusage(10**9, 10**9, 1_000)
            with monkeypatch.context() as patch:
                patch.setattr(shutil, "disk_usage", lambda folder: full)
                status, error = await host.upload(a_jpeg(2))
                assert (status, error["error"]) == (507, "disk_full")

            def no_space(*_: Any, **__: Any) -> None:
                raise OSError(errno.ENOSPC, "No space left on device")

            with monkeypatch.context() as patch:
                patch.setattr("thyme.gallery.web.uploads.asyncio.to_thread", no_space)
                status, error = await host.upload(a_jpeg(3))
                assert (status, error["error"]) == (507, "disk")
            assert (await host.upload(a_jpeg(4)))[1]["state"] == "published"
            assert len(await host.wait_for_items(2, "publications")) == 2

    asyncio.run(story())


def test_a_full_disk_leaves_no_half_record_of_an_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a record would keep the gallery from starting again."""
    whole = Path.write_bytes

    def no_space(path: Path, data: bytes) -> int:
        whole(path, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host = await place.host()
            path = f"{host.url}/api/w/{WORLD}/uploads"
            async with host.session.post(path, headers=tus_headers(3)) as response:
                location = response.headers["Location"]
            headers = tus_headers(3) | {"Upload-Offset": "0"}
            headers["Content-Type"] = "application/offset+octet-stream"
            with monkeypatch.context() as patch:
                patch.setattr(Path, "write_bytes", no_space)
                status, error = await host.ask("PATCH", location, headers=headers, data=b"abc")
                assert (status, error["error"]) == (507, "disk")
            assert (await host.ask("GET", location))[1]["state"] == "receiving"
        async with a_gallery(tmp_path) as place:
            host = await place.host()
            headers["Upload-Offset"] = "3"
            assert (await host.ask("PATCH", location, headers=headers))[0] == 204
            assert (await host.outcome(location))["state"] == "published"

    asyncio.run(story())


def test_a_pixel_flood_and_a_damaged_picture_are_refused_with_a_reason(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host = await place.host()
            damaged = a_jpeg(size=(300, 300))[:400]
            _, upload = await host.upload(damaged)
            assert upload["state"] == "failed"
            assert "damaged" in upload["message"]
            gif = b"GIF89a" + (60_000).to_bytes(2, "little") * 2 + b"\x80\0\0" + bytes(6)
            gif += b",\0\0\0\0" + (60_000).to_bytes(2, "little") * 2 + b"\0\2\1\0\0;"
            _, upload = await host.upload(gif, "flood.gif")
            assert upload["state"] == "failed"
            assert "pixels" in upload["message"]
            assert (await host.upload(a_jpeg()))[1]["state"] == "published"

    asyncio.run(story())


def test_an_svg_with_a_script_and_html_in_texts_never_run(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host = await place.host()
            _, upload = await host.upload(SVG, "../../<x>.svg", title=HTML, tags="<script>")
            [item] = await host.wait_for_items(1, "publications")
            card = item["card"]
            assert (card["file_name"], card["title"]) == ("_x_.svg", HTML)
            assert card["type"] == "application/octet-stream"
            path = f"{host.url}/api/w/{WORLD}/objects/{upload['key']}"
            async with host.session.get(path) as response:
                assert response.headers["Content-Type"] == "application/octet-stream"
                assert response.headers["Content-Disposition"].startswith("attachment")
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert "sandbox" in response.headers["Content-Security-Policy"]
                assert await response.read() == SVG
            for page in ("/", "/wall", "/api/me", "/nowhere", f"/j/{HTML}"):
                async with host.session.get(host.url + page) as response:
                    policy = response.headers["Content-Security-Policy"]
                    assert "script-src 'self'" in policy
                    assert "unsafe" not in policy
                    assert HTML.encode() not in await response.read()

    asyncio.run(story())


def test_uploads_of_others_and_wrong_uploads_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            ana, eva = await place.guest(), await place.guest("Eva")
            path = f"/api/w/{WORLD}/uploads"
            async with ana.session.post(ana.url + path, headers=tus_headers(10)) as response:
                location = response.headers["Location"]
            for method in ("GET", "HEAD", "PATCH", "DELETE"):
                headers = {"Tus-Resumable": "1.0.0", "Upload-Offset": "0"}
                assert (await eva.ask(method, location, headers=headers))[0] == 404
            patch = {
                "Tus-Resumable": "1.0.0",
                "Upload-Offset": "0",
                "Content-Type": "application/offset+octet-stream",
            }
            status, error = await ana.ask("PATCH", location, headers=patch, data=bytes(11))
            assert (status, error["error"]) == (400, "too_long")
            for headers in (
                {},
                {"Tus-Resumable": "0.2"},
                {"Tus-Resumable": "1.0.0"},
                {"Tus-Resumable": "1.0.0", "Upload-Length": "-1"},
                {"Tus-Resumable": "1.0.0", "Upload-Length": "9" * 30},
                {"Tus-Resumable": "1.0.0", "Upload-Length": "1", "Upload-Metadata": "tags *"},
                tus_headers(1, tags="a b&c"),
            ):
                assert (await ana.ask("POST", path, headers=headers))[0] in (400, 412)
            assert (await ana.ask("DELETE", location))[0] == 204
            assert (await ana.ask("GET", location))[0] == 404

    asyncio.run(story())


def test_wrong_requests_get_an_answer_that_says_why(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path) as place:
            host = await place.host()
            base = f"/api/w/{WORLD}"
            for method, path, body, wanted in (
                ("GET", "/api/w/nowhere/items", None, 404),
                ("GET", f"{base}/items?view=secret", None, 400),
                ("GET", f"{base}/items?limit=0", None, 400),
                ("GET", f"{base}/items?limit=999999999999", None, 400),
                ("GET", f"{base}/items?before=x", None, 400),
                ("GET", f"{base}/items?query=%26", None, 400),
                ("GET", f"{base}/thumbnails/x", None, 404),
                ("GET", f"{base}/objects/..%2f..%2fetc%2fpasswd", None, 404),
                ("GET", "/assets/..%2fserver.py", None, 404),
                ("GET", "/assets/.hidden", None, 404),
                ("DELETE", f"{base}/items/x", None, 404),
                ("POST", f"{base}/marks", {"keys": ["x"], "mark": "near"}, 404),
                ("POST", f"{base}/marks", {"keys": [], "mark": 5}, 400),
                ("POST", f"{base}/subscriptions", {"query": "a", "start_us": 2, "end_us": 1}, 400),
                ("POST", f"{base}/subscriptions", {"query": "!a"}, 400),
                ("POST", f"{base}/archives", {"keys": ["x"]}, 404),
                ("GET", "/api/archives/x", None, 404),
                ("POST", "/api/code", {"text": "x" * 501}, 400),
                ("POST", "/api/code", {"text": "x" * 100_000}, 413),
                ("PATCH", "/api/guests/host", {"blocked": True}, 404),
                ("PATCH", "/api/me", {"name": ""}, 400),
                ("POST", "/api/invitations", {"rights": "host"}, 400),
            ):
                status, error = await host.ask(method, path, json=body)
                assert status == wanted, (path, error)
                assert error["message"]
            status, error = await host.ask("POST", f"{base}/marks", data=io.BytesIO(b"{"))
            assert (status, error["error"]) == (415, "bad_type")

    asyncio.run(story())


def test_a_gallery_for_this_machine_has_no_address_for_guests(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_gallery(tmp_path, lan=None) as place:
            host = await place.host()
            status, error = await host.ask("GET", "/api/invitation")
            assert (status, error["error"]) == (409, "no_lan")
            assert place.served.lan_url is None
            assert (await host.ask("GET", "/generate_204"))[0] == 204

    asyncio.run(story())
