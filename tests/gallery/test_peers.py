"""Galleries of other nodes: announced in the world, listed, and open to each other's guests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nacl.signing import SigningKey

import thyme
from tests.daemon.pages import a_node, a_place
from tests.gallery.served import (
    PATIENCE_S,
    WORLD,
    GalleryUnderTest,
    Visitor,
    a_jpeg,
    add_gallery,
    until,
)
from tests.live.nodes import free_group
from thyme.gallery.settings import GallerySettings
from thyme.gallery.web.database import GalleryDatabase
from thyme.gallery.web.feed import Feed
from thyme.gallery.web.guests import VISITORS_MAX
from thyme.gallery.web.peers.announcement import (
    ADDRESS_TAG,
    PREFIX,
    Announcement,
    decode_announcement,
    encode_announcement,
)
from thyme.gallery.web.peers.directory import ANNOUNCED_S, PEERS_MAX, PeerDirectory
from thyme.gallery.web.peers.passes import GuestPass, PassSigner, open_pass
from thyme.gallery.web.server import serve_gallery

KEY = bytes(range(32))
URL = "http://192.168.1.5:8480"


@asynccontextmanager
async def two_galleries(
    folder: Path, *, secret: str | None = None, **settings: Any
) -> AsyncIterator[tuple[GalleryUnderTest, GalleryUnderTest]]:
    """Two nodes of one world, each with a gallery, that know each other."""
    group = free_group()
    wanted = {} if secret is None else {"secret": secret}
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(a_node(network=a_place(group), **wanted))
        two = await stack.enter_async_context(
            a_node(network=a_place(group), create=False, world_id=None, **wanted)
        )
        first = await add_gallery(stack, folder / "1", one, **settings)
        second = await add_gallery(stack, folder / "2", two, **settings)
        for place in (first, second):
            await wait_for_galleries(await place.host(), 1)
        yield first, second


async def wait_for_galleries(visitor: Visitor, count: int) -> list[dict[str, Any]]:
    """Waits until a gallery knows so many others."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status, found = await visitor.ask("GET", f"/api/w/{WORLD}/galleries")
            assert status == 200, found
            if len(found) == count:
                galleries: list[dict[str, Any]] = found
                return galleries
            await asyncio.sleep(0.05)


async def follow(place: GalleryUnderTest, link: str) -> tuple[Visitor, int, dict[str, Any]]:
    """Opens a link of another gallery as the page does."""
    visitor = await place.a_visitor()
    url, _, signed = link.partition("/#pass=")
    assert url == place.served.lan_url
    status, reply = await visitor.ask("POST", "/api/visit", json={"pass": signed})
    return visitor, status, reply


def test_a_gallery_lists_the_other_and_its_guest_may_look_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with two_galleries(tmp_path) as (first, second):
            await (await second.host()).ask("PATCH", "/api/me", json={"name": "Rui <b>"})
            ana = await first.guest("Ana")
            directory = first.served.state.worlds[WORLD].directory
            await until(lambda: bool(directory.announced()[0].announcement.name))
            [listed] = await wait_for_galleries(ana, 1)
            assert (listed["name"], listed["url"]) == ("Rui <b>", second.served.lan_url)
            assert second.token not in msgspec.json.encode(listed).decode()
            await ana.upload(a_jpeg(), title="a goal")

            there, status, reply = await follow(second, listed["link"])
            assert (status, reply) == (201, {"name": "Ana", "rights": "look"})
            await there.wait_for_items(1)
            _, me = await there.ask("GET", "/api/me")
            assert (me["visitor"], me["rights"]) == (True, "look")
            assert (await there.upload(a_jpeg(2)))[0] == 403
            status, error = await there.ask("GET", "/api/invitation")  # it would give more rights
            assert (status, error["error"]) == (403, "no_right")
            _, guests = await (await second.host()).ask("GET", "/api/guests")
            assert [g["origin"] for g in guests] == [None, first.node.host.node_id.hex()]

            body = {"token": second.token, "name": "Ana"}  # scans the code after all
            assert (await there.ask("POST", "/api/join", json=body))[0] == 201
            _, after = await there.ask("GET", "/api/me")
            assert (after["id"], after["rights"]) == (me["id"], "publish")
            assert after["visitor"] is False

    asyncio.run(story())


