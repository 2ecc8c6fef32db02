"""File systems for tests: a scheme that is not `file`, and a bucket whose listings lag behind.

    with bucket_settings(spark, "thyme", folder): Warehouse("bucket://thyme/w")

`bucket://` is Hadoop's own file system for mount tables under another name: Spark and the warehouse
use it through Hadoop's interface, as they would an object store's, and it stores into a folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from thyme.pipeline.storage import LocalStorage, StoredFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME = "bucket"


def bucket_options(name: str, folder: Path) -> dict[str, str]:
    """Hadoop's settings for a bucket that is a folder; it is the default file system too."""
    return {
        f"fs.{SCHEME}.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        f"fs.viewfs.overload.scheme.target.{SCHEME}.impl": "org.apache.hadoop.fs.LocalFileSystem",
        f"fs.viewfs.mounttable.{name}.linkFallback": f"file://{folder}",
        "fs.defaultFS": f"{SCHEME}://{name}/",
    }


@contextmanager
def bucket_settings(spark: SparkSession, name: str, folder: Path) -> Iterator[str]:
    """The bucket, for this session and while the block lasts; returns its URI."""
    options = bucket_options(name, folder)
    for key, value in options.items():
        spark.conf.set(key, value)
    try:
        yield f"{SCHEME}://{name}"
    finally:
        for key in options:
            spark.conf.unset(key)


class LaggingBucket:
    """An eventually consistent bucket: a file is listed only after `lag` listings without it.

    Opening a file by its name is consistent; nothing can be renamed or locked.
    """

    def __init__(self, folder: Path, lag: int) -> None:
        self._inner = LocalStorage(folder)
        self._lag = lag
        self._listings: dict[str, int] = {}

    @property
    def uri(self) -> str:
        return "lagging://bucket"

    @property
    def folder(self) -> None:
        return

    def spark_path(self, path: str) -> str:
        return self._inner.spark_path(path)

    def read(self, path: str) -> bytes:
        return self._inner.read(path)

    def create(self, path: str, data: bytes) -> None:
        self._inner.create(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._inner.overwrite(path, data)

    def open(self, path: str) -> IO[bytes]:
        return self._inner.open(path)

    def names(self, path: str) -> list[str]:
        return [name for name in self._inner.names(path) if self._is_listed(f"{path}/{name}")]

    def files(self, path: str) -> list[StoredFile]:
        return [each for each in self._inner.files(path) if self._is_listed(each.path)]

    def delete(self, path: str) -> None:
        self._inner.delete(path)

    def _is_listed(self, path: str) -> bool:
        self._listings[path] = self._listings.get(path, 0) + 1
        return self._listings[path] > self._lag
