"""Files: small files of the analytics in a folder of any Hadoop file system.

Entry point: `AnalyticsFolder`. Spark writes the large tables itself; this module reads, lists and
atomically replaces the small ones, by Hadoop's file systems, so that `hdfs://…` or `s3a://…` work
as well as a local path.
Clauses: P9, P11.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from thyme.pipeline.warehouse import WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class AnalyticsFolder:
    """A folder with the state and the tables of the analytics."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        fs = jvm.org.apache.hadoop.fs
        conf = spark._jsc.hadoopConfiguration()
        try:
            path = fs.Path(root)
            # An instance of our own: without checksum files, which other tools do not maintain.
            self._fs = fs.FileSystem.newInstance(path.toUri(), conf)
            self._fs.setWriteChecksum(False)
            self._root = self._fs.makeQualified(path)
            self._context = fs.FileContext.getFileContext(self._root.toUri(), conf)
        except Py4JJavaError as error:
            raise WarehouseError(f"{root} cannot be opened: {_cause(error)}") from error
        rename: Any = getattr(fs, "Options$Rename")
        gateway: Any = spark.sparkContext._gateway
        self._overwrite = gateway.new_array(rename, 1)
        self._overwrite[0] = rename.OVERWRITE

    def path(self, name: str) -> str:
        """The full path of a file or folder, for Spark."""
        return str(self._child(name).toString())

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        try:
            if not self._fs.exists(self._child(name)):
                return None
            stream = self._fs.open(self._child(name))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise WarehouseError(f"{self.path(name)} cannot be read: {_cause(error)}") from error

    def write(self, name: str, data: bytes) -> None:
        """Writes or replaces a file atomically."""
        final = self._child(name)
        draft = self._jvm.org.apache.hadoop.fs.Path(
            final.getParent(), f".{final.getName()}.{token_hex(4)}"
        )
        try:
            self._fs.mkdirs(final.getParent())
            stream = self._fs.create(draft, True)
            stream.write(data)
            stream.close()
            self._context.rename(draft, final, self._overwrite)
        except Py4JJavaError as error:
            raise WarehouseError(f"{self.path(name)} cannot be written: {_cause(error)}") from error

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; hidden ones are left out."""
        path = self._child(folder)
        if not self._fs.exists(path):
            return []
        found = [str(status.getPath().getName()) for status in self._fs.listStatus(path)]
        return sorted(name for name in found if not name.startswith((".", "_")))

    def delete(self, name: str) -> None:
        """Deletes a file or folder, if it exists."""
        self._fs.delete(self._child(name), True)

    def _child(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root


def _cause(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage() or error.java_exception)
