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

from thyme.model.rng import derive_rng
from thyme.sim.engine.bitsets import members_of
from thyme.sim.engine.kernel import make_kernel
from thyme.sim.radio.radio import BROADCAST, Frame, Radio, RadioConfig
from thyme.sim.validation.raw_replay import RawSend, replay_sends

FIRST_SEND_US = 1_000_000
"""The instant of the first send."""
SENDING_US = 30_000_000
CHAIN_NODES = 5
CHAIN_SPACING_M = 90.0
CHAIN_STOP_US = 36_000_000
CHAIN_WINDOW_US = (6_000_000, 31_000_000)
"""Goodput counts arrivals between these instants: in the steady state, before the end."""
BROADCAST_EVERY_US = 2_000_000
LINK_SEND_EVERY_US = 50_000
PAIR_SPACING_M = 1_000.0
"""The distance between pairs of nodes; far beyond the reach of interference."""


class ChainResult(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one chain trial."""

    goodput_per_second: float
    retransmissions: int
    delays_us: list[int]
    """The end-to-end delays of all arrivals, in ascending order."""


class ReplyResult(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one trial with replies to broadcasts."""

    replies: int
    receptions: int
    """Receptions by the broadcaster if replies are unicasts, else by all nodes."""
    delay_mean_us: float
    retransmissions: int


class _ChainTrial:
    """Frames from the first node of a line to the last; each node forwards them to the next."""

    def __init__(
        self, payload_bytes: int, per_second: int, *, seed: int, config: RadioConfig
    ) -> None:
        self._payload_bytes = payload_bytes
        self._per_second = per_second
        self.kernel = make_kernel()
        self.radio = Radio(
            self.kernel,
            [(CHAIN_SPACING_M * number, 0.0) for number in range(CHAIN_NODES)],
            seed=seed,
            config=config,
            on_received=self._on_received,
            on_done=lambda frame, how: None,
        )
        self._forwarded: set[tuple[int, int]] = set()
        self.arrivals: list[tuple[int, int]] = []
        """The send instant and the arrival instant of each frame."""

    def run(self) -> None:
        self.kernel.schedule(FIRST_SEND_US, self._send, 0)
        self.kernel.run(CHAIN_STOP_US)

    def _sent_us(self, number: int) -> int:
        return FIRST_SEND_US + round(1_000_000 * number / self._per_second)

    def _send(self, number: int) -> None:
        self.radio.send(0, 1, self._payload_bytes, number)
        if (number + 1) * 1_000_000 < SENDING_US * self._per_second:
            self.kernel.schedule(self._sent_us(number + 1), self._send, number + 1)

    def _on_received(self, frame: Frame, receivers: int, now_us: int) -> None:
        assert isinstance(frame.token, int)
        if (frame.to, frame.token) in self._forwarded:
            return  # a duplicate: its acknowledgement was lost
        self._forwarded.add((frame.to, frame.token))
        if frame.to == CHAIN_NODES - 1:
            self.arrivals.append((self._sent_us(frame.token), now_us))
        else:
            self.radio.send(frame.to, frame.to + 1, self._payload_bytes, frame.token)


def run_chain(
    payload_bytes: int, per_second: int, *, seed: int, config: RadioConfig
) -> ChainResult:
    """Sends frames at a constant rate from one end of a chain to the other."""
    run = _ChainTrial(payload_bytes, per_second, seed=seed, config=config)
    run.run()
    from_us, to_us = CHAIN_WINDOW_US
    counted = sum(from_us <= at_us < to_us for _, at_us in run.arrivals)
    return ChainResult(
        goodput_per_second=1_000_000 * counted / (to_us - from_us),
        retransmissions=run.radio.retransmissions,
        delays_us=sorted(at_us - sent_us for sent_us, at_us in run.arrivals),
    )


class _BroadcastReplies:
    """Broadcasts far apart in time, each answered by every node that received it."""

    def __init__(
        self,
        positions: Sequence[tuple[float, float]],
        broadcasters: Sequence[int],
        payload_bytes: int,
        *,
        unicast: bool,
        jitter_us: int,
        seed: int,
    ) -> None:
        self._broadcasters = broadcasters
        self._payload_bytes = payload_bytes
        self._unicast = unicast
        self._jitter_us = jitter_us
        self._rng = derive_rng(seed, "replies", "jitter")
        self.kernel = make_kernel()
        self.radio = Radio(
            self.kernel,
            positions,
            seed=seed,
            config=RadioConfig(),
            on_received=self._on_received,
            on_done=lambda frame, how: None,
        )
        self.replies = 0
        self._received_tokens: set[object] = set()
        self.delays_us: list[int] = []

    def run(self) -> None:
        for number, broadcaster in enumerate(self._broadcasters):
            self.kernel.schedule(
                FIRST_SEND_US + BROADCAST_EVERY_US * number, self._broadcast, broadcaster
            )
        self.kernel.run(FIRST_SEND_US + BROADCAST_EVERY_US * len(self._broadcasters))

    def _broadcast(self, broadcaster: int) -> None:
        self.radio.send(broadcaster, BROADCAST, self._payload_bytes, broadcaster)

    def _on_received(self, frame: Frame, receivers: int, now_us: int) -> None:
        if isinstance(frame.token, int):
            for number in members_of(receivers):
                at_us = now_us + round(self._rng.uniform(0, self._jitter_us))
                self.kernel.schedule(at_us, self._reply, (number, frame.token))
        elif frame.token not in self._received_tokens:
            self._received_tokens.add(frame.token)
            count = len(members_of(receivers))
            self.delays_us += [now_us - frame.queued_us] * count

    def _reply(self, argument: tuple[int, int]) -> None:
        number, broadcaster = argument
        self.replies += 1
        to = broadcaster if self._unicast else BROADCAST
        self.radio.send(number, to, self._payload_bytes, ("reply", self.replies))


def run_replies(
    positions: Sequence[tuple[float, float]],
    broadcasters: Sequence[int],
    payload_bytes: int,
    *,
    unicast: bool,
    jitter_us: int,
    seed: int,
) -> ReplyResult:
    """Lets nodes broadcast one after the other; all receivers reply after up to `jitter_us`."""
    run = _BroadcastReplies(
        positions, broadcasters, payload_bytes, unicast=unicast, jitter_us=jitter_us, seed=seed
    )
    run.run()
    return ReplyResult(
        replies=run.replies,
        receptions=len(run.delays_us),
        delay_mean_us=fmean(run.delays_us) if run.delays_us else 0.0,
        retransmissions=run.radio.retransmissions,
    )


def broadcast_delivery_curve(
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
        for number in members_of(receivers):
            received[number] += 1

    def send(number: int) -> None:
        radio.send(0, BROADCAST, payload_bytes, number)
        if number + 1 < count:
            kernel.schedule(kernel.now_us + LINK_SEND_EVERY_US, send, number + 1)

    kernel = make_kernel()
    radio = Radio(
        kernel,
        [(0.0, 0.0), *around],
        seed=seed,
        config=RadioConfig(),
        on_received=on_received,
        on_done=lambda frame, how: None,
    )
    kernel.schedule(FIRST_SEND_US, send, 0)
    kernel.run(FIRST_SEND_US + LINK_SEND_EVERY_US * count)
    return [each / count for each in received[1:]]


def unicast_delivery_curve(
    distances_m: Sequence[float], payload_bytes: int, *, count: int, seed: int
) -> list[tuple[float, float]]:
    """The share of unicasts received at each distance, and the transmissions per send.

    There is one pair of nodes for each distance; the pairs are far from each other.
    """
    positions: list[tuple[float, float]] = []
    for number, distance_m in enumerate(distances_m):
        positions += [(0.0, PAIR_SPACING_M * number), (distance_m, PAIR_SPACING_M * number)]
    pairs = len(distances_m)
    apart_us = LINK_SEND_EVERY_US // pairs
    sends = [
        RawSend(
            pairs * repetition + pair,
            FIRST_SEND_US + LINK_SEND_EVERY_US * repetition + apart_us * pair,
            2 * pair,
            2 * pair + 1,
            payload_bytes,
        )
        for repetition in range(count)
        for pair in range(pairs)
    ]
    arrived, transmissions = [0] * pairs, [0] * pairs
    for result in replay_sends(positions, sends, seed=seed).sends:
        arrived[result.id % pairs] += result.receivers
        transmissions[result.id % pairs] += result.transmissions
    return [(arrived[pair] / count, transmissions[pair] / count) for pair in range(pairs)]
