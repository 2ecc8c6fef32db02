"""Labels: the names and groups under which messages appear in tables, recordings and metrics.

They are declared beside each message, and do not change when its class is renamed: results of
earlier versions, and the programs that read them, know messages by these words.
Clauses: S14, S17, S18.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

UPKEEP = "upkeep"


class LabelledMessage(msgspec.Struct, frozen=True, array_like=True):
    """The base of all messages; has no fields of its own."""

    label: ClassVar[str]
    """The name of the message type."""
    operation: ClassVar[str] = UPKEEP
    """The part of the analytical model that the message counts for: an operation, `notification`,
    `acknowledgement`, or `upkeep` for the rest."""
    routing_control: ClassVar[bool] = False
    """Whether a routing sends it to keep itself up to date."""
