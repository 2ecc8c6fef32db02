"""Storage: the few file operations that a warehouse needs, on any file system that Spark can use.

`storage_at` takes a plain path (a folder of this machine, or one that all machines share) or the
URI of a Hadoop file system (`hdfs://`, `s3a://`, `abfs://`, …). Local files need no Spark. Other
file systems are used through the Java process of the Spark session, with its jars, settings and
credentials. No operation renames or locks anything. `create` is the only one that has to be atomic:
of several callers with the same name, one succeeds.
Clauses: P10, P11.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote

from thyme.model.errors import ThymeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_GLOB = re.compile(r"([\\{}\[\]*?])")
_CONDITIONAL = "fs.option.create.conditional.overwrite"
"""Hadoop's option to create an object only if there is none, checked when the upload ends."""
_JARS = {
    "s3a": "org.apache.hadoop:hadoop-aws:{hadoop}",
    "abfs": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "abfss": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "gs": "org.apache.hadoop:hadoop-gcp:{hadoop}",
}


class WarehouseError(ThymeError):
    """The warehouse is missing, not writable or full, or a stage is missing."""

    code = "bad_warehouse"


class StoredFile(NamedTuple):
    """A file below a folder: its path relative to the storage's root, its size and age."""

    path: str
    bytes: int
    modified_s: float


class Storage(Protocol):
    """A folder of files. Paths are relative to it, with `/` between their parts."""

    @property
    def uri(self) -> str:
        """The folder, for people: a plain path, or a URI."""

    @property
    def folder(self) -> Path | None:
        """The folder, if it is one of this machine."""

    def spark_path(self, path: str) -> str:
        """A path as Spark writes it, the same whatever the default file system is."""

    def read(self, path: str) -> bytes:
        """The contents of a file; `FileNotFoundError` if there is none."""

    def create(self, path: str, data: bytes) -> None:
        """Creates a file atomically; `FileExistsError` if there is one already."""

    def overwrite(self, path: str, data: bytes) -> None:
        """Creates or replaces a file; readers may meet a part of it."""

    def open(self, path: str) -> IO[bytes]:
        """Opens a file for reading at any position."""

    def names(self, path: str) -> list[str]:
        """Names of files and folders in a folder, sorted; none if the folder is missing."""

    def files(self, path: str) -> list[StoredFile]:
        """All files below a folder, sorted by path; none if the folder is missing."""

    def delete(self, path: str) -> None:
        """Deletes a file or a folder with its contents, if it exists."""


def storage_at(place: str | os.PathLike[str]) -> Storage:
    """The storage at a plain path or a URI."""
    place = os.fspath(place)
    if (local := local_path(place)) is not None:
        return LocalStorage(local)
    return HadoopStorage(place)


def read_file(place: str) -> bytes:
    """The contents of a file at a plain path or a URI."""
    folder, _, name = place.rpartition("/")
    return storage_at(folder or ".").read(name)


def local_path(place: str) -> Path | None:
    """The path of a file or folder of this machine; None for one of another file system."""
    found = _SCHEME.match(place)
    if not found:
        return Path(place)
    if found[1].lower() != "file":
        return None
    return Path(unquote(re.sub(r"^[^:]*:(//[^/]*)?", "", place, count=1)))


def spark_path(path: Path) -> str:
    """A local path for Spark. The scheme keeps it local if the default file system is another."""
    return f"file://{path.absolute()}"


def escape_pattern(path: str) -> str:
    """A path for Spark's readers, which would take some of its characters for a pattern."""
    return _GLOB.sub(r"\\\1", path)


def reader_path(place: str) -> str:
    """The name of one file for Spark's readers, whatever characters it has."""
    local = local_path(place)
    return escape_pattern(place if local is None else spark_path(local))


class LocalStorage:
    """A folder of this machine, or one that is mounted on it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def uri(self) -> str:
        """The path as it was given."""
        return str(self._folder)

    @property
    def folder(self) -> Path:
        """The folder itself."""
        return self._folder

    def spark_path(self, path: str) -> str:
        """See `Storage`."""
        return spark_path(self._folder / path)

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        return (self._folder / path).read_bytes()

    def create(self, path: str, data: bytes) -> None:
        """See `Storage`. The file appears with all of its contents: a link to a finished one."""
        place = self._folder / path
        draft = place.with_name(f".{place.name}.{token_hex(6)}")
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, place)
        finally:
            draft.unlink(missing_ok=True)

    def overwrite(self, path: str, data: bytes) -> None:
        """See `Storage`."""
        (self._folder / path).write_bytes(data)

    def open(self, path: str) -> IO[bytes]:
        """See `Storage`."""
        return (self._folder / path).open("rb")

    def names(self, path: str) -> list[str]:
        """See `Storage`."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return sorted(os.listdir(self._folder / path))
        return []

    def files(self, path: str) -> list[StoredFile]:
        """See `Storage`."""
        found = (file for file in (self._folder / path).rglob("*") if file.is_file())
        return sorted(self._stored_file(file) for file in found)

    def _stored_file(self, file: Path) -> StoredFile:
        facts = file.stat()
        return StoredFile(
            file.relative_to(self._folder).as_posix(), facts.st_size, facts.st_mtime_ns / 1e9
        )

    def delete(self, path: str) -> None:
        """See `Storage`."""
        place = self._folder / path
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


