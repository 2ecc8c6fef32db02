"""Input files: what the readers of traces use, under the name that the simulator's readers know."""

from __future__ import annotations

from thyme.traces.files import (
    COORDINATE_M_MAX,
    TIME_S_MAX,
    InputFileError,
    Source,
    Word,
    read_lines,
)

__all__ = ["COORDINATE_M_MAX", "TIME_S_MAX", "InputFileError", "Source", "Word", "read_lines"]
