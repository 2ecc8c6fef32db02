"""Message dispatch: finds the handler of a message that was delivered to a Thyme-DCS node.

Entry point: `HandlerTable`. `DcsNode` fills the table; a message type has one handler for messages
to the node and one for messages to its cell.
Clauses: D7–D9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.common import MESSAGE_TYPES
from thyme.protocol.messages.traits import BaseMessage
from thyme.routing.cells import Delivery

M = TypeVar("M", bound=BaseMessage)
Handler: TypeAlias = Callable[[Delivery, M, int], None]
"""Handles a delivered message; receives the delivery, its message, and the instant."""
_Handlers: TypeAlias = dict[type[BaseMessage], Handler[Any]]


class HandlerTable:
    """The handlers of one node, by message type."""

    def __init__(self) -> None:
        self._to_node: _Handlers = {}
        self._to_cell: _Handlers = {}
        self._from_peer: _Handlers = {}

    def add(
        self,
        kind: type[M],
        *,
        to_node: Handler[M] | None = None,
        to_cell: Handler[M] | None = None,
        from_peer: Handler[M] | None = None,
    ) -> None:
        """Adds the handlers of a message type and of its signed variant: for messages to the node,
        to its cell, and to its cell from a node of the same cell."""
        variants = [variant for variant in MESSAGE_TYPES if issubclass(variant, kind)]
        columns = (
            (self._to_node, to_node),
            (self._to_cell, to_cell),
            (self._from_peer, from_peer),
        )
        for column, handler in columns:
            if handler is not None:
                column.update(dict.fromkeys(variants, handler))

    def find(self, delivery: Delivery, own_cell: CellId) -> Handler[Any] | None:
        """Returns the handler of a delivered message; None if it is not accepted."""
        kind = type(delivery.message)
        if delivery.is_unicast:
            return self._to_node.get(kind)
        handler = self._to_cell.get(kind)
        if handler is None and delivery.origin_cell == own_cell:
            return self._from_peer.get(kind)
        return handler

    @property
    def message_types(self) -> set[type[BaseMessage]]:
        """The types of messages that have a handler."""
        return {*self._to_node, *self._to_cell, *self._from_peer}
