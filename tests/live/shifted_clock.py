"""Runs `thyme` with a wall clock that is wrong, by as much as a file says at each moment.

usage: python shifted_clock.py FILE node …
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from thyme.cli import main

if __name__ == "__main__":
    ahead = Path(sys.argv.pop(1))
    right_ns = time.time_ns
    time.time_ns = lambda: right_ns() + 1_000 * int(ahead.read_text())
    sys.exit(main())
