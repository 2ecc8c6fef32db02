"""Retrieve behaviour: whether and when a user retrieves an object after a notification.

Retrieves are not part of a trace, because notifications depend on the execution. The decision
depends on seed, user and object only, so executions with the same notifications have the same
retrieves. It does not depend on the subscription: no user retrieves an object twice.
Clauses: S10, S13.
"""

from __future__ import annotations

import msgspec

from thyme.model.errors import InputError
from thyme.model.rng import derive_rng
from thyme.model.sampling import check_share
from thyme.model.time_frames import SECOND_US


class RetrieveBehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """Probability that a user retrieves a notified object, and the maximum delay."""

    probability: float = 0.7
    within_us: int = 30 * SECOND_US

    def __post_init__(self) -> None:
        check_share(self.probability, "a probability")
        if self.within_us < 0:
            raise InputError(f"within_us must not be negative: {self.within_us}")

    def delay_us(self, seed: int, user: int, oid: str) -> int | None:
        """Delay from the notification to the retrieve; None if the user does not retrieve."""
        rng = derive_rng(seed, "reaction", user, oid)
        if rng.random() >= self.probability:
            return None
        return rng.randint(0, self.within_us)


NO_RETRIEVES = RetrieveBehaviour(probability=0.0, within_us=0)
LECTURE_RETRIEVES = RetrieveBehaviour()
"""70 % of notified objects are retrieved, within 30 s (thesis, section 5.1)."""
