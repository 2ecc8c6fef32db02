"""Content: moves the bytes of objects between an application and its node, large ones in chunks.

Entry points: `take_content` reads the bytes of a new object and uploads them to the node if they
are many; `read_content` yields the bytes of an object, or of a range of it; `open_whole` opens the
file for them. They keep a few chunks in memory, whatever the size of the object. In a substrate
that sends objects only as a whole, the object is in memory, and its size is limited.
Clauses: M13, M19, M37.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from thyme.api.session import NodeSession
from thyme.model.errors import MetadataError, ThymeError, UnsupportedError
from thyme.model.metadata import Limits, Metadata
from thyme.model.object_chunks import CHUNK_BYTES, WHOLE_BYTES_MAX, chunk_count
from thyme.protocol.app_interface import (
    DropUpload,
    ReplyValue,
    Retrieve,
    RetrieveChunk,
    UploadChunk,
)

READ_AHEAD = 12
"""Number of chunks requested before they are needed."""
_WHOLE_LIMIT = Limits().data_bytes_max
ReadBytes = Callable[[int], Awaitable[bytes]]
"""Returns so many of the next bytes; fewer only at the end."""


class Uploaded(msgspec.Struct, frozen=True):
    """Bytes of a new object that were uploaded to the node, in chunks."""

    upload: str
    size: int


async def take_content(session: NodeSession, read: ReadBytes) -> bytes | Uploaded:
    """Reads all bytes of a new object: few are returned, many are uploaded to the node."""
    head = [await read(CHUNK_BYTES)]
    while len(head[-1]) == CHUNK_BYTES and len(head) * CHUNK_BYTES <= WHOLE_BYTES_MAX:
        head.append(await read(CHUNK_BYTES))
    if sum(map(len, head)) <= WHOLE_BYTES_MAX:
        return b"".join(head)
    upload = secrets.token_hex(8)
    try:
        return await _upload(session, upload, head, read)
    except UnsupportedError:
        return await _read_whole(head, read)
    except BaseException:
        with suppress(ThymeError):
            session.send_request(
                DropUpload(request_id=session.next_id(), upload=upload), lambda _: None
            )
        raise


async def _upload(
    session: NodeSession, upload: str, head: list[bytes], read: ReadBytes
) -> Uploaded:
    """Uploads the chunks of `head`, then the rest."""
    size = 0
    chunks = deque(head)
    while chunk := chunks.popleft() if chunks else await read(CHUNK_BYTES):
        await session.await_reply(
            UploadChunk(request_id=session.next_id(), upload=upload, data=chunk)
        )
        head.clear()  # the node takes chunks: they are not needed again
        size += len(chunk)
    return Uploaded(upload, size)


async def _read_whole(head: list[bytes], read: ReadBytes) -> bytes:
    content = bytearray(b"".join(head))
    while piece := await read(CHUNK_BYTES):
        content += piece
        if len(content) > _WHOLE_LIMIT:
            raise MetadataError(f"an object has at most {_WHOLE_LIMIT} bytes here")
    return bytes(content)


async def read_content(
    session: NodeSession, metadata: Metadata, start: int = 0, stop: int | None = None
) -> AsyncIterator[bytes]:
    """Yields the bytes of an object from `start` up to `stop`, verified, in pieces."""
    stop = metadata.size if stop is None else min(stop, metadata.size)
    if not metadata.is_large:
        yield (await _retrieve(session, metadata))[start:stop]
        return
    indexes = range(start // CHUNK_BYTES, chunk_count(stop))
    ahead: deque[asyncio.Future[ReplyValue]] = deque()
    try:
        for index in indexes:
            while len(ahead) < min(READ_AHEAD, indexes.stop - index):
                wanted = index + len(ahead)
                request = RetrieveChunk(
                    request_id=session.next_id(), metadata=metadata, index=wanted
                )
                ahead.append(asyncio.ensure_future(session.await_reply(request)))
            chunk = await ahead.popleft()
            assert isinstance(chunk, bytes)
            first = index * CHUNK_BYTES
            yield chunk[max(0, start - first) : stop - first]
    except UnsupportedError:
        yield (await _retrieve(session, metadata))[start:stop]
    finally:
        for request_ahead in ahead:
            request_ahead.cancel()


async def _retrieve(session: NodeSession, metadata: Metadata) -> bytes:
    data = await session.await_reply(Retrieve(request_id=session.next_id(), metadata=metadata))
    assert isinstance(data, bytes)
    return data


@contextmanager
def open_whole(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that appears, or is replaced, only when it is complete. What is not a file, such
    as /dev/null or a pipe, is written to and not replaced; a link stays a link."""
    if path.exists() and not path.is_file():
        with path.open("wb") as opened:
            yield opened
        return
    target = path.resolve()
    part = target.with_name(target.name + ".part")
    try:
        with part.open("wb") as opened:
            yield opened
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
