"""Neither damaged datagrams nor changed messages of a member harm a node (M25, B5). `./run bench
fuzz` sends millions."""

from __future__ import annotations

import pytest

from tests.live.fuzzing import Victim
from tests.live.signed_fuzzing import SignedFuzzer


@pytest.mark.parametrize("substrate", ["dcs", "ls", "es"])
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_m25_damaged_datagrams_are_dropped_and_counted(substrate: str, closed: bool) -> None:
    victim = Victim(substrate, seed=7, closed=closed, keys=not closed)
    victim.hear(1_500)

    assert victim.heard == 1_500
    assert victim.link.dropped["malformed"] > 50
    assert victim.link.dropped["invalid"] > 50
    assert victim.delivered.total() > 100, "some must get as far as the node"
    assert (victim.link.dropped["wrong secret"] > 50) == closed


@pytest.mark.parametrize("substrate", ["dcs", "ls", "es"])
def test_b5_a_member_that_signs_anything_changes_nothing_of_anothers(substrate: str) -> None:
    fuzzer = SignedFuzzer(substrate, seed=3)
    for _ in range(2_000):
        fuzzer.attempt()
    fuzzer.check()

    assert fuzzer.tried.total() > 2_000
    assert len(fuzzer.tried) > 60, "kinds of messages"
    assert fuzzer.own_records() > 5, "of its own, some must be believed"


@pytest.mark.parametrize("is_there", [True, False], ids=["there", "gone"])
def test_d22_the_subscription_of_another_is_kept_while_its_subscriber_acknowledges(
    is_there: bool,
) -> None:
    fuzzer = SignedFuzzer("dcs", seed=3, alice_is_there=is_there)
    fuzzer.suspect_alice()
    for _ in range(5):
        fuzzer.pass_second()

    assert (fuzzer.acknowledged > 0) == is_there
    if is_there:
        fuzzer.check()
    else:
        with pytest.raises(AssertionError):
            fuzzer.check()
