"""The HTTP API of a node: every operation, and every kind of invalid request."""

from __future__ import annotations

import asyncio
import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import FormData
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yarl import URL

import thyme
from tests.daemon.pages import Pages, a_node, a_place
from thyme.daemon import logs, openapi
from thyme.daemon.server import start_server
from thyme.live.node_factory import unwrap_node
from thyme.model.errors import OptionError
from thyme.model.worlds import Area
from thyme.substrates.dcs.node import DcsNode

STRANGER = "o@" + "ff" * 16


def form(field: str, *, boundary: str = "; boundary=cut", end: str = "--cut--\r\n") -> Any:
    """A form with one field, as no library would write it."""
    head = f'--cut\r\nContent-Disposition: form-data; name="{field}"\r\n\r\nx\r\n'
    headers = {"Content-Type": f"multipart/form-data{boundary}"}
    return {"data": (head + end).encode(), "headers": headers}


async def read_events(response: Any, count: int) -> list[tuple[str, Any]]:
    """Reads the next server-sent events."""
    found: list[tuple[str, Any]] = []
    name = ""
    while len(found) < count:
        line = (await asyncio.wait_for(response.content.readline(), 10)).decode().strip()
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            found.append((name, json.loads(line.removeprefix("data: "))))
    return found


def test_an_object_goes_in_is_found_comes_out_and_goes() -> None:
    """M13, M14, M19, M20, M32 over HTTP."""

    async def story() -> None:
        async with a_node() as node:
            data = bytes(range(256)) * 5_000
            path = "/v1/objects?tags=goal,eder&oid=photo&summary=79'"
            status, made = await node.ask("POST", path, data=BytesIO(data))
            assert status == 201
            key = made["key"]

            _, found = await node.ask("GET", "/v1/objects?query=goal")
            assert found["total"] == 1
            assert found["notes"][0]["object"]["key"] == key
            assert found["notes"][0]["object"]["summary_text"] == "79'"
            assert await node.ask("GET", f"/v1/objects/{key}") == (200, data)
            assert (await node.ask("DELETE", f"/v1/objects/{key}"))[0] == 204
            status, answer = await node.ask("GET", f"/v1/objects/{key}")
            assert (status, answer["error"]) == (404, "not_found")
            _, known = await node.ask("GET", f"/v1/objects/{key}/metadata")
            assert known == {"state": "deleted", "object": None}

    asyncio.run(story())


def test_a_form_brings_a_summary_of_any_bytes() -> None:
    """M2."""

    async def story() -> None:
        async with a_node() as node:
            form = FormData()
            form.add_field("summary", BytesIO(b"\xff\xd8 small"))
            form.add_field("data", BytesIO(b"large"))
            status, made = await node.ask("POST", "/v1/objects?tags=a", data=form)
            assert status == 201
            _, known = await node.ask("GET", f"/v1/objects/{made['key']}/metadata")
            assert known["object"]["summary"] == "/9ggc21hbGw="
            assert known["object"]["summary_text"] is None
            await node.ask("GET", "/v1/objects?query=a")
            assert await node.ask("GET", f"/v1/objects/{made['key']}") == (200, b"large")

    asyncio.run(story())


async def until_found(node: Pages, key: str) -> None:
    """Waits until a node reaches the owner of an object."""
    for _ in range(1_000):
        if (await node.ask("GET", f"/v1/objects/{key}/metadata"))[0] == 200:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"the owner of {key} is out of reach")