def test_in_a_closed_world_guests_of_another_gallery_have_the_rights_of_guests(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with two_galleries(tmp_path, secret="x" * 32) as (first, second):
            ana = await first.guest("Ana")
            [listed] = await wait_for_galleries(ana, 1)
            there, status, reply = await follow(second, listed["link"])
            assert (status, reply["rights"]) == (201, "publish")
            assert (await there.upload(a_jpeg()))[1]["state"] == "published"

    asyncio.run(story())


def test_a_pass_used_again_is_the_same_guest_and_a_blocked_one_stays_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with two_galleries(tmp_path) as (first, second):
            ana = await first.guest("Ana")
            [listed] = await wait_for_galleries(ana, 1)
            once, _, _ = await follow(second, listed["link"])
            again, status, _ = await follow(second, listed["link"])
            assert status == 201
            assert (await once.ask("GET", "/api/me"))[0] == 401  # one session for each visitor
            host = await second.host()
            _, guests = await host.ask("GET", "/api/guests")
            assert [guest["name"] for guest in guests] == ["Host", "Ana"]
            await host.ask("PATCH", f"/api/guests/{guests[1]['id']}", json={"blocked": True})
            _, status, error = await follow(second, listed["link"])
            assert (status, error["error"]) == (403, "blocked")
            assert (await again.ask("GET", "/api/me"))[0] == 403

    asyncio.run(story())


def test_forged_expired_and_misdirected_passes_are_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with two_galleries(tmp_path) as (first, second):
            visitor = await second.a_visitor()
            own = first.served.state.signer
            to = second.served.state.signer.public_key
            soon = int(time.time()) + 600
            stranger = PassSigner(GalleryDatabase(tmp_path / "stranger.sqlite"))
            good = own.sign(to, "ana", "Ana", soon)
            cases = {
                "": "bad_pass",
                "é" * 50: "bad_pass",
                "A" * 3_000: "bad_pass",
                good[:-2] + ("AA" if good[-2:] != "AA" else "BB"): "bad_pass",
                own.sign(own.public_key, "ana", "Ana", soon): "bad_pass",  # for another gallery
                own.sign(to, "ana", "Ana", soon - 10_000): "expired_pass",
                own.sign(to, "ana", "Ana", soon + 10**7): "expired_pass",
                stranger.sign(to, "ana", "Ana", soon): "unknown_gallery",
            }
            for text, wanted in cases.items():
                status, error = await visitor.ask("POST", "/api/visit", json={"pass": text})
                assert (status, error["error"]) == (403, wanted), text[:20]
            owner = first.node.host.node_id.hex()
            host = await second.host()
            await host.ask("POST", f"/api/w/{WORLD}/hidden", json={"what": owner, "hidden": True})
            status, error = await visitor.ask("POST", "/api/visit", json={"pass": good})
            assert (status, error["error"]) == (403, "unknown_gallery")
            assert await wait_for_galleries(host, 0) == []
            await host.ask("POST", f"/api/w/{WORLD}/hidden", json={"what": owner, "hidden": False})
            assert (await visitor.ask("POST", "/api/visit", json={"pass": good}))[0] == 201
            for _ in range(10):
                status, _ = await visitor.ask("POST", "/api/visit", json={"pass": "guess"})
            assert status == 429

    asyncio.run(story())


def test_guests_of_a_gallery_do_not_come_into_a_world_that_it_is_not_in(tmp_path: Path) -> None:
    async def story() -> None:
        group = free_group()
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(a_node(network=a_place(group)))
            two = await stack.enter_async_context(
                a_node(network=a_place(group), create=False, world_id=None)
            )
            private = await stack.enter_async_context(a_node())
            first = await add_gallery(stack, tmp_path / "1", one)
            settings = GallerySettings(
                folder=tmp_path / "2",
                nodes=((WORLD, two.url), ("family", private.url)),
                local=("127.0.0.1", 0),
                lan=("127.0.0.1", 0),
            )
            served = await stack.enter_async_context(serve_gallery(settings))
            second = GalleryUnderTest(two, served, stack)
            await wait_for_galleries(await second.host(), 1)
            [listed] = await wait_for_galleries(await first.guest(), 1)
            _, status, error = await follow(second, listed["link"])
            assert (status, error["error"]) == (403, "unknown_gallery")

    asyncio.run(story())


def test_one_gallery_cannot_bring_any_number_of_guests(tmp_path: Path) -> None:
    async def story() -> None:
        async with two_galleries(tmp_path) as (first, second):
            visitor = await second.a_visitor()
            signer, to = first.served.state.signer, second.served.state.signer.public_key
            soon = int(time.time()) + 600
            for number in range(VISITORS_MAX + 1):
                signed = signer.sign(to, f"guest {number}", "Eve", soon)
                status, _ = await visitor.ask("POST", "/api/visit", json={"pass": signed})
                assert status == (201 if number < VISITORS_MAX else 429)

    asyncio.run(story())


def test_photos_are_copied_and_stay_when_their_device_is_gone(tmp_path: Path) -> None:
    """M14: the gallery outlives its server, in a world without cells as well."""

    async def story() -> None:
        group = free_group()
        async with AsyncExitStack() as stack:
            two = await stack.enter_async_context(a_node(network=a_place(group)))
            second = await add_gallery(stack, tmp_path / "2", two)
            host = await second.host()
            async with AsyncExitStack() as first_machine:
                one = await first_machine.enter_async_context(
                    a_node(network=a_place(group), create=False, world_id=None)
                )
                first = await add_gallery(first_machine, tmp_path / "1", one)
                ana = await first.guest("Ana")
                await ana.upload(a_jpeg(1, (640, 480)), title="a goal")
                [item] = await host.wait_for_items(1)
                owner = one.host.node_id.hex()
                copies = second.served.state.worlds[WORLD].copies
                await until(lambda: item["card"]["key"] in copies)
                _, status = await host.ask("GET", f"/api/w/{WORLD}/status")
                assert status["kept"][owner]["photos"] == 1
                assert status["kept"][owner]["bytes"] == item["card"]["size"]
            path = f"/api/w/{WORLD}/objects/{item['card']['key']}"
            status, body = await host.ask("GET", path)
            assert (status, len(body)) == (200, item["card"]["size"])

    asyncio.run(story())


def test_copies_stop_at_their_limit(tmp_path: Path) -> None:
    async def story() -> None:
        async with two_galleries(tmp_path, copies_bytes_max=2_000) as (first, second):
            ana = await first.guest("Ana")
            for number in range(6):
                await ana.upload(a_jpeg(number))
            host = await second.host()
            items = await host.wait_for_items(6)
            copies = second.served.state.worlds[WORLD].copies
            sizes = [item["card"]["size"] for item in items]
            assert sum(sizes) > 2_000 > 2 * max(sizes)
            await until(lambda: copies.limited_bytes + max(sizes) > 2_000)
            assert copies.limited_bytes <= 2_000
            assert not second.served.state.copiers[WORLD].missing()
            kept = {key for key, _ in copies.items()}
            assert kept < {item["card"]["key"] for item in items}
            [other, *_] = [item for item in items if item["card"]["key"] not in kept]
            marks = {"keys": [other["card"]["key"]], "mark": "downloaded"}
            status, _ = await host.ask("POST", f"/api/w/{WORLD}/marks", json=marks)
            assert status == 204  # who asks for a photo gets it beyond the limit
            assert other["card"]["key"] in copies

    asyncio.run(story())


@pytest.mark.parametrize(
    "url",
    [
        "http://192.168.1.5:8480/j/token",
        "http://192.168.1.5:8480/",
        "http://192.168.1.5:8480?x",
        "http://user@192.168.1.5:8480",
        "http://192.168.1.5",
        "http://192.168.1.5:0",
        "http://192.168.1.5:99999",
        "http://93.184.216.34:80",
        "http://gallery.example:80",
        "https://Gallery.example:443",
        "https://gal lery.example:443",
        "https://localhost:443",
        "http://0.0.0.0:8480",
        "http://224.0.0.1:8480",
        "javascript:alert(1)",
        "ftp://192.168.1.5:21",
        'http://192.168.1.5:8480"><script>',
        "https://" + "a" * 300 + ".example:443",
        "http://192.168.1.5:84\n80",
        "",
    ],
)
def test_an_announced_address_that_is_no_gallery_is_ignored(url: str) -> None:
    assert (
        decode_announcement(encode_announcement(Announcement(url=url, name="x", key=KEY))) is None
    )


@pytest.mark.parametrize(
    "url", [URL, "https://gallery.example:8443", "http://[fd00::1]:8480", "http://10.0.0.1:80"]
)
def test_an_announced_address_in_a_private_network_or_with_a_certificate_counts(url: str) -> None:
    announcement = Announcement(url=url, name="x", key=KEY)
    assert decode_announcement(encode_announcement(announcement)) == announcement


def test_torn_and_foreign_announcements_are_ignored() -> None:
    good = encode_announcement(Announcement(url=URL, name="a\nb" * 100, key=KEY))
    found = decode_announcement(good)
    assert found is not None
    assert len(found.name) <= 80
    assert "\n" not in found.name
    for data in (b"", b"text", PREFIX, good[:-1], good[len(PREFIX) :], PREFIX + b"\xc1"):
        assert decode_announcement(data) is None
    short = Announcement(url=URL, name="", key=KEY[:5])
    assert decode_announcement(encode_announcement(short)) is None


def an_announcement_of(number: int, url: str = URL, published_us: int = 10**15) -> thyme.Metadata:
    """Metadata of an announcement by the node with this number."""
    announcement = Announcement(url=url, name="", key=number.to_bytes(32, "big"))
    return thyme.Metadata(
        key=thyme.Key("a", number.to_bytes(16, "big")),  # type: ignore[arg-type]
        tags=(ADDRESS_TAG,),  # type: ignore[arg-type]
        summary=encode_announcement(announcement),
        published_us=published_us,
        size=0,
        digest_and_proof=bytes(32),
    )


def test_the_directory_is_bounded_and_remembers(tmp_path: Path) -> None:
    async def story() -> None:
        database = GalleryDatabase(tmp_path / "g.sqlite")
        directory = PeerDirectory(database, WORLD, Feed())
        for number in range(PEERS_MAX + 10):
            directory.receive(an_announcement_of(number), 10**15)
        assert len(directory.announced()) == PEERS_MAX
        again = PeerDirectory(database, WORLD, Feed())
        assert len(again.announced()) == PEERS_MAX
        moved = an_announcement_of(3, "http://10.0.0.3:8480", 10**15 + 1)
        again.receive(moved, 10**15)
        again.receive(an_announcement_of(3), 10**15)  # an older one comes late
        assert again.announced()[0].announcement.url == "http://10.0.0.3:8480"
        taken = msgspec.structs.replace(
            an_announcement_of(3, published_us=10**15 + 2),
            key=thyme.Key("a", bytes(15) + b"\xff"),  # type: ignore[arg-type]
        )
        again.receive(taken, 10**15)  # another node with the key of the third
        found = again.find_by_key((3).to_bytes(32, "big"))
        assert found is not None
        assert found.owner == (3).to_bytes(16, "big").hex()

    asyncio.run(story())


def test_old_announcements_and_addresses_of_this_machine_are_not_listed(tmp_path: Path) -> None:
    async def story() -> None:
        directory = PeerDirectory(GalleryDatabase(tmp_path / "g.sqlite"), WORLD, Feed())
        directory.receive(an_announcement_of(1), 10**15 + int(ANNOUNCED_S * 1e6))
        directory.receive(an_announcement_of(2, "http://127.0.0.1:8480"), 10**15)
        assert directory.announced() == []

    asyncio.run(story())


def test_a_pass_holds_what_its_gallery_signed(tmp_path: Path) -> None:
    signer = PassSigner(GalleryDatabase(tmp_path / "g.sqlite"))
    text = signer.sign(KEY, "ana", "Ana", 99)
    assert open_pass(text) == GuestPass(signer.public_key, KEY, "ana", "Ana", 99)
    again = PassSigner(GalleryDatabase(tmp_path / "g.sqlite"))
    assert again.public_key == signer.public_key
    assert bytes(SigningKey.generate().verify_key) != signer.public_key
