"""Picture worker: prepares files in a process of its own, since pictures of strangers may be
hostile.

The process has a limit on memory, each file a limit on time; a process that crashes or hangs is
replaced by the next request. One file is prepared at a time.
Entry points: `PictureWorker.prepare`; `python -m thyme.gallery.picture_worker` is the process.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from thyme.gallery.pictures import PictureError, PictureFacts, prepare_file

MEMORY_BYTES_MAX = 2 * 2**30
SECONDS_MAX = 60.0
_LINE_BYTES_MAX = 2**20


class PictureTask(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the process: one line of JSON."""

    path: str
    keep_location: bool
    still: str | None = None


class PictureReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply of the process: one line of JSON."""

    facts: PictureFacts | None = None
    error: str = ""


class PictureWorker:
    """A process that prepares files, one after the other."""

    def __init__(self, seconds_max: float = SECONDS_MAX) -> None:
        self._seconds_max = seconds_max
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def prepare(
        self, path: Path, *, keep_location: bool = False, still: Path | None = None
    ) -> PictureFacts:
        """Prepares a file in place, as `prepare_file` does; raises `PictureError`."""
        task = PictureTask(
            path=str(path), keep_location=keep_location, still=None if still is None else str(still)
        )
        async with self._lock:
            try:
                reply = await asyncio.wait_for(self._request(task), self._seconds_max)
            except TimeoutError:
                await self._stop()
                raise PictureError("the picture takes too long to read") from None
            except BaseException:
                await self._stop()
                raise
        if reply.facts is None:
            raise PictureError(reply.error)
        return reply.facts

    async def start(self) -> None:
        """Starts the process before the first file, which then waits less."""
        async with self._lock:
            await self._ensure_process()

    async def close(self) -> None:
        """Stops the process."""
        async with self._lock:
            await self._stop()

    async def _ensure_process(self) -> asyncio.subprocess.Process:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "thyme.gallery.picture_worker"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_LINE_BYTES_MAX,
                start_new_session=True,  # Ctrl-C stops the gallery, which stops the process
            )
        return process

    async def _request(self, task: PictureTask) -> PictureReply:
        process = await self._ensure_process()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(ConnectionError):
            process.stdin.write(msgspec.json.encode(task) + b"\n")
            await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            await self._stop()
            return PictureReply(error="the picture is damaged and cannot be read")
        return msgspec.json.decode(line, type=PictureReply)

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def main() -> None:
    """Replies to the requests on standard input until it ends."""
    import PIL.Image  # noqa: F401 (before the first file)

    _limit_memory()
    for line in sys.stdin.buffer:
        task = msgspec.json.decode(line, type=PictureTask)
        try:
            still = None if task.still is None else Path(task.still)
            facts = prepare_file(Path(task.path), keep_location=task.keep_location, still=still)
            reply = PictureReply(facts=facts)
        except PictureError as error:
            reply = PictureReply(error=str(error))
        except (OSError, MemoryError) as error:
            reply = PictureReply(error=f"the picture cannot be read ({error})")
        sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
        sys.stdout.buffer.flush()


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))


if __name__ == "__main__":
    main()
