"""Streams: randomness handed out by purpose; `thyme.model.streams` under the name it has here."""

from __future__ import annotations

from thyme.model.streams import stream

__all__ = ["stream"]
