"""Programs in processes with different hash seeds: their output must be the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def printed(program: str, *arguments: str, hash_seeds: Sequence[str] = ("0", "1")) -> set[bytes]:
    """The outputs of a program, run once with each hash seed; one output, if the hash seed does not
    matter. The program may import from `tests`."""
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
