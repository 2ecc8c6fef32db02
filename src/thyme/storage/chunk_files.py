"""Chunk files: keeps chunks of large objects in a directory, beside the store of a node.

Entry point: `ChunkFiles`. An object has three files, named by its digest: `.data`, as long as the
object, with the chunks at their places; `.held`, one byte per chunk that says whether it is there;
and `.list`, the size and the chunk list. The list is written last and removed first: an object
without it does not exist. What was written survives `kill -9`. After a power failure, `.held` may
name chunks that did not reach the disk: readers verify every chunk and fetch such a chunk again.
Unfinished uploads are removed at the next start.
Clauses: M24, M25, M37.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from weakref import finalize

from thyme.model.bounded import BoundedDict
from thyme.model.errors import DiskFullError, StoreError
from thyme.model.object_chunks import CHUNK_BYTES, ChunkList, ChunkListBuilder, chunk_size
from thyme.storage.chunk_store import (
    HeldChunks,
    add_to_upload,
    held_bytes,
    unknown_upload_error,
)
from thyme.storage.private_files import make_private_directory
from thyme.storage.sqlite.disk_reserve import RESERVE_BYTES

_LISTS_CACHED_MAX = 8
_FILES_OPEN_MAX = 16
_SYNC_CHUNKS = 32
"""An upload is synced to disk after so many chunks, so that the last sync is short."""
_SIZE_BYTES = 8
_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class _Upload:
    builder: ChunkListBuilder
    file: int


class ChunkFiles:
    """A chunk store on disk."""

    def __init__(self, directory: Path) -> None:
        """The directory is made when the first chunk is stored."""
        self._directory = directory
        self._sizes: dict[bytes, int] = {}
        """The size of each object; the most recently used is last."""
        self._held: dict[bytes, HeldChunks] = {}
        self._lists: BoundedDict[bytes, ChunkList] = BoundedDict(_LISTS_CACHED_MAX)
        self._files: dict[bytes, tuple[int, int]] = {}
        """Descriptors of `.data` and `.held`; the most recently used is last."""
        self._uploads: dict[str, _Upload] = {}
        if directory.exists():
            with self._file_errors():
                self._load()

    def open_object(self, digest: bytes, chunk_list: ChunkList) -> None:
        if digest in self._sizes:
            return
        with self._file_errors():
            make_private_directory(self._directory, "*")
            with self._path(digest, "data").open("wb") as file:
                file.truncate(chunk_list.size)
            self._add(digest, chunk_list, bytearray(len(chunk_list)))

    def chunk_list(self, digest: bytes) -> ChunkList | None:
        if digest not in self._sizes:
            return None
        cached = self._lists.get(digest)
        if cached is None:
            with self._file_errors():
                content = self._path(digest, "list").read_bytes()
            cached = ChunkList(self._sizes[digest], content[_SIZE_BYTES:])
            self._lists[digest] = cached
        return cached

    def held(self, digest: bytes) -> HeldChunks | None:
        return self._held.get(digest)

    def write(self, digest: bytes, index: int, chunk: bytes) -> None:
        if not self.has_space(len(chunk)):
            raise self._full_error()
        with self._file_errors():
            data, held = self._open_files(digest)
            _write_at(data, chunk, index * CHUNK_BYTES)
            _write_at(held, b"\1", index)
        self._held[digest].set(index, True)

    def read(self, digest: bytes, index: int) -> bytes | None:
        held = self._held.get(digest)
        if held is None or not held.has(index):
            return None
        self._sizes[digest] = size = self._sizes.pop(digest)
        with self._file_errors():
            return os.pread(
                self._open_files(digest)[0], chunk_size(size, index), index * CHUNK_BYTES
            )

    def discard(self, digest: bytes, index: int) -> None:
        with self._file_errors():
            _write_at(self._open_files(digest)[1], b"\0", index)
        self._held[digest].set(index, False)

    def make_durable(self, digest: bytes) -> None:
        with self._file_errors():
            for file in self._open_files(digest):
                os.fdatasync(file)
            _sync_directory(self._directory)

    def remove(self, digest: bytes) -> None:
        if self._sizes.pop(digest, None) is None:
            return
        del self._held[digest]
        self._lists.pop(digest, None)
        for file in self._files.pop(digest, ()):
            os.close(file)
        with self._file_errors():
            for ending in ("list", "held", "data"):
                self._path(digest, ending).unlink(missing_ok=True)

    def stored_bytes(self) -> dict[bytes, int]:
        return {
            digest: held_bytes(size, self._held[digest]) for digest, size in self._sizes.items()
        }

    def has_space(self, size_bytes: int) -> bool:
        if not self._directory.exists():
            directory = next(parent for parent in self._directory.parents if parent.exists())
        else:
            directory = self._directory
        disk = os.statvfs(directory)
        return disk.f_bavail * disk.f_frsize - size_bytes >= RESERVE_BYTES

    def append_upload(self, upload: str, chunk: bytes) -> int:
        if not self.has_space(len(chunk)):
            raise self._full_error()
        with self._file_errors():
            open_upload = self._uploads.get(upload)
            if open_upload is None:
                make_private_directory(self._directory, "*")
                flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
                file = os.open(self._upload_path(upload), flags, 0o600)
                open_upload = self._uploads[upload] = _Upload(ChunkListBuilder(), file)
            builder = open_upload.builder
            offset = builder.size
            add_to_upload(builder, upload, chunk)
            _write_at(open_upload.file, chunk, offset)
            if builder.count % _SYNC_CHUNKS == 0:
                os.fdatasync(open_upload.file)
        return builder.size

    def finish_upload(self, upload: str) -> bytes:
        open_upload = self._uploads.pop(upload, None)
        if open_upload is None:
            raise unknown_upload_error(upload)
        chunk_list = open_upload.builder.build()
        digest = chunk_list.root()
        with self._file_errors():
            os.fdatasync(open_upload.file)
            os.close(open_upload.file)
            held = self._held.get(digest)
            if held is not None and held.is_complete:
                self._upload_path(upload).unlink()
                return digest
            self.remove(digest)
            self._upload_path(upload).replace(self._path(digest, "data"))
            self._add(digest, chunk_list, bytearray(b"\1" * len(chunk_list)))
            self.make_durable(digest)
        return digest

    def discard_upload(self, upload: str) -> None:
        open_upload = self._uploads.pop(upload, None)
        if open_upload is not None:
            os.close(open_upload.file)
            with self._file_errors():
                self._upload_path(upload).unlink(missing_ok=True)

    def close(self) -> None:
        for upload in list(self._uploads):
            self.discard_upload(upload)
        for files in self._files.values():
            for file in files:
                os.close(file)
        self._files.clear()

    def _add(self, digest: bytes, chunk_list: ChunkList, flags: bytearray) -> None:
        """Writes the files `.held` and `.list` of an object whose `.data` is there."""
        self._path(digest, "held").write_bytes(flags)
        part = self._path(digest, "part")
        with part.open("wb") as file:
            file.write(chunk_list.size.to_bytes(_SIZE_BYTES, "big") + chunk_list.digests)
            file.flush()
            os.fdatasync(file.fileno())
        part.replace(self._path(digest, "list"))
        self._sizes[digest] = chunk_list.size
        self._held[digest] = HeldChunks(flags)
        self._lists[digest] = chunk_list

    def _load(self) -> None:
        """Finds the objects of an earlier process; removes incomplete files."""
        found: list[tuple[float, bytes, int, bytearray]] = []
        for path in sorted(self._directory.iterdir()):
            if path.suffix != ".list" or not _is_digest(path.stem):
                continue
            digest = bytes.fromhex(path.stem)
            size = int.from_bytes(path.read_bytes()[:_SIZE_BYTES], "big")
            held, data = self._path(digest, "held"), self._path(digest, "data")
            if not held.exists() or not data.exists() or data.stat().st_size != size:
                path.unlink()
                continue
            flags = bytearray(min(flag, 1) for flag in held.read_bytes())
            found.append((data.stat().st_mtime, digest, size, flags))
        for _, digest, size, flags in sorted(found):
            self._sizes[digest] = size
            self._held[digest] = HeldChunks(flags)
        for path in self._directory.iterdir():
            known = _is_digest(path.stem) and bytes.fromhex(path.stem) in self._sizes
            if path.suffix in (".upload", ".part") or not known:
                path.unlink()

    def _open_files(self, digest: bytes) -> tuple[int, int]:
        files = self._files.pop(digest, None)
        if files is None:
            data = os.open(self._path(digest, "data"), os.O_RDWR)
            files = data, os.open(self._path(digest, "held"), os.O_RDWR)
        self._files[digest] = files
        if len(self._files) > _FILES_OPEN_MAX:
            for file in self._files.pop(next(iter(self._files))):
                os.close(file)
        return files

    def _path(self, digest: bytes, ending: str) -> Path:
        return self._directory / f"{digest.hex()}.{ending}"

    def _upload_path(self, upload: str) -> Path:
        return self._directory / f"{upload.encode().hex()}.upload"

    @contextmanager
    def _file_errors(self) -> Iterator[None]:
        """Converts errors of the file system: a full disk fails the operation, others the store."""
        try:
            yield
        except OSError as error:
            if error.errno in _DISK_FULL_ERRORS:
                raise self._full_error() from error
            raise StoreError(f"{self._directory} cannot be used: {error.strerror}") from error

    @staticmethod
    def _full_error() -> DiskFullError:
        return DiskFullError("the disk is full here: no space for a large object")


class TemporaryChunkFiles(ChunkFiles):
    """A chunk store on disk for a node that keeps nothing: removed when it is closed, or when the
    process ends. Large objects do not fill the memory of such a node, either."""

    def __init__(self) -> None:
        directory = mkdtemp(prefix="thyme-")
        self._remove_directory = finalize(self, rmtree, directory, ignore_errors=True)
        super().__init__(Path(directory) / "chunks")

    def close(self) -> None:
        super().close()
        self._remove_directory()


def _write_at(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def _sync_directory(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _is_digest(text: str) -> bool:
    return len(text) == 64 and all(char in "0123456789abcdef" for char in text)
