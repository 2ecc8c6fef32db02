"""Checked node: a node of a soak run, whose invariants are checked and which sleeps once.

Entry point: `CheckedNode`.
Clauses: B12, M34.
"""

from __future__ import annotations

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.node import Action, Input, Node, Received, SetTimer, TimerFired

CHECK_EVERY = 16
"""Number of inputs between two invariant checks of a node; a check reads all its records."""


class BrokenNodeError(Exception):
    """A node raised an exception or violated an invariant; the run ends."""


class WakeTimer(msgspec.Struct, frozen=True):
    """Timer at the end of a sleep."""


class CheckedNode:
    """Wraps a node, checks its invariants after every few inputs, and lets it sleep once."""

    def __init__(self, inner: Node, sleep: tuple[int, int] | None = None) -> None:
        self.inner = inner
        self._sleep_us = sleep or (0, 0)
        self._asleep: list[Input] = []
        """Inputs for the end of the sleep: a sleeping device has no messages, and late timers."""
        self._inputs = 0

    @property
    def node_id(self) -> NodeId:
        return self.inner.node_id

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Passes an input to the node, unless it sleeps."""
        from_us, until_us = self._sleep_us
        if from_us <= now_us < until_us:
            if not isinstance(event, Received):
                self._asleep.append(event)
            return [SetTimer(WakeTimer(), until_us)]
        waiting, self._asleep = self._asleep, []
        if isinstance(event, TimerFired) and isinstance(event.timer, WakeTimer):
            events = waiting
        else:
            events = [*waiting, event]
        return [action for each in events for action in self._handle(each, now_us)]

    def _handle(self, event: Input, now_us: int) -> list[Action]:
        """Passes an input to the node; an exception of the node is a violation."""
        try:
            actions = self.inner.handle(event, now_us)
            self._inputs += 1
            if self._inputs % CHECK_EVERY == 0:
                self.inner.check()
        except Exception as error:
            name = self.node_id.decode()
            raise BrokenNodeError(f"{name}, on {type(event).__name__}: {error!r}") from error
        return actions

    def check(self) -> None:
        """Asserts the invariants of the node."""
        self.inner.check()
