"""No forged delete, unsubscribe, publish or place is believed, and nothing deleted comes back (B5).

`./run bench forgery` makes a million attempts.
"""

from __future__ import annotations

import pytest

from tests.live.forgeries import WORLDS, Forger


@pytest.mark.parametrize("substrate", WORLDS)
def test_b5_a_member_that_tries_everything_changes_nothing_of_anothers(substrate: str) -> None:
    forger = Forger(substrate, seed=1)
    for _ in range(400):
        forger.attempt()
    forger.check()
    assert min(forger.tried.values()) > 10
