"""Verification: a station checks the signatures of its visitors' records as mobile nodes do.

Entry point: `StationVerifier`. The signatures of a world are bound to the world, so there is one
authenticator for each. Without node keys, as in the simulator, nothing is checked.
Clauses: I23, B5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from thyme.model.bounded import BoundedDict
from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.protocol.messages.traits import BaseMessage

MakeAuthenticator = Callable[[str], MessageAuthenticator]
"""Makes the authenticator of the world with a name."""
NameOf = Callable[[int], str | None]
"""The name of the world with a number; None if the world is unknown."""
_WORLDS_MAX = 1_000
M = TypeVar("M", bound=BaseMessage)


class StationVerifier:
    """Verifies the records that one station receives."""

    def __init__(self, name_of: NameOf, make_authenticator: MakeAuthenticator | None) -> None:
        self._name_of = name_of
        self._make_authenticator = make_authenticator
        self._authenticators: BoundedDict[int, MessageAuthenticator] = BoundedDict(_WORLDS_MAX)

    def verify(self, world: int, sender: NodeId, message: M) -> M | None:
        """A message of a world without its invalid records; None if nothing remains."""
        if self._make_authenticator is None:
            return message
        authenticator = self._authenticator(world)
        return None if authenticator is None else authenticator.verify_message(sender, message)

    def is_genuine(self, world: int, metadata: Metadata) -> bool:
        """Whether the owner of an object signed its metadata for this world."""
        if self._make_authenticator is None:
            return True
        authenticator = self._authenticator(world)
        return authenticator is not None and authenticator.is_valid_metadata(metadata)

    def _authenticator(self, world: int) -> MessageAuthenticator | None:
        """The authenticator of a known world; None for an unknown one, whose name is not known."""
        known = self._authenticators.get(world)
        name = self._name_of(world) if known is None else None
        if name is not None:
            assert self._make_authenticator is not None
            known = self._authenticators[world] = self._make_authenticator(name)
        return known

    @property
    def dropped(self) -> Counter[str]:
        """The number of invalid records, by kind."""
        return sum((each.dropped for each in self._authenticators.values()), Counter[str]())
