"""Transcripts: the messages between nodes as text, from which a reader learns the protocol.

The transcripts are in `tests/transcripts/`. `pytest --rewrite` records them anew; commit the change
once you can say why each line changed. `app ->` is a request of a node's application, `app <-` an
event for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message
from thyme.protocol.node import (
    Action,
    AppRequested,
    Broadcast,
    Emit,
    Input,
    Received,
    Send,
    Started,
    TimerFired,
)

FOLDER = Path(__file__).parents[1] / "transcripts"
_DULL = {
    "request_id",
    "request",
    "number",
    "digest",
    "data",
    "summary",
    "owner",
    "subscriber",
    "arrived_us",
    "copies",
    "durable",
    "replicas",
}


class Transcript:
    """Records what happens in a network: a journal of `Driver`."""

    def __init__(self, title: str, start_us: int) -> None:
        self.lines = [f"# {title}"]
        self._start_us = start_us
        self._at_us = -1

    def __call__(self, now_us: int, node_id: NodeId, entry: Input | Action) -> None:
        name = node_id.decode()
        match entry:
            case AppRequested():
                self._write(now_us, f"{name} app ->  {written(entry.request)}")
            case Send():
                self._write(now_us, f"{name} -> {entry.to.decode()}  {written(entry.message)}")
            case Broadcast():
                self._write(now_us, f"{name} -> all  {written(entry.message)}")
            case Received():
                self._write(now_us, f"{name} <- {entry.sender.decode()}  {kinds(entry.message)}")
            case Emit():
                self._write(now_us, f"{name} app <-  {written(entry.event)}")
            case TimerFired():
                self._write(now_us, f"{name} {kind(entry.timer)} fires")
            case Started():
                self._write(now_us, f"{name} starts")

    def note(self, words: str) -> None:
        """Adds a comment."""
        self.lines.append(f"# {words}")

    def _write(self, now_us: int, words: str) -> None:
        stamp = "" if now_us == self._at_us else f"at {(now_us - self._start_us) / 1000:g} ms"
        self._at_us = now_us
        self.lines.append(f"{stamp:<14}{words}")

    def check(self, name: str, *, rewrite: bool) -> None:
        """Compares the transcript with the recorded one."""
        path = FOLDER / f"{name}.txt"
        text = "\n".join(self.lines) + "\n"
        if rewrite:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{path.name} changed; see --rewrite"


def kind(record: object) -> str:
    return type(record).__name__


def kinds(message: Message) -> str:
    """The type of a message, and of the messages inside it."""
    inner = getattr(message, "message", None)
    return kind(message) if inner is None else f"{kind(message)} {kinds(inner)}"


def written(record: Any) -> str:
    """A record in a few words: its type and the fields that matter to a reader."""
    fields = {
        field: getattr(record, field)
        for field in record.__struct_fields__
        if field not in _DULL and getattr(record, field) not in (None, (), b"", "")
    }
    words = " ".join(f"{field}={_value(value)}" for field, value in fields.items())
    return f"{kind(record)} {words}".rstrip()


def _value(value: Any) -> str:
    if isinstance(value, Message):
        return f"({written(value)})"
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(value, "oid"):
        return str(value.oid)
    if hasattr(value, "metadata"):
        return str(value.metadata.oid)
    if hasattr(value, "conjunctions"):
        return f"{_value(value.conjunctions)} over {value.frame}"
    if isinstance(value, tuple):
        return "|".join(map(_value, value))
    if isinstance(value, msgspec.Struct) and type(value).__str__ is object.__str__:
        return written(value)
    return str(value).replace(" & ", "&")
