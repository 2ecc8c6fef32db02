"""Files: the small files of the analytics, beside the tables that Spark writes.

Entry point: `AnalyticsFolder`, on a local folder or any file system of Hadoop's
(`thyme.pipeline.storage`). Files are replaced in one step: by a rename on this machine, elsewhere
as far as the file system does so, as object stores do.
Clauses: P9, P11.
"""

from __future__ import annotations

from contextlib import contextmanager
from io import BytesIO
from secrets import token_hex
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from thyme.pipeline.storage import WarehouseError, storage_at

if TYPE_CHECKING:
    from collections.abc import Iterator


class AnalyticsFolder:
    """A folder with the state and the tables of the analytics."""

    def __init__(self, place: str) -> None:
        self._storage = storage_at(place)

    def path(self, name: str) -> str:
        """The full path of a file or folder, for Spark."""
        return self._storage.spark_path(name)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        try:
            with self._translate_errors("read", name):
                return self._storage.read(name)
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Writes or replaces a file."""
        folder = self._storage.folder
        with self._translate_errors("written", name):
            if folder is None:
                self._storage.overwrite(name, data)
                return
            final = folder / name
            final.parent.mkdir(parents=True, exist_ok=True)
            draft = final.with_name(f".{final.name}.{token_hex(4)}")
            try:
                draft.write_bytes(data)
                draft.replace(final)
            finally:
                draft.unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; hidden ones are left out."""
        found = self._storage.names(folder)
        return [name for name in found if not name.startswith((".", "_"))]

    def delete(self, name: str) -> None:
        """Deletes a file or folder, if it exists."""
        with self._translate_errors("deleted", name):
            self._storage.delete(name)

    @contextmanager
    def _translate_errors(self, done: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            problem = error.strerror or error
            raise WarehouseError(f"{self.path(name)} cannot be {done}: {problem}") from error


def to_parquet(table: pa.Table) -> bytes:
    """A table as the bytes of a Parquet file."""
    buffer = BytesIO()
    parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def from_parquet(data: bytes) -> pa.Table:
    """The table in the bytes of a Parquet file."""
    return parquet.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
