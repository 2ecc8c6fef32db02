"""ns-3 trials: the scenarios of the ns-3 reference, run on the simulated radio without nodes.

Entry points: `run_chain`, `run_replies`, `broadcast_delivery_curve` and `unicast_delivery_curve`: a
chain of forwarding nodes, broadcasts that every receiver answers, and links of given lengths. Each
function takes a seed and returns its measurements; `selftest` compares them with the reference.
Clause: S3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import msgspec

from thyme.model.streams import stream
from thyme.sim.kernel import Kernel
from thyme.sim.radio import BROADCAST, Frame, Radio, RadioConfig
from thyme.sim.replay import RawSend, replay
from thyme.sim.sets import numbers

FIRST_US = 1_000_000
"""The instant of the first send."""
SENDING_US = 30_000_000
CHAIN_NODES = 5
CHAIN_STEP_M = 90.0
CHAIN_STOP_US = 36_000_000
CHAIN_WINDOW_US = (6_000_000, 31_000_000)
"""Goodput counts arrivals between these instants: in the steady state, before the end."""
QUESTION_EVERY_US = 2_000_000
LINK_EVERY_US = 50_000
PAIRS_APART_M = 1_000.0
"""The distance between pairs of nodes; far beyond the reach of interference."""


class ChainOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one chain trial."""

    goodput_per_second: float
    retransmissions: int
    delays_us: list[int]
    """The end-to-end delays of all arrivals, in ascending order."""


class ReplyOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one trial with replies to broadcasts."""

    replies: int
    receptions: int
    """Receptions by the broadcaster if replies are unicasts, else by all nodes."""
    delay_mean_us: float
    retransmissions: int


class _Chain:
    """Frames from the first node of a line to the last; each node forwards them to the next."""

    def __init__(
        self, payload_bytes: int, per_second: int, *, seed: int, config: RadioConfig
    ) -> None:
        self._payload_bytes = payload_bytes
        self._per_second = per_second
        self.kernel = Kernel()
        self.radio = Radio(
            self.kernel,
            [(CHAIN_STEP_M * number, 0.0) for number in range(CHAIN_NODES)],
            seed=seed,
            config=config,
            on_received=self._on_received,
            on_done=lambda frame, how: None,
        )
        self._passed: set[tuple[int, int]] = set()
        self.arrivals: list[tuple[int, int]] = []
        """The send instant and the arrival instant of each frame."""

    def run(self) -> None:
        self.kernel.at(FIRST_US, self._send, 0)
        self.kernel.run(CHAIN_STOP_US)

    def _sent_us(self, number: int) -> int:
        return FIRST_US + round(1_000_000 * number / self._per_second)

    def _send(self, number: int) -> None:
        self.radio.send(0, 1, self._payload_bytes, number)
        if (number + 1) * 1_000_000 < SENDING_US * self._per_second:
            self.kernel.at(self._sent_us(number + 1), self._send, number + 1)

    def _on_received(self, frame: Frame, receivers: int, now_us: int) -> None:
        assert isinstance(frame.token, int)
        if (frame.to, frame.token) in self._passed:
            return  # a duplicate: its acknowledgement was lost
        self._passed.add((frame.to, frame.token))
        if frame.to == CHAIN_NODES - 1:
            self.arrivals.append((self._sent_us(frame.token), now_us))
        else:
            self.radio.send(frame.to, frame.to + 1, self._payload_bytes, frame.token)


def chain(payload_bytes: int, per_second: int, *, seed: int, config: RadioConfig) -> ChainOutcome:
    """Sends frames at a constant rate from one end of a chain to the other."""
    run = _Chain(payload_bytes, per_second, seed=seed, config=config)
    run.run()
    from_us, to_us = CHAIN_WINDOW_US
    counted = sum(from_us <= at_us < to_us for _, at_us in run.arrivals)
    return ChainOutcome(
        goodput_per_second=1_000_000 * counted / (to_us - from_us),
        retransmissions=run.radio.retransmissions,
        delays_us=sorted(at_us - sent_us for sent_us, at_us in run.arrivals),
    )


class _Questions:
    """Broadcasts far apart in time, each answered by every node that received it."""

    def __init__(
        self,
        positions: Sequence[tuple[float, float]],
        askers: Sequence[int],
        payload_bytes: int,
        *,
        unicast: bool,
        jitter_us: int,
        seed: int,
    ) -> None:
        self._askers = askers
        self._payload_bytes = payload_bytes
        self._unicast = unicast
        self._jitter_us = jitter_us
        self._rng = stream(seed, "replies", "jitter")
        self.kernel = Kernel()
        self.radio = Radio(
            self.kernel,
            positions,
            seed=seed,
            config=RadioConfig(),
            on_received=self._on_received,
            on_done=lambda frame, how: None,
        )
        self.replies = 0
        self._arrived: set[object] = set()
        self.delays_us: list[int] = []

    def run(self) -> None:
        for number, asker in enumerate(self._askers):
            self.kernel.at(FIRST_US + QUESTION_EVERY_US * number, self._ask, asker)
        self.kernel.run(FIRST_US + QUESTION_EVERY_US * len(self._askers))

    def _ask(self, asker: int) -> None:
        self.radio.send(asker, BROADCAST, self._payload_bytes, asker)

    def _on_received(self, frame: Frame, receivers: int, now_us: int) -> None:
        if isinstance(frame.token, int):
            for number in numbers(receivers):
                at_us = now_us + round(self._rng.uniform(0, self._jitter_us))
                self.kernel.at(at_us, self._reply, (number, frame.token))
        elif frame.token not in self._arrived:
            self._arrived.add(frame.token)
            count = len(numbers(receivers))
            self.delays_us += [now_us - frame.queued_us] * count

    def _reply(self, argument: tuple[int, int]) -> None:
        number, asker = argument
        self.replies += 1
        to = asker if self._unicast else BROADCAST
        self.radio.send(number, to, self._payload_bytes, ("reply", self.replies))


def replies(
    positions: Sequence[tuple[float, float]],
    askers: Sequence[int],
    payload_bytes: int,
    *,
    unicast: bool,
    jitter_us: int,
    seed: int,
) -> ReplyOutcome:
    """Lets nodes broadcast one after the other; all receivers reply after up to `jitter_us`."""
    run = _Questions(
        positions, askers, payload_bytes, unicast=unicast, jitter_us=jitter_us, seed=seed
    )
    run.run()
    return ReplyOutcome(
        replies=run.replies,
        receptions=len(run.delays_us),
        delay_mean_us=fmean(run.delays_us) if run.delays_us else 0.0,
        retransmissions=run.radio.retransmissions,
    )


def broadcast_curve(
    distances_m: Sequence[float], payload_bytes: int, *, count: int, seed: int
) -> list[float]:
    """The share of broadcasts received at each distance.

    All receivers are around one sender and never send, so there is no interference.
    """
    angle = 2 * math.pi / len(distances_m)
    around = [
        (distance_m * math.cos(angle * number), distance_m * math.sin(angle * number))
        for number, distance_m in enumerate(distances_m)
    ]
    received = [0] * (1 + len(around))

    def on_received(frame: Frame, receivers: int, now_us: int) -> None:
        for number in numbers(receivers):
            received[number] += 1

    def send(number: int) -> None:
        radio.send(0, BROADCAST, payload_bytes, number)
        if number + 1 < count:
            kernel.at(kernel.now_us + LINK_EVERY_US, send, number + 1)

    kernel = Kernel()
    radio = Radio(
        kernel,
        [(0.0, 0.0), *around],
        seed=seed,
        config=RadioConfig(),
        on_received=on_received,
        on_done=lambda frame, how: None,
    )
    kernel.at(FIRST_US, send, 0)
    kernel.run(FIRST_US + LINK_EVERY_US * count)
    return [each / count for each in received[1:]]


def unicast_curve(
    distances_m: Sequence[float], payload_bytes: int, *, count: int, seed: int
) -> list[tuple[float, float]]:
    """The share of unicasts received at each distance, and the transmissions per send.

    There is one pair of nodes for each distance; the pairs are far from each other.
    """
    positions: list[tuple[float, float]] = []
    for number, distance_m in enumerate(distances_m):
        positions += [(0.0, PAIRS_APART_M * number), (distance_m, PAIRS_APART_M * number)]
    pairs = len(distances_m)
    apart_us = LINK_EVERY_US // pairs
    sends = [
        RawSend(
            pairs * repetition + pair,
            FIRST_US + LINK_EVERY_US * repetition + apart_us * pair,
            2 * pair,
            2 * pair + 1,
            payload_bytes,
        )
        for repetition in range(count)
        for pair in range(pairs)
    ]
    arrived, transmissions = [0] * pairs, [0] * pairs
    for result in replay(positions, sends, seed=seed).sends:
        arrived[result.id % pairs] += result.receivers
        transmissions[result.id % pairs] += result.transmissions
    return [(arrived[pair] / count, transmissions[pair] / count) for pair in range(pairs)]
