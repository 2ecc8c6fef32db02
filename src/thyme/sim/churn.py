"""Churn: draws permanent crashes, or repeated crashes and restarts, from a seed.

Entry points: `permanent_crashes`, `transient_churn`; the two failure scenarios of Thyme (journal
article), section 9.3.2. Each node has its own random stream, so its faults do not depend on the
choice of other nodes. `thyme.sim.faults.schedule` merges and checks the faults.
Clause: S7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from random import Random

import msgspec

from thyme.model.choice import check_share, choose
from thyme.model.frames import SECOND_US
from thyme.model.streams import stream
from thyme.sim.faults import Crash, FaultError, Memory, Restart

CRASH_US_MIN = 200 * SECOND_US
CRASH_US_MAX = 300 * SECOND_US


def permanent_crashes(
    seed: int,
    publishers: Iterable[int],
    share: float = 1.0,
    *,
    from_us: int = CRASH_US_MIN,
    to_us: int = CRASH_US_MAX,
    memory: Memory = Memory.LOST,
) -> list[Crash]:
    """Draws permanent crashes of a share of the publishers, at random instants of a span."""
    if not 0 <= from_us <= to_us:
        raise FaultError(f"a span cannot start after its end: from {from_us} to {to_us} µs")
    return [
        Crash(stream(seed, "crash", node).randint(from_us, to_us), node, memory)
        for node in choose(seed, "crash", publishers, share)
    ]


class Restless(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a node that crashes and restarts repeatedly.

    At the end of each period the node changes between on and off with a probability; otherwise it
    keeps its state for one more period of the same length.
    """

    on_us: int = 120 * SECOND_US
    off_us: int = 60 * SECOND_US
    switch_probability: float = 0.75
    memory: Memory = Memory.LOST

    def __post_init__(self) -> None:
        check_share(self.switch_probability, "the probability to switch")
        if self.on_us <= 0 or self.off_us <= 0:
            raise FaultError(
                f"periods must be longer than 0 µs, not {self.on_us} and {self.off_us}"
            )

    def of(self, rng: Random, node: int, from_us: int, until_us: int) -> Iterator[Crash | Restart]:
        """Draws the crashes and restarts of a node that first starts at `from_us`."""
        now_us, is_up = from_us, True
        while (now_us := now_us + (self.on_us if is_up else self.off_us)) < until_us:
            if rng.random() < self.switch_probability:
                is_up = not is_up
                yield Restart(now_us, node) if is_up else Crash(now_us, node, self.memory)


RESTLESS = Restless()


def transient_churn(
    seed: int,
    nodes: Iterable[int],
    share: float,
    *,
    until_us: int,
    from_us: int | Mapping[int, int] = 0,
    how: Restless = RESTLESS,
) -> list[Crash | Restart]:
    """Draws repeated crashes and restarts of a share of the nodes.

    `from_us` is the first start of all nodes, or of each node by number.
    """
    return [
        fault
        for node in choose(seed, "churn", nodes, share)
        for fault in how.of(
            stream(seed, "churn", node),
            node,
            from_us if isinstance(from_us, int) else from_us[node],
            until_us,
        )
    ]
