"""The radio in C and its twin in Python: the same calls, random numbers, events and counters."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thyme.sim import native
from thyme.sim.engine.kernel import Kernel, make_kernel
from thyme.sim.engine.plain_kernel import PlainKernel
from thyme.sim.radio.mac_config import MacConfig
from thyme.sim.radio.modes import MODES
from thyme.sim.radio.phy import make_phy
from thyme.sim.radio.radio import BROADCAST, Frame, Radio, RadioConfig

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="not compiled here: thyme compile")

Step = tuple[int, str, tuple[Any, ...]]
"""An instant, a method of `Trial` and its arguments."""
ECHO_FROM = 1_000_000
"""Tokens of the frames that are sent from a callback."""


class Trial:
    """One radio with all its results; receivers of some frames answer, some switch off."""

    def __init__(
        self, kernel: Kernel, positions: list[tuple[float, float]], config: RadioConfig, seed: int
    ) -> None:
        self.kernel = kernel
        self.calls: list[tuple[Any, ...]] = []
        self._nodes = len(positions)
        self.radio = Radio(
            kernel,
            positions,
            seed=seed,
            config=config,
            on_received=self._on_received,
            on_done=self._on_done,
        )

    def _on_received(self, frame: Frame, receivers: int, now_us: int) -> None:
        token = frame.token
        assert isinstance(token, int)
        self.calls.append((token, frame.to, frame.queued_us, receivers, now_us))
        if receivers and token % 7 == 0 and token < ECHO_FROM:
            first = (receivers & -receivers).bit_length() - 1
            to = (first + 1) % self._nodes if token % 2 else BROADCAST
            self.radio.send(first, to, 100 + token % 500, token + ECHO_FROM)
        if token % 97 == 0:
            self.radio.set_power(token % self._nodes, on=False)

    def _on_done(self, frame: Frame, outcome: str) -> None:
        self.calls.append((frame.token, outcome, frame.transmissions, self.kernel.now_us))
        if outcome in ("stale", "exceeded") and frame.token == 11:
            self.radio.send(0, BROADCAST, 40, 2 * ECHO_FROM)

    def _take(self, step: tuple[str, tuple[Any, ...]]) -> None:
        name, arguments = step
        match name:
            case "send":
                self.radio.send(*arguments)
            case "power":
                self.radio.set_power(arguments[0], on=arguments[1])
            case "move":
                self.radio.links.move(*arguments)

    def run(self, steps: list[Step], until_us: int) -> tuple[Any, ...]:
        for at_us, name, arguments in steps:
            self.kernel.schedule(at_us, self._take, (name, arguments))
        self.kernel.run(until_us)
        positions = [self.radio.links.position_of(number) for number in range(self._nodes)]
        return (
            self.calls,
            self.kernel.events_processed,
            self.kernel.now_us,
            self.kernel.next_event_us(),
            self.radio.activity_by_node(),
            self.radio.frames_by_kind,
            positions,
        )


def random_config(rng: Random) -> RadioConfig:
    standard = rng.choice(list(MODES))
    phy = make_phy(standard, rng.choice(MODES[standard]).bits_per_us)
    if rng.random() < 0.3:  # headers that are lost end the carrier sense: no deferred lock-on
        phy = msgspec.structs.replace(phy, carrier_sense_dbm=-82.0)
    if rng.random() < 0.3:
        phy = phy.with_range(rng.choice([20.0, 60.0, 200.0]))
    mac = MacConfig(
        cw_min=rng.choice([None, 0, 3, 63]),
        queue_max=rng.choice([1, 3, 100]),
        lifetime_us=rng.choice([2_000, 500_000]),
        rts_over_bytes=rng.choice([0, 200, 1_500]),
        transmissions_max=rng.choice([1, 3, 7]),
    )
    return RadioConfig(phy=phy, mac=mac)


def random_steps(rng: Random, positions: list[tuple[float, float]], width_m: float) -> list[Step]:
    """Sends at a random rate; nodes that move a little or far, and are switched off and on."""
    nodes = len(positions)
    per_second = rng.choice([50, 500, 2_000, 8_000])
    powers, moves, unicasts = rng.choice([0, 0.1]), rng.choice([0, 0.3]), rng.random()
    steps: list[Step] = []
    at_us = 0
    for token in range(rng.choice([30, 200])):
        at_us += int(rng.expovariate(per_second) * 1e6)
        number, kind = rng.randrange(nodes), rng.random()
        if kind < powers:
            steps.append((at_us, "power", (number, rng.random() < 0.6)))
        elif kind < powers + moves:
            x, y = positions[number]
            here = (x + rng.gauss(0, 5), y + rng.gauss(0, 5))
            far = (rng.uniform(-width_m, width_m), rng.uniform(0, width_m))
            steps.append((at_us, "move", (number, far if rng.random() < 0.1 else here)))
        else:
            to = rng.randrange(nodes) if rng.random() < unicasts else BROADCAST
            size = rng.choice([0, 20, 300, 1_400, 2_000])
            steps.append((at_us, "send", (number, to, size, token)))
    return steps


@settings(deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 9, 40, 63, 64, 65, 128, 160]))
def test_s1_s2_s4_s5_both_radios_have_the_same_results(seed: int, nodes: int) -> None:
    rng = Random(seed)
    width_m = rng.choice([50.0, 200.0, 400.0, 900.0])
    positions = [(rng.uniform(0, width_m), rng.uniform(0, width_m / 2)) for _ in range(nodes)]
    config = random_config(rng)
    steps = random_steps(rng, positions, width_m)
    until_us = steps[-1][0] + rng.choice([0, 700, 1_000_000])

    kernel = make_kernel()
    assert not isinstance(kernel, PlainKernel)
    found = Trial(kernel, positions, config, seed).run(steps, until_us)

    assert found == Trial(PlainKernel(), positions, config, seed).run(steps, until_us)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), max_size=60))
def test_both_kernels_run_the_same_events_in_the_same_order(events: list[tuple[int, int]]) -> None:
    """Some events schedule another one, at once or later."""

    def run(kernel: Kernel) -> tuple[Any, ...]:
        order: list[tuple[int, int]] = []

        def event(argument: tuple[int, int]) -> None:
            number, again = argument
            order.append((number, kernel.now_us))
            if again:
                kernel.schedule(kernel.now_us + 7 * (again - 1), event, (number, again - 1))

        for number, (at_us, again) in enumerate(events):
            kernel.schedule(at_us, event, (number, again))
        kernel.run(25)
        half = kernel.now_us, kernel.events_processed, kernel.next_event_us()
        kernel.run(100)
        return order, half, kernel.now_us, kernel.events_processed, kernel.next_event_us()

    assert run(make_kernel()) == run(PlainKernel())
