"""Damaged datagrams do not harm a node (M25). `./run bench fuzz` sends a million."""

from __future__ import annotations

import pytest

from tests.live.fuzzing import Victim


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
