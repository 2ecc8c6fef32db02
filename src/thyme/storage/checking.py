"""Checking: the thorough check of a large file, beside its use.

To compare every index with its table takes seconds for a million records, which a node that starts
need not wait for: that the pages hang together was checked before, unless there are too many, and
records have checksums.
What is found is told at the next commit.
Clause: M25.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread, get_native_id

_PIECE_BYTES = 2**20


def read_ahead(path: Path) -> None:
    """Brings a file into memory from its beginning to its end, which a disk does ten times faster
    than page by page in the order in which they are checked."""
    with path.open("rb", buffering=0) as file:
        while file.read(_PIECE_BYTES):
            pass


class Checking:
    """A check that goes on; `verdict` says what is wrong, once that is known."""

    def __init__(self, path: Path) -> None:
        self.verdict = ""
        self._stopped = False
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._thread = Thread(target=self._run, name="thyme store check", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it, done or not."""
        self._stopped = True
        while self._thread.is_alive():
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.interrupt()
            self._thread.join(0.05)

    def _run(self) -> None:
        with suppress(OSError, AttributeError):  # whoever uses the file goes first
            os.setpriority(os.PRIO_PROCESS, get_native_id(), 19)
        uri = f"{self._path.resolve().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as connection:
                self._connection = connection
                if not self._stopped:
                    query = "PRAGMA integrity_check(record)"
                    found = connection.execute(query).fetchone()[0]
                    self.verdict = "" if found == "ok" else found
        except sqlite3.Error as error:
            if not self._stopped:
                self.verdict = str(error)