def test_m19_an_object_is_retrieved_by_its_key_only_after_a_notification(tmp_path: Path) -> None:
    """M19: a lookup does not suffice; a notification of any application of the node does, a search
    too, and a subscription that outlives the node. The owner needs none of them."""
    place = a_place()

    async def story() -> None:
        async with a_node(network=place) as owner:
            keys = [
                (await owner.ask("POST", f"/v1/objects?tags={tag}", data=b"x"))[1]["key"]
                for tag in ("a", "b", "c")
            ]
            assert [await owner.ask("GET", f"/v1/objects/{key}") for key in keys] == 3 * [
                (200, b"x")
            ]
            async with a_node(network=place, create=False, world_id=None, data=tmp_path) as node:
                await until_found(node, keys[0])
                for key in keys:
                    status, answer = await node.ask("GET", f"/v1/objects/{key}")
                    assert (status, answer["error"]) == (404, "not_found")
                    assert "only notified objects" in answer["message"]
                async with thyme.connect(node.url) as world:
                    await anext(await world.subscribe("a"))
                await node.ask("GET", "/v1/objects?query=b")
                found = [await node.ask("GET", f"/v1/objects/{key}") for key in keys]
                assert [status for status, _ in found] == [200, 200, 404]
                await node.ask("POST", "/v1/subscriptions", json={"query": "c"})
            async with a_node(network=place, create=False, world_id=None, data=tmp_path) as node:
                await until_found(node, keys[0])
                found = [await node.ask("GET", f"/v1/objects/{key}") for key in keys]
                assert [status for status, _ in found] == [200, 404, 200]

    asyncio.run(story())


def test_news_come_as_events_and_a_reader_who_is_cut_off_misses_nothing() -> None:
    """M15, M17, M18, M27, M33 over HTTP."""

    async def story() -> None:
        async with a_node() as node:
            for oid in ("one", "two"):
                await node.ask("POST", f"/v1/objects?tags=a&oid={oid}", data=b"x")
            wish = {"query": "a & !b", "batch": 1}
            status, standing = await node.ask("POST", "/v1/subscriptions", json=wish)
            assert status == 201
            path = f"/v1/subscriptions/{standing['sid']}"
            async with node.session.get(f"{node.url}{path}/events") as response:
                assert response.content_type == "text/event-stream"
                first, past = await read_events(response, 2)
                assert first[0] == "note"
                assert first[1]["past"]
                assert past == ("caught_up", {"total": 2, "code": ""})
                assert (await node.ask("GET", f"{path}/events"))[0] == 409
            await asyncio.sleep(0.1)
            async with node.session.get(f"{node.url}{path}/events") as response:
                assert response.status == 200
            await asyncio.sleep(0.1)
            await node.ask("POST", "/v1/objects?tags=a&oid=three", data=b"x")
            await node.ask("POST", "/v1/objects?tags=a,b&oid=four", data=b"x")
            assert (await node.ask("POST", f"{path}/more", json={"count": 5}))[1] == {"told": 1}

            async with node.session.get(f"{node.url}{path}/events") as response:
                heard = [event[1]["object"]["key"] for event in await read_events(response, 2)]
                oids = {key.split("@")[0] for key in heard}
                assert oids | {first[1]["object"]["key"].split("@")[0]} == {"one", "two", "three"}
                assert (await node.ask("DELETE", path))[0] == 204
                assert (await read_events(response, 1))[0][0] == "over"
            assert (await node.ask("GET", f"{path}/events"))[0] == 404

    asyncio.run(story())


def test_m34_a_reader_that_reconnects_gets_what_was_written_to_its_broken_connection() -> None:
    async def story() -> None:
        async with a_node() as node:
            _, standing = await node.ask("POST", "/v1/subscriptions", json={"query": "a"})
            path = f"/v1/subscriptions/{standing['sid']}/events"
            oids = [f"photo-{number}" for number in range(10)]
            keys = [
                (await node.ask("POST", f"/v1/objects?tags=a&oid={oid}", data=b"x"))[1]["key"]
                for oid in oids
            ]
            async with node.session.get(node.url + path) as response:
                await read_events(response, 11)
            await asyncio.sleep(0.1)
            headers = {"Last-Event-ID": keys[3]}
            async with node.session.get(node.url + path, headers=headers) as response:
                events = await read_events(response, 6)
                assert [body["object"]["key"] for _, body in events] == keys[4:]
            await asyncio.sleep(0.1)
            headers = {"Last-Event-ID": "nonsense"}
            assert (await node.ask("GET", path, headers=headers))[0] == 409

    asyncio.run(story())


