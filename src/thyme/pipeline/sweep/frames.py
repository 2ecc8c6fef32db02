"""Frames: the messages between a Spark worker and its simulation process.

A frame is eight bytes of length and a record in MessagePack. Clause: P5.
"""

from __future__ import annotations

from typing import BinaryIO, TypeVar

import msgspec

LENGTH_BYTES = 8


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for the simulation of one run."""

    planned: bytes
    """The planned run, as JSON."""
    trace_file: str | None
    memory_max_bytes: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run; without one, the process is ready for its first request."""

    compiled: bool
    """Whether the process runs compiled modules."""
    batch: bytes | None = None
    """One row of RUN_PART, in Arrow's stream format."""
    out_of_memory: bool = False
    """Whether the run failed for want of memory; the process may lack it too, and is replaced."""


Record = TypeVar("Record", Request, Answer)


def write_frame(target: BinaryIO, record: Request | Answer) -> None:
    """Writes one frame."""
    data = msgspec.msgpack.encode(record)
    target.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    target.flush()


def read_frame(source: BinaryIO, kind: type[Record]) -> Record | None:
    """Reads one frame; None at the end of the stream."""
    head = source.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    size = int.from_bytes(head, "big")
    data = source.read(size)
    return msgspec.msgpack.decode(data, type=kind) if len(data) == size else None
