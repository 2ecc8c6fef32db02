"""Large objects over HTTP and in Python: uploaded, streamed, and read by ranges (M37)."""

from __future__ import annotations

import asyncio
import os
from io import BytesIO
from pathlib import Path

import pytest

import thyme
from tests.daemon.pages import a_node
from thyme.model.errors import InputError, NotFoundError, RejectedError
from thyme.model.object_chunks import CHUNK_BYTES, WHOLE_BYTES_MAX

MOVIE = bytes(range(256)) * (WHOLE_BYTES_MAX // 256 + 1_100) + b"the end"


def test_m37_ranges_of_a_large_object_over_http() -> None:
    async def story() -> None:
        async with a_node() as node:
            status, made = await node.ask("POST", "/v1/objects?tags=movie", data=BytesIO(MOVIE))
            assert status == 201
            page = f"/v1/objects/{made['key']}"
            for header, expected in (
                ("bytes=0-9", MOVIE[:10]),
                (f"bytes={CHUNK_BYTES - 3}-{CHUNK_BYTES + 2}", MOVIE[CHUNK_BYTES - 3 :][:6]),
                ("bytes=-7", b"the end"),
                (f"bytes={len(MOVIE) - 3}-{len(MOVIE) + 50}", b"end"),
            ):
                async with node.session.get(node.url + page, headers={"Range": header}) as found:
                    assert found.status == 206
                    assert await found.read() == expected
                    etag = found.headers["ETag"]
                    assert found.headers["Content-Range"].endswith(f"/{len(MOVIE)}")
            async with node.session.get(node.url + page) as found:
                assert (found.status, found.headers["Accept-Ranges"]) == (200, "bytes")
                assert await found.read() == MOVIE
            beyond = {"Range": f"bytes={len(MOVIE)}-"}
            async with node.session.get(node.url + page, headers=beyond) as found:
                assert found.status == 416
                assert found.headers["Content-Range"] == f"bytes */{len(MOVIE)}"
            for ignored in ({"Range": "bytes=9-1"}, {"Range": "bytes=0-1", "If-Range": '"other"'}):
                async with node.session.get(node.url + page, headers=ignored) as found:
                    assert found.status == 200
            same = {"Range": "bytes=0-1", "If-Range": etag}
            async with node.session.get(node.url + page, headers=same) as found:
                assert found.status == 206

    asyncio.run(story())


@pytest.mark.parametrize("on_disk", [True, False])
def test_m37_a_file_goes_in_and_out_of_a_local_world(tmp_path: Path, on_disk: bool) -> None:
    file, copy = tmp_path / "movie", tmp_path / "copy"
    file.write_bytes(MOVIE)

    async def story() -> None:
        async with thyme.join("cinema", data=tmp_path / "data" if on_disk else None) as world:
            key = await world.insert(file, tags=["movie"])
            [note] = await world.search("movie")
            assert (note.key, note.metadata.size) == (key, len(MOVIE))
            assert await world.retrieve_to(note, copy) == len(MOVIE)
            assert copy.read_bytes() == MOVIE
            assert await world.retrieve(note) == MOVIE
            part = b"".join([piece async for piece in world.read(note, 5, CHUNK_BYTES + 5)])
            assert part == MOVIE[5 : CHUNK_BYTES + 5]
            small = await world.insert(BytesIO(b"small"), tags=["small"])
            [found] = await world.search("small")
            assert found.key == small
            assert await world.retrieve(found) == b"small"
            await world.delete(key)
            with pytest.raises(NotFoundError):
                await world.retrieve_to(note, copy)
            with pytest.raises(InputError, match="cannot be read"):
                await world.insert(tmp_path / "nothing", tags=["movie"])

    asyncio.run(story())
    assert not list(tmp_path.glob("*.part"))


def test_m37_a_retrieve_to_a_pipe_or_through_a_link_replaces_neither(tmp_path: Path) -> None:
    """As /dev/null and /dev/stdout, which an administrator's retrieve replaced by a file."""
    pipe, link, linked = tmp_path / "pipe", tmp_path / "link", tmp_path / "linked"
    os.mkfifo(pipe)
    link.symlink_to(linked)
    reader = os.open(pipe, os.O_RDWR)

    async def story() -> None:
        async with thyme.join("cinema") as world:
            await world.insert(b"small", tags=["small"])
            [found] = await world.search("small")
            for path in (pipe, link):
                assert await world.retrieve_to(found, path) == 5
            with pytest.raises(IsADirectoryError, match=f"'{tmp_path}'"):
                await world.retrieve_to(found, tmp_path)

    asyncio.run(story())
    assert pipe.is_fifo()
    assert os.read(reader, 9) == b"small"
    os.close(reader)
    assert link.is_symlink()
    assert linked.read_bytes() == b"small"


def test_m37_a_large_object_in_a_world_on_disk_survives_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with thyme.join("cinema", data=tmp_path) as world:
            await world.insert(MOVIE, tags=["movie"])
        async with thyme.join("cinema", data=tmp_path) as world:
            [note] = await world.search("movie")
            assert await world.retrieve(note) == MOVIE

    asyncio.run(story())


def test_m25_an_object_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    limits = thyme.Limits(data_bytes_max=WHOLE_BYTES_MAX + CHUNK_BYTES)

    async def story() -> None:
        async with thyme.join("cinema", limits=limits) as world:
            with pytest.raises(RejectedError, match="at most"):
                await world.insert(BytesIO(MOVIE), tags=["movie"])

    asyncio.run(story())
