"""Integrity check: checks a large store file in the background while the node uses it.

Entry point: `IntegrityCheck`. Comparing every index with its table takes seconds for a million
records. A starting node need not wait for it: the page structure was checked at the start, unless
the file is very large, and records have checksums. The store raises the result at its next commit.
Clauses: M25.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread, get_native_id

_READ_BYTES = 2**20


def preload_file(path: Path) -> None:
    """Loads a file into the page cache by sequential reading, ten times faster than in the order of
    the check."""
    with path.open("rb", buffering=0) as file:
        while file.read(_READ_BYTES):
            pass


class IntegrityCheck:
    """A running check; `problem` describes the damage once it is found."""

    def __init__(self, path: Path) -> None:
        self.problem = ""
        self._stopped = False
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._thread = Thread(target=self._run, name="thyme store check", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the check, finished or not."""
        self._stopped = True
        while self._thread.is_alive():
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.interrupt()
            self._thread.join(0.05)

    def _run(self) -> None:
        with suppress(OSError, AttributeError):  # the node has priority
            os.setpriority(os.PRIO_PROCESS, get_native_id(), 19)
        uri = f"{self._path.resolve().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as connection:
                self._connection = connection
                if not self._stopped:
                    query = "PRAGMA integrity_check(record)"
                    found = connection.execute(query).fetchone()[0]
                    self.problem = "" if found == "ok" else found
        except sqlite3.Error as error:
            if not self._stopped:
                self.problem = str(error)
