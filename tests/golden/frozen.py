"""Golden values: what the code gave when its behaviour was last changed on purpose.

The values are JSON in this folder. `pytest --rewrite` records them anew; commit the change once you
can say why each value changed. A change that only renames or moves code changes none of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


class Frozen:
    """Compares values with the recorded ones."""

    def __init__(self, *, rewrite: bool) -> None:
        self.rewrite = rewrite

    def check(self, file: str, key: str, found: Any) -> None:
        """Compares one entry of a file; with `--rewrite`, records it first."""
        if self.rewrite:
            _record(FOLDER / file, key, found)
        recorded = read(file)
        assert key in recorded, f"{file} has no {key!r}; see --rewrite"
        assert found == recorded[key], f"{key!r} moved in {file}; see --rewrite"


def read(file: str) -> dict[str, Any]:
    """All entries of a file."""
    entries: dict[str, Any] = json.loads((FOLDER / file).read_text(encoding="utf-8"))
    return entries


def digest(data: bytes) -> str:
    """A digest of 16 letters: files with many digests stay readable."""
    return hashlib.sha256(data).hexdigest()[:16]


def digest_of_rows(rows: Iterable[Any]) -> str:
    """The digest of rows, independent of their order."""
    lines = sorted(json.dumps(row, sort_keys=True, default=bytes.hex) for row in rows)
    return digest("\n".join(lines).encode())


def _record(path: Path, key: str, found: Any) -> None:
    """Replaces one entry. Several workers of xdist may record into one file at the same time."""
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        entries = json.loads(file.read() or "{}")
        entries[key] = json.loads(json.dumps(found))
        file.seek(0)
        file.truncate()
        file.write(json.dumps(dict(sorted(entries.items())), indent=1, ensure_ascii=False) + "\n")