def test_m34_a_reader_that_reconnects_twice_after_a_restart_gets_what_it_missed(
    tmp_path: Path,
) -> None:
    """Its first connection after the restart broke before it had read anything."""

    async def story() -> None:
        async with a_node(data=tmp_path) as node:
            _, standing = await node.ask("POST", "/v1/subscriptions", json={"query": "a"})
            path = f"/v1/subscriptions/{standing['sid']}/events"
            keys = [
                (await node.ask("POST", f"/v1/objects?tags=a&oid={oid}", data=b"x"))[1]["key"]
                for oid in ("one", "two", "three")
            ]
            async with node.session.get(node.url + path) as response:
                await read_events(response, 4)
            await asyncio.sleep(0.1)
        async with a_node(data=tmp_path, create=False, world_id=None) as node:
            for _ in range(3):
                async with node.session.get(
                    node.url + path, headers={"Last-Event-ID": keys[0]}
                ) as response:
                    events = await read_events(response, 2)
                assert {body["object"]["key"] for _, body in events} == set(keys[1:])
                await asyncio.sleep(0.1)

    asyncio.run(story())


def test_m34_a_reader_that_stalls_gets_every_event_once_and_in_order() -> None:
    """M33: while it stalls, the node keeps a bounded number of notifications for it."""

    async def story() -> None:
        async with a_node() as node:
            _, standing = await node.ask("POST", "/v1/subscriptions", json={"query": "a"})
            path = f"/v1/subscriptions/{standing['sid']}/events"
            oids = [f"photo-{number:04}" for number in range(1_500)]
            async with node.session.get(node.url + path) as response:
                for oid in oids:
                    form = FormData()
                    form.add_field("summary", BytesIO(bytes(10_000)))
                    form.add_field("data", BytesIO(b"x"))
                    await node.ask("POST", f"/v1/objects?tags=a&oid={oid}", data=form)
                events = await read_events(response, len(oids) + 1)
            notes = [body["object"]["key"] for name, body in events if name == "note"]
            assert [key.split("@")[0] for key in notes] == oids

    asyncio.run(story())


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "code"),
    [
        ("POST", "/v1/objects", {"data": b"x"}, 400, "bad_tag"),
        ("POST", "/v1/objects?tags=a&tags=b", {"data": b"x"}, 400, "bad_option"),
        ("POST", "/v1/objects?tags=a&colour=red", {"data": b"x"}, 400, "bad_option"),
        ("POST", "/v1/objects?tags=a%20b", {"data": b"x"}, 400, "bad_tag"),
        ("POST", "/v1/objects?tags=a&oid=@", {"data": b"x"}, 400, "bad_key"),
        ("POST", "/v1/objects?tags=a&life_s=nan", {"data": b"x"}, 400, "bad_option"),
        ("POST", "/v1/objects?tags=a&life_s=-1", {"data": b"x"}, 400, "bad_option"),
        ("POST", "/v1/objects?tags=a&copies=0", {"data": b"x"}, 400, "bad_option"),
        ("POST", "/v1/objects?tags=a&copies=2", {"data": b"x"}, 422, "unsupported"),
        ("POST", "/v1/objects?tags=a&durable=true", {"data": b"x"}, 422, "unsupported"),
        ("POST", f"/v1/objects?tags=a&summary={'x' * 7000}", {"data": b"x"}, 201, None),
        ("POST", "/v1/objects?tags=a", form("nothing"), 400, "bad_option"),
        ("POST", "/v1/objects?tags=a", form("\x0c4"), 400, "bad_option"),
        ("POST", "/v1/objects?tags=a", form("data", end=""), 400, "bad_option"),
        ("POST", "/v1/objects?tags=a", form("data", boundary=""), 400, "bad_option"),
        ("GET", "/v1/objects", {}, 400, "bad_option"),
        ("GET", "/v1/objects?query=a%20%26", {}, 400, "bad_query_syntax"),
        ("GET", "/v1/objects?query=!a", {}, 400, "bad_query"),
        ("GET", "/v1/objects?query=a&limit=-1", {}, 400, "bad_option"),
        ("GET", "/v1/objects?query=a&limit=1e3", {}, 400, "bad_option"),
        ("GET", f"/v1/objects?query=a&start_us={10**30}", {}, 400, None),
        ("GET", "/v1/objects?query=a&start_us=2&end_us=1", {}, 400, "bad_frame"),
        ("GET", "/v1/objects/nokey", {}, 400, "bad_key"),
        ("DELETE", "/v1/objects/nokey", {}, 400, "bad_key"),
        ("DELETE", f"/v1/objects/{STRANGER}", {}, 403, "not_owner"),
        ("POST", "/v1/subscriptions", {"data": b"{"}, 400, "bad_json"),
        ("POST", "/v1/subscriptions", {"json": {"query": 7}}, 400, "bad_json"),
        ("POST", "/v1/subscriptions", {"json": {"query": "a", "colour": 1}}, 400, "bad_json"),
        ("POST", "/v1/subscriptions", {"json": {"query": "a", "batch": -1}}, 400, "bad_json"),
        ("POST", "/v1/subscriptions", {"json": {"query": "("}}, 400, "bad_query_syntax"),
        ("DELETE", "/v1/subscriptions/nosuch", {}, 404, "not_found"),
        ("POST", "/v1/subscriptions/nosuch/more", {"json": {"count": 1}}, 404, "not_found"),
        ("GET", "/v1/subscriptions/nosuch/events", {}, 404, "not_found"),
        ("PUT", "/v1/position", {"json": {"x_m": "here", "y_m": 0}}, 400, "bad_json"),
        ("GET", "/nothing", {}, 404, "no_such_page"),
        ("PATCH", "/v1/objects", {}, 405, "no_such_method"),
        ("GET", "/v1/status", {"headers": {"Host": "evil.example"}}, 403, "forbidden"),
        ("GET", "/v1/status", {"headers": {"Origin": "http://evil.example"}}, 403, "forbidden"),
        ("GET", "/v1/line", {}, 400, None),
    ],
)
def test_bad_input_gets_words_and_a_code(
    node: tuple[asyncio.AbstractEventLoop, Pages],
    method: str,
    path: str,
    options: dict[str, Any],
    status: int,
    code: str | None,
) -> None:
    """M25: each refused as JSON, and the node goes on."""
    loop, pages = node
    found, answer = loop.run_until_complete(pages.ask(method, path, **options))

    assert found == status, answer
    if code is not None:
        assert answer["error"] == code
        assert answer["message"]
    assert loop.run_until_complete(pages.ask("GET", "/v1/status"))[0] == 200


