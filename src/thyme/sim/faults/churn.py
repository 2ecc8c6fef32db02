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

from thyme.model.rng import derive_rng
from thyme.model.sampling import check_share, sample_nodes
from thyme.model.time_frames import SECOND_US
from thyme.sim.faults.schedule import Crash, CrashMemory, FaultError, Restart

CRASH_US_MIN = 200 * SECOND_US
CRASH_US_MAX = 300 * SECOND_US


def permanent_crashes(
    seed: int,
    publishers: Iterable[int],
    share: float = 1.0,
    *,
    from_us: int = CRASH_US_MIN,
    to_us: int = CRASH_US_MAX,
    memory: CrashMemory = CrashMemory.LOST,
) -> list[Crash]:
    """Draws permanent crashes of a share of the publishers, at random instants of a span."""
    if not 0 <= from_us <= to_us:
        raise FaultError(f"a span cannot start after its end: from {from_us} to {to_us} µs")
    return [
        Crash(derive_rng(seed, "crash", node).randint(from_us, to_us), node, memory)
        for node in sample_nodes(seed, "crash", publishers, share)
    ]


class OnOffChurn(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a node that crashes and restarts repeatedly.

    At the end of each period the node changes between on and off with a probability; otherwise it
    keeps its state for one more period of the same length.
    """

    on_us: int = 120 * SECOND_US
    off_us: int = 60 * SECOND_US
    switch_probability: float = 0.75
    memory: CrashMemory = CrashMemory.LOST

    def __post_init__(self) -> None:
        check_share(self.switch_probability, "the probability to switch")
        if self.on_us <= 0 or self.off_us <= 0:
            raise FaultError(
                f"periods must be longer than 0 µs, not {self.on_us} and {self.off_us}"
            )

    def draw_faults(
        self, rng: Random, node: int, from_us: int, until_us: int
    ) -> Iterator[Crash | Restart]:
        """Draws the crashes and restarts of a node that first starts at `from_us`."""
        now_us, is_up = from_us, True
        while (now_us := now_us + (self.on_us if is_up else self.off_us)) < until_us:
            if rng.random() < self.switch_probability:
                is_up = not is_up
                yield Restart(now_us, node) if is_up else Crash(now_us, node, self.memory)


ON_OFF_CHURN = OnOffChurn()


def transient_churn(
    seed: int,
    nodes: Iterable[int],
    share: float,
    *,
    until_us: int,
    from_us: int | Mapping[int, int] = 0,
    churn: OnOffChurn = ON_OFF_CHURN,
) -> list[Crash | Restart]:
    """Draws repeated crashes and restarts of a share of the nodes.

    `from_us` is the first start of all nodes, or of each node by number.
    """
    return [
        fault
        for node in sample_nodes(seed, "churn", nodes, share)
        for fault in churn.draw_faults(
            derive_rng(seed, "churn", node),
            node,
            from_us if isinstance(from_us, int) else from_us[node],
            until_us,
        )
    ]
