"""Reactions: who retrieves what they were notified of, and how soon.

Retrieves are not part of a trace, because what is notified depends on the execution. Whether and
when a user reacts to an object depends on the seed, the user and the object alone, so executions
that notify the same retrieve the same. It does not depend on the subscription: nobody retrieves an
object twice.
Clauses: S10, S13.
"""

from __future__ import annotations

import msgspec

from thyme.model.choice import check_share
from thyme.model.errors import InputError
from thyme.model.frames import SECOND_US
from thyme.model.streams import stream


class Reaction(msgspec.Struct, frozen=True, kw_only=True):
    """How likely a user retrieves an object that it hears of, and the most that it waits."""

    probability: float = 0.7
    within_us: int = 30 * SECOND_US

    def __post_init__(self) -> None:
        check_share(self.probability, "a probability")
        if self.within_us < 0:
            raise InputError(f"nobody reacts before the notification: {self.within_us} µs")

    def delay_us(self, seed: int, user: int, oid: str) -> int | None:
        """How long after the notification the user retrieves the object; None if it does not."""
        rng = stream(seed, "reaction", user, oid)
        if rng.random() >= self.probability:
            return None
        return rng.randint(0, self.within_us)


NONE = Reaction(probability=0.0, within_us=0)
LECTURE = Reaction()
"""Seven in ten are retrieved within half a minute (V, 5.1)."""