class HadoopStorage:
    """A folder of any other file system, through the Java process of the active Spark session."""

    def __init__(self, uri: str) -> None:
        self._uri = uri.rstrip("/")

    @property
    def uri(self) -> str:
        """The URI as it was given."""
        return self._uri

    @property
    def folder(self) -> None:
        """None: only Java can open its files."""
        return

    def spark_path(self, path: str) -> str:
        """See `Storage`."""
        return f"{self._uri}/{path}"

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        with self.open(path) as file:
            return file.read()

    def create(self, path: str, data: bytes) -> None:
        """See `Storage`. Object stores check and create in one step, when the upload ends."""
        with _translate_java_errors(self._uri):
            files, place = self._files(), self._path(path)
            if files.hasPathCapability(place, _CONDITIONAL):
                builder = files.createFile(place).overwrite(True).recursive()
                stream = builder.must(_CONDITIONAL, True).build()
            else:
                stream = files.create(place, False)
            stream.write(data)
            stream.close()

    def overwrite(self, path: str, data: bytes) -> None:
        """See `Storage`."""
        with _translate_java_errors(self._uri):
            stream = self._files().create(self._path(path), True)
            stream.write(data)
            stream.close()

    def open(self, path: str) -> IO[bytes]:
        """See `Storage`."""
        with _translate_java_errors(self._uri):
            place = self._path(path)
            files = self._files()
            size = files.getFileStatus(place).getLen()
            return io.BufferedReader(_HadoopFile(files.open(place), size), 1 << 16)

    def names(self, path: str) -> list[str]:
        """See `Storage`."""
        with suppress(FileNotFoundError), _translate_java_errors(self._uri):
            return sorted(
                each.getPath().getName() for each in self._files().listStatus(self._path(path))
            )
        return []

    def files(self, path: str) -> list[StoredFile]:
        """See `Storage`."""
        found = []
        with suppress(FileNotFoundError), _translate_java_errors(self._uri):
            top = self._path(path)
            inside = len(self._files().makeQualified(top).toString()) + 1
            each = self._files().listFiles(top, True)
            while each.hasNext():
                facts = each.next()
                name = facts.getPath().toString()[inside:]
                modified_s = facts.getModificationTime() / 1e3
                found.append(StoredFile(f"{path}/{name}", facts.getLen(), modified_s))
        return sorted(found)

    def delete(self, path: str) -> None:
        """See `Storage`."""
        with suppress(FileNotFoundError), _translate_java_errors(self._uri):
            self._files().delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._java().org.apache.hadoop.fs.Path(f"{self._uri}/{path}")

    def _files(self) -> Any:
        """Hadoop's file system of the URI; Java keeps one for all calls."""
        settings = _active_session(self._uri)._jsparkSession.sessionState().newHadoopConf()
        return self._path("").getFileSystem(settings)

    def _java(self) -> Any:
        return _active_session(self._uri)._jvm


def _active_session(uri: str) -> SparkSession:
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        raise WarehouseError(f"{uri} can be opened in a Spark session only: start one first")
    if not hasattr(spark, "_jsparkSession"):
        raise WarehouseError(
            f"{uri} cannot be a warehouse through Spark Connect, which gives no access to Hadoop's "
            "file systems: use a folder that this machine and the cluster share, or spark-submit"
        )
    return spark


class _HadoopFile(io.RawIOBase):
    """A stream of Hadoop's as a file of Python."""

    def __init__(self, stream: Any, size: int) -> None:
        self._stream = stream
        self._size = size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = (0, self._stream.getPos(), self._size)[whence]
        self._stream.seek(start + offset)
        return start + offset

    def tell(self) -> int:
        return int(self._stream.getPos())

    def readinto(self, buffer: Any) -> int:
        data: bytes = self._stream.readNBytes(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


@contextmanager
def _translate_java_errors(uri: str) -> Iterator[None]:
    """Translates exceptions of Hadoop into those that Python's own file functions raise."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        java = error.java_exception
        name, text = java.getClass().getName(), str(java.getMessage())
        if name.endswith(("FileAlreadyExistsException", "PathExistsException")):
            raise FileExistsError(text) from error
        if name.endswith("RemoteFileChangedException") or "412" in text:
            raise FileExistsError(text) from error
        if name.endswith(("FileNotFoundException", "NoSuchFileException")):
            raise FileNotFoundError(text) from error
        if (problem := lacks_file_system(f"{name}: {text}", uri)) is not None:
            raise WarehouseError(problem) from error
        if name.endswith("AccessControlException") or "Permission denied" in text:
            raise WarehouseError(f"{uri} cannot be used: Permission denied") from error
        raise WarehouseError(f"{uri} cannot be used: {text.splitlines()[0]}") from error


def lacks_file_system(text: str, uri: str) -> str | None:
    """The advice for Java's error that it has no file system for a scheme; None for others."""
    if "No FileSystem for scheme" not in text and "FileSystem not found" not in text:
        return None
    scheme = uri.partition(":")[0].lower()
    jar = _JARS.get(scheme, "its package").format(hadoop=_hadoop_version())
    return (
        f"Spark has no file system for {scheme}://, the one of {uri}: add its jar, e.g. "
        f"--conf spark.jars.packages={jar}"
    )


def _hadoop_version() -> str:
    """The version of the Hadoop in Spark's jars: other versions of its modules do not fit."""
    import pyspark

    for jar in Path(pyspark.__path__[0], "jars").glob("hadoop-client-api-*.jar"):
        return jar.stem.rpartition("-")[2]
    return "VERSION"
