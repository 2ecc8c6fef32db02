"""Frozen values: what the code gave when behaviour was last changed on purpose.

They are kept as JSON in this folder. `pytest --rewrite` records them anew; commit the change once
you can say why each value moved. A change that only renames or moves code moves none of them.
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
    """Compares what is found now with what is recorded."""

    def __init__(self, *, rewrite: bool) -> None:
        self.rewrite = rewrite

    def check(self, file: str, key: str, found: Any) -> None:
        """Compares one entry of a file; with `--rewrite`, records it before."""
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
    """Tells contents apart, in 16 letters: files with many of them stay readable."""
    return hashlib.sha256(data).hexdigest()[:16]


def digest_of_rows(rows: Iterable[Any]) -> str:
    """The digest of rows, whatever their order."""
    lines = sorted(json.dumps(row, sort_keys=True, default=bytes.hex) for row in rows)
    return digest("\n".join(lines).encode())


def _record(path: Path, key: str, found: Any) -> None:
    """Replaces one entry. Workers of xdist record into the same file at the same time."""
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        entries = json.loads(file.read() or "{}")
        entries[key] = json.loads(json.dumps(found))
        file.seek(0)
        file.truncate()
        file.write(json.dumps(dict(sorted(entries.items())), indent=1, ensure_ascii=False) + "\n")