@pytest.fixture(scope="module")
def node() -> Any:
    """One node for all invalid requests: a server, which can answer without other nodes."""
    loop = asyncio.new_event_loop()
    opening = a_node(substrate="es")
    pages = loop.run_until_complete(opening.__aenter__())
    yield loop, pages
    loop.run_until_complete(opening.__aexit__(None, None, None))
    loop.close()


def test_a_query_error_points_at_the_character(
    node: tuple[asyncio.AbstractEventLoop, Pages],
) -> None:
    """M9."""
    loop, pages = node
    _, answer = loop.run_until_complete(pages.ask("GET", "/v1/objects?query=a%20%26%26%20b"))

    assert answer["position"] == 3


def test_garbage_on_a_line_ends_that_line_only(
    node: tuple[asyncio.AbstractEventLoop, Pages],
) -> None:
    """M25."""
    loop, pages = node

    async def story() -> None:
        for garbage in (b"", b"\xc1", b"\x92\xa4Take\x80", b"\x92\xa6Insert\x81\xa3ask\x01"):
            async with pages.session.ws_connect(f"{pages.url}/v1/line") as line:
                await line.send_bytes(garbage)
                assert (await line.receive()).type.name in ("CLOSE", "CLOSED")
        assert (await pages.ask("GET", "/v1/status"))[0] == 200

    loop.run_until_complete(story())


