"""Checked node: a node whose invariants are checked while it runs.

Entry point: `CheckedNode`, used by `thyme.testing.soak.runner`.
Clause: B12.
"""

from __future__ import annotations

from thyme.model.ids import NodeId
from thyme.protocol.node import Action, Input, Node

CHECK_EVERY = 16
"""Number of inputs between two invariant checks of a node; a check reads all its records."""


class BrokenNodeError(Exception):
    """A node raised an exception or violated an invariant; the run ends."""


class CheckedNode:
    """Wraps a node and checks its invariants after every few inputs."""

    def __init__(self, inner: Node) -> None:
        self.inner = inner
        self._inputs = 0

    @property
    def node_id(self) -> NodeId:
        return self.inner.node_id

    def handle(self, event: Input, now_us: int) -> list[Action]:
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
