"""Raw replay: sends frames on the simulated radio without a protocol, and reports each result.

Entry point: `replay_sends`. Used to compare the radio with other simulators and with `reference`.
Clause: S3.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from thyme.sim.engine.kernel import make_kernel
from thyme.sim.radio.radio import Frame, Radio, RadioConfig

QUIET_US = 1_000_000
"""The time that the replay goes on after the last send."""


class RawSend(msgspec.Struct, frozen=True, array_like=True):
    """One send: its instant, source node, destination (−1 for a broadcast) and payload bytes."""

    id: int
    at_us: int
    source: int
    to: int
    payload_bytes: int


class SendResult(msgspec.Struct, array_like=True):
    """The result of one send; `dropped` is the cause if the sender gave up, else empty."""

    id: int
    receivers: int = 0
    transmissions: int = 0
    delay_us: int | None = None
    dropped: str = ""


class ReplayResult(msgspec.Struct, frozen=True):
    """The results of all sends and the totals of a replay."""

    sends: list[SendResult]
    frames: int
    retransmissions: int
    bytes_sent: int
    events: int
    wall_s: float

    @property
    def receptions(self) -> int:
        """The number of receptions of all sends, by all receivers."""
        return sum(result.receivers for result in self.sends)

    @property
    def exceeded(self) -> int:
        """The number of sends given up at the retry limit."""
        return sum(result.dropped == "exceeded" for result in self.sends)

    def delays_us(self) -> list[int]:
        """The delay of each reception, in ascending order."""
        return sorted(
            result.delay_us
            for result in self.sends
            if result.delay_us is not None
            for _ in range(result.receivers)
        )


class _Replay:
    """One replay: schedules the sends and collects their results."""

    def __init__(
        self,
        positions: Sequence[tuple[float, float]],
        sends: Sequence[RawSend],
        seed: int,
        config: RadioConfig,
    ) -> None:
        self._sends = sorted(sends, key=lambda send: send.at_us)
        self.results = [SendResult(send.id) for send in self._sends]
        self.kernel = make_kernel()
        self.radio = Radio(
            self.kernel,
            positions,
            seed=seed,
            config=config,
            on_received=self._on_received,
            on_done=self._on_done,
        )

    def run(self) -> None:
        if not self._sends:
            return
        self.kernel.schedule(self._sends[0].at_us, self._send, 0)
        self.kernel.run(self._sends[-1].at_us + QUIET_US)

    def _send(self, number: int) -> None:
        send = self._sends[number]
        if number + 1 < len(self._sends):
            self.kernel.schedule(self._sends[number + 1].at_us, self._send, number + 1)
        self.radio.send(send.source, send.to, send.payload_bytes, number)

    def _on_received(self, frame: Frame, receivers: int, now_us: int) -> None:
        assert isinstance(frame.token, int)
        result = self.results[frame.token]
        if not result.receivers:  # not a duplicate, sent because an acknowledgement was lost
            result.receivers = receivers.bit_count()
            result.delay_us = now_us - frame.queued_us

    def _on_done(self, frame: Frame, outcome: str) -> None:
        assert isinstance(frame.token, int)
        result = self.results[frame.token]
        result.transmissions = frame.transmissions
        result.dropped = "" if outcome == "sent" else outcome


def replay_sends(
    positions: Sequence[tuple[float, float]],
    sends: Sequence[RawSend],
    *,
    seed: int = 1,
    config: RadioConfig | None = None,
) -> ReplayResult:
    """Replays sends on the radio and returns the result of each."""
    run = _Replay(positions, sends, seed, config or RadioConfig())
    started = time.perf_counter()
    run.run()
    wall_s = time.perf_counter() - started
    radio = run.radio
    return ReplayResult(
        run.results,
        radio.frames,
        radio.retransmissions,
        radio.bytes_sent,
        run.kernel.events_processed,
        wall_s,
    )