METHODS = st.sampled_from(["GET", "POST", "PUT", "DELETE"])
WORDS = st.text(max_size=12) | st.sampled_from([STRANGER, "goal", "-1", "9" * 20, "true", "a & !b"])
OPTIONS = st.dictionaries(
    st.sampled_from(["tags", "summary", "oid", "life_s", "copies", "query", "limit", "end_us"]),
    WORDS,
    max_size=4,
)
BODIES = st.binary(max_size=50) | st.dictionaries(
    st.sampled_from(["query", "start_us", "end_us", "batch", "count", "x_m", "y_m"]),
    st.integers() | WORDS | st.none() | st.floats(allow_nan=False, allow_infinity=False),
).map(lambda body: json.dumps(body).encode())


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(METHODS, st.sampled_from(sorted(openapi.build_document()["paths"])), WORDS, OPTIONS, BODIES)
def test_m25_whatever_is_sent_the_answer_is_in_words(
    node: tuple[asyncio.AbstractEventLoop, Pages],
    method: str,
    path: str,
    word: str,
    options: dict[str, str],
    body: bytes,
) -> None:
    """Any path, options and body: every response is one that the OpenAPI description lists."""
    loop, pages = node
    filled = re.sub(r"{\w+}", quote(word, safe=""), path)

    async def ask() -> tuple[int, Any]:
        async with pages.session.request(
            method, URL(f"{pages.url}{filled}", encoded=True).with_query(options), data=body
        ) as response:
            if response.content_type == "text/event-stream":
                return response.status, None
            return response.status, await response.read()

    status, _ = loop.run_until_complete(ask())
    described = openapi.build_document()["paths"][path].get(method.lower(), {"responses": {}})

    assert status in {404, 405, *map(int, described["responses"])}, (filled, options, body)


def test_status_and_metrics_count_what_happened(
    node: tuple[asyncio.AbstractEventLoop, Pages],
) -> None:
    loop, pages = node

    async def story() -> None:
        await pages.ask("POST", "/v1/objects?tags=counted", data=b"x")
        _, status = await pages.ask("GET", "/v1/status")
        _, metrics = await pages.ask("GET", "/metrics")
        assert status["node"] == pages.host.node_id.hex()
        assert status["world"]["substrate"] == "es"
        assert status["storage"]["objects"] >= 1
        lines = metrics.decode().splitlines()
        assert f"thyme_objects {status['storage']['objects']}" in lines
        assert any(line.startswith('thyme_operations_total{kind="Insert"} ') for line in lines)
        assert any(line.startswith('thyme_datagrams_total{way="out"} ') for line in lines)

    loop.run_until_complete(story())


def test_b5_status_counts_what_a_node_of_a_cell_leaves_out() -> None:
    async def story() -> None:
        async with a_node(area=Area(400, 200), cell_m=40.0) as pages:
            inner = unwrap_node(pages.live.node)
            assert isinstance(inner, DcsNode)
            inner.dropped["no such cell"] += 1
            inner.service.dropped["over_quota"] += 2
            _, status = await pages.ask("GET", "/v1/status")
            assert status["dropped"] == {"no such cell": 1, "over_quota": 2}

    asyncio.run(story())


def test_what_is_offered_is_described_and_what_is_described_is_offered(
    node: tuple[asyncio.AbstractEventLoop, Pages],
) -> None:
    """Every route is in the OpenAPI description, and the other way round; except the WebSocket."""
    loop, pages = node
    status, described = loop.run_until_complete(pages.ask("GET", "/openapi.json"))
    methods = {"get", "put", "post", "delete"}
    promised = {
        (method, path)
        for path, page in described["paths"].items()
        for method in page
        if method in methods
    }
    app = pages.app
    offered = {
        (route.method.lower(), route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.resource.canonical != "/v1/line"
    }

    assert status == 200
    assert described == json.loads(json.dumps(openapi.build_document()))
    assert promised == offered


def test_the_control_interface_stays_on_loopback() -> None:
    """B5: it has no password."""

    async def story(host: str) -> None:
        async with a_node() as pages:
            with pytest.raises(OptionError, match="loopback"):
                await start_server(pages.app, host, 0)

    asyncio.run(story("0.0.0.0"))


def test_m25_what_is_no_http_is_refused_and_not_a_mistake_of_ours(
    node: tuple[asyncio.AbstractEventLoop, Pages], caplog: pytest.LogCaptureFixture
) -> None:
    loop, pages = node
    host, port = pages.url.removeprefix("http://").split(":")

    async def story() -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX-Odd: \x00\r\n\r\n")
        answer = await reader.readline()
        writer.close()
        return answer

    assert b" 400 " in loop.run_until_complete(story())
    for _ in range(200):  # the record may come after the answer
        if caplog.records:
            break
        loop.run_until_complete(asyncio.sleep(0.02))
    assert [logs.is_relevant(record) for record in caplog.records] == [False], "not for the log"
