"""Private files: the files of a node belong to its user alone.

Entry points: `make_private_directory`, `make_private_file`. Directories have the mode 700, files
600. Those of an earlier version are changed when they are opened.
Clauses: B5.
"""

from __future__ import annotations

import os
from pathlib import Path

from thyme.model.errors import StoreError

_OTHERS = 0o077


def make_private_directory(directory: Path, *own_files: str) -> None:
    """Makes a directory that only its user can enter. An existing one is changed if it has files
    of ours, by their patterns: it may be a directory that the user shares for other purposes."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise StoreError(f"{directory} is a file; a directory is needed for stores") from error
    except OSError as error:
        raise StoreError(f"the directory {directory} cannot be made: {error.strerror}") from error
    if any(next(directory.glob(pattern), None) is not None for pattern in own_files):
        _exclude_others(directory, 0o700)


def make_private_file(path: Path) -> None:
    """Makes an empty file that only its user can read, or changes an existing one."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        _exclude_others(path, 0o600)
    except OSError:
        return  # whoever opens it reports the reason


def _exclude_others(path: Path, mode: int) -> None:
    try:
        if path.stat().st_mode & _OTHERS:
            path.chmod(mode)
    except PermissionError as error:
        raise StoreError(
            f"others can read {path}, and it belongs to another user: chown it, or chmod {mode:o}"
        ) from error
    except OSError:
        return
