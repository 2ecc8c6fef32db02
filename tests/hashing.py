"""Programs in processes of their own: what they print must not depend on how Python hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def printed(program: str, *arguments: str, hash_seeds: Sequence[str] = ("0", "1")) -> set[bytes]:
    """All that a program prints, run once with each seed of the hashes; one thing, if all is well.
    It may import from `tests`."""
    return {
        subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for hash_seed in hash_seeds
    }
