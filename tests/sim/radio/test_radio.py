"""The radio, mechanism by mechanism: air times, carrier sense, collisions, acknowledgements."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from thyme.sim.engine.bitsets import members_of
from thyme.sim.engine.kernel import make_kernel
from thyme.sim.radio.link_table import LinkTable
from thyme.sim.radio.mac_config import MacConfig
from thyme.sim.radio.medium import Medium
from thyme.sim.radio.phy import Phy
from thyme.sim.radio.radio import Radio, RadioConfig
from thyme.sim.radio.station import BROADCAST, Frame
from thyme.sim.radio.unit_disk import UnitDisk
from thyme.sim.validation.raw_replay import RawSend, replay_sends

FRAME_US = 518
"""The air time of a frame with 300 bytes of payload."""
DIFS_US = 50
SILENCE_US = 50
"""How long an acknowledgement is waited for: SIFS, a slot and a preamble."""


class Bench:
    """A radio on the bench: frames sent by the test, and a record of the events."""

    def __init__(
        self,
        positions: list[tuple[float, float]],
        *,
        seed: int = 1,
        config: RadioConfig | None = None,
    ) -> None:
        self.kernel = make_kernel()
        self.received: list[tuple[object, list[int], int]] = []
        self.done: list[tuple[object, str, int]] = []
        self.done_us: list[int] = []
        self.radio = Radio(
            self.kernel,
            positions,
            seed=seed,
            config=config or RadioConfig(),
            on_received=self._on_received,
            on_done=self._on_done,
        )

    def _on_received(self, frame: Frame, receivers: int, now_us: int) -> None:
        self.received.append((frame.token, members_of(receivers), now_us))

    def _on_done(self, frame: Frame, how: str) -> None:
        self.done.append((frame.token, how, frame.transmissions))
        self.done_us.append(self.kernel.now_us)

    def send(self, at_us: int, source: int, to: int, token: str, size: int = 300) -> None:
        self.kernel.schedule(at_us, lambda _: self.radio.send(source, to, size, token))

    def at(self, at_us: int, act: Callable[[], None]) -> None:
        self.kernel.schedule(at_us, lambda _: act())

    def run(self, until_us: int = 1_000_000) -> None:
        self.kernel.run(until_us)


def in_a_row(*places_m: float) -> list[tuple[float, float]]:
    return [(place, 0.0) for place in places_m]


@pytest.mark.parametrize(("mpdu_bytes", "duration_us"), [(364, 518), (14, 50), (1064, 1450)])
def test_s1_a_frame_takes_its_preamble_its_symbols_and_the_extension(
    mpdu_bytes: int, duration_us: int
) -> None:
    assert Phy().duration_us(mpdu_bytes) == duration_us


def test_s2_half_of_the_frames_arrive_at_113_m() -> None:
    phy = Phy()
    bits = 8 * 364 + 22
    noise_mw = 10 ** (phy.noise_dbm / 10)
    chance = {
        metres: math.exp(bits * phy.log_bit_success(phy.received_mw(metres) / noise_mw))
        for metres in (90, 113, 125)
    }
    assert chance[90] > 0.9999
    assert chance[113] == pytest.approx(0.5, abs=0.03)
    assert chance[125] < 0.001


def test_s2_the_reaches_are_those_of_the_profile() -> None:
    phy = Phy()
    assert phy.reach_m(phy.preamble_detection_dbm) == pytest.approx(166.4, abs=0.1)
    assert phy.reach_m(phy.carrier_sense_dbm) == pytest.approx(209.5, abs=0.1)
    assert phy.reach_m(phy.rx_sensitivity_dbm) == pytest.approx(244.2, abs=0.2)
    assert phy.with_range(56.5).reach_m(phy.carrier_sense_dbm) == pytest.approx(209.5 / 2, abs=0.1)


def test_s1_a_broadcast_on_a_silent_medium_arrives_after_difs_and_its_air_time() -> None:
    bench = Bench(in_a_row(0, 50, 90, 150))
    bench.send(1_000, 0, BROADCAST, "hello")
    bench.run()
    assert bench.received == [("hello", [1, 2], 1_000 + DIFS_US + FRAME_US)]
    assert bench.done == [("hello", "sent", 1)]


def test_s1_a_unicast_is_acknowledged_and_reaches_its_receiver_only() -> None:
    bench = Bench(in_a_row(0, 50, 90))
    bench.send(1_000, 0, 1, "hello")
    bench.run()
    assert bench.received == [("hello", [1], 1_568)]
    assert bench.done == [("hello", "sent", 1)]
    assert bench.radio.frames_by_kind == {"unicast": 1, "ack": 1}
    assert bench.radio.bytes_sent == 364 + 14


def test_s1_a_unicast_out_of_reach_is_tried_seven_times_and_told() -> None:
    bench = Bench(in_a_row(0, 300))
    bench.send(0, 0, 1, "nobody")
    bench.run()
    assert bench.done == [("nobody", "exceeded", 7)]
    assert bench.received == []
    assert bench.radio.retransmissions == 6


def test_s1_who_senses_a_frame_waits_for_it_and_then_a_random_while() -> None:
    waits = Counter[int]()
    for seed in range(200):
        bench = Bench(in_a_row(0, 50), seed=seed)
        bench.send(0, 0, BROADCAST, "first")
        bench.send(100, 1, BROADCAST, "second")
        bench.run()
        (_, _, first_us), (_, _, second_us) = bench.received
        assert first_us == 568
        waits[(second_us - first_us - FRAME_US - DIFS_US) // 20] += 1
    assert set(waits) == set(range(16))


def test_s1_a_frame_that_starts_while_another_waits_out_its_difs_goes_first() -> None:
    bench = Bench(in_a_row(0, 50))
    bench.send(0, 0, BROADCAST, "first")
    bench.send(30, 1, BROADCAST, "second")
    bench.run()
    # The medium was idle at its arrival, so no back-off was drawn: it follows after DIFS.
    assert [now_us for _, _, now_us in bench.received] == [568, 568 + DIFS_US + FRAME_US]


def test_s1_a_wait_of_no_slots_is_over_and_does_not_serve_a_frame_that_comes_later() -> None:
    waits = Counter[int]()
    for seed in range(320):
        bench = Bench(in_a_row(0, 50), seed=seed)
        bench.send(0, 0, BROADCAST, "first")
        bench.send(570, 1, BROADCAST, "second")  # on the air 2 µs after DIFS
        bench.send(700, 0, BROADCAST, "third")
        bench.run()
        (_, _, second_us), (_, _, third_us) = bench.received[1:]
        waits[(third_us - second_us - FRAME_US - DIFS_US) // 20] += 1
    # One in 16 drew no slots after the first frame. The third finds the medium busy: they draw
    # again, and one in 16 of them draws none once more.
    assert waits[0] < 320 // 64
    assert set(waits) >= set(range(1, 16))


def test_s1_s3_who_lost_a_header_and_senses_no_energy_takes_the_medium_for_idle() -> None:
    config = RadioConfig(phy=Phy(carrier_sense_dbm=-82.0))
    bench = Bench([*in_a_row(0, 90, 180), (90.0, 40.0)], config=config)
    bench.send(0, 0, BROADCAST, "left")
    bench.send(0, 2, BROADCAST, "right")
    bench.send(40, 1, BROADCAST, "over both")
    bench.run()
    # Both start at 50 µs, and their headers end, lost, at 70 µs: DIFS starts anew.
    heard = [event for event in bench.received if event[1]]
    assert heard == [("over both", [3], 70 + DIFS_US + FRAME_US)]


def test_s1_s3_who_got_a_header_knows_of_the_frame_however_weak() -> None:
    config = RadioConfig(phy=Phy(carrier_sense_dbm=-82.0))
    bench = Bench(in_a_row(0, 90), config=config)
    bench.send(0, 0, BROADCAST, "first")
    bench.send(40, 1, BROADCAST, "second")
    bench.run()
    assert [now_us for _, _, now_us in bench.received] == [568, 568 + DIFS_US + FRAME_US]


def test_s1_s3_the_window_stays_wide_after_a_frame_was_given_up_until_the_next_fails_too() -> None:
    config = RadioConfig(mac=MacConfig(transmissions_max=1))
    slots: list[set[int]] = [set(), set(), set()]
    for seed in range(300):
        bench = Bench(in_a_row(0, 300), seed=seed, config=config)  # no acknowledgement
        for number in range(4):
            bench.send(0, 0, 1, f"frame {number}")
        bench.run()
        assert [how for _, how, _ in bench.done] == ["exceeded"] * 4
        for seen, (before_us, after_us) in zip(slots, pairwise(bench.done_us), strict=True):
            seen.add((after_us - before_us - DIFS_US - FRAME_US - SILENCE_US) // 20)
    assert slots == [set(range(32)), set(range(16)), set(range(32))]


def test_s2_two_that_cannot_hear_each_other_spoil_each_other_s_frames_in_the_middle() -> None:
    positions = in_a_row(0, 105, 220)  # the ends are beyond carrier sense, the middle hears both
    lost = 0
    for seed in range(50):
        bench = Bench(positions, seed=seed)
        bench.send(0, 0, BROADCAST, "left")
        bench.send(100, 2, BROADCAST, "right")
        bench.run()
        lost += not any(1 in receivers for _, receivers, _ in bench.received)
    assert lost > 40


def test_s2_the_much_stronger_of_two_frames_that_start_together_is_received() -> None:
    bench = Bench(in_a_row(0, 20, 200))
    bench.send(0, 0, BROADCAST, "near")
    bench.send(0, 2, BROADCAST, "far")
    bench.run()
    assert ("near", [1], 568) in bench.received


def test_s2_who_listens_to_one_frame_is_deaf_to_the_next_however_strong() -> None:
    phy = Phy()
    medium = Medium(phy, LinkTable(phy, in_a_row(0, 90, 95)), Random(1))
    weak = medium.start_transmission(0, 364, 0, "weak, first")
    strong = medium.start_transmission(2, 364, 100, "strong, second")
    assert weak.locked == 0b010
    assert strong.locked == 0
    assert medium.end_transmission(weak) == 0, "the second frame drowns the first"
    assert medium.end_transmission(strong) == 0
    assert medium.on_air == []


def test_s4_a_queue_is_bounded_and_says_what_it_drops() -> None:
    config = RadioConfig(mac=MacConfig(queue_max=3))
    bench = Bench(in_a_row(0, 50), config=config)
    for number in range(5):
        bench.send(0, 0, 1, f"frame {number}")
    bench.run()
    assert Counter(how for _, how, _ in bench.done) == {"sent": 3, "full": 2}


def test_s4_a_frame_that_waited_too_long_is_dropped_as_stale() -> None:
    config = RadioConfig(mac=MacConfig(lifetime_us=1_000))
    bench = Bench(in_a_row(0, 50), config=config)
    for number in range(4):
        bench.send(0, 0, BROADCAST, f"frame {number}")
    bench.run()
    assert {how for _, how, _ in bench.done} == {"sent", "stale"}
    assert len(bench.done) == 4


def test_a_radio_that_is_switched_off_hears_and_sends_nothing() -> None:
    bench = Bench(in_a_row(0, 50, 80))
    bench.radio.set_power(1, on=False)
    bench.send(0, 0, BROADCAST, "to those who are on")
    bench.send(5_000, 0, 1, "to one who is off")
    bench.at(600_000, lambda: bench.radio.set_power(1, on=True))
    bench.send(700_000, 0, 1, "to one who is back")
    bench.run()
    assert bench.received[0][1] == [2]
    assert ("to one who is off", "exceeded", 7) in bench.done
    assert ("to one who is back", "sent", 1) in bench.done


def test_switching_off_in_the_middle_of_a_frame_loses_what_is_queued() -> None:
    bench = Bench(in_a_row(0, 50))
    for number in range(3):
        bench.send(0, 0, 1, f"frame {number}")
    bench.at(300, lambda: bench.radio.set_power(0, on=False))
    bench.at(50_000, lambda: bench.radio.set_power(0, on=True))
    bench.send(60_000, 0, 1, "later")
    bench.run()
    assert Counter(how for _, how, _ in bench.done) == {"off": 3, "sent": 1}


def test_nothing_is_left_on_the_air_when_all_is_said() -> None:
    sends = [
        RawSend(n, 1_000 + 300 * n, n % 20, -1 if n % 2 else (n + 1) % 20, 300) for n in range(500)
    ]
    positions = [(float(30 * (n % 5)), float(30 * (n // 5))) for n in range(20)]
    result = replay_sends(positions, sends, seed=3)
    assert all(row.transmissions or row.dropped for row in result.sends)
    assert result.frames >= 500
    again = replay_sends(positions, sends, seed=3)
    assert again.sends == result.sends
    assert replay_sends(positions, sends, seed=4).sends != result.sends


def test_s5_the_cost_of_a_frame_does_not_grow_with_nodes_out_of_reach() -> None:
    near = [(float(10 * n), 0.0) for n in range(10)]
    far = [(10_000.0 + 10 * n, 5_000.0) for n in range(500)]
    sends = [RawSend(n, 2_000 * n, n % 10, -1, 300) for n in range(100)]
    small, large = replay_sends(near, sends), replay_sends(near + far, sends)
    assert (small.sends, small.events) == (large.sends, large.events)


def test_s1_a_long_frame_asks_for_the_medium_first() -> None:
    bench = Bench(in_a_row(0, 50))
    bench.send(0, 0, 1, "long", size=1_472)
    bench.send(20_000, 0, BROADCAST, "long, to all", size=1_472)
    bench.send(40_000, 0, 1, "short", size=1_400)
    bench.run()
    assert bench.radio.frames_by_kind == {
        "rts": 1, "cts": 1, "unicast": 2, "ack": 2, "broadcast": 1
    }  # fmt: skip
    phy = Phy()
    exchange_us = phy.duration_us(20) + 10 + phy.duration_us(14) + 10 + phy.duration_us(1_536)
    assert bench.received[0] == ("long", [1], DIFS_US + exchange_us)


def test_s1_asking_first_spares_the_long_frame_a_hidden_neighbour() -> None:
    positions = in_a_row(0, 100, 215)  # the ends do not sense each other
    exceeded = {True: 0, False: 0}
    for asks in exceeded:
        config = RadioConfig(mac=MacConfig(rts_over_bytes=1_000 if asks else 3_000))
        bench = Bench(positions, config=config, seed=5)
        for number in range(200):
            bench.send(number * 9_000, 0, 1, "left", size=1_400)
            bench.send(number * 9_000 + 700, 2, 1, "right", size=1_400)
        bench.run(4_000_000)
        exceeded[asks] = bench.radio.retransmissions
    assert exceeded[True] < exceeded[False] / 2


def test_s2_disks_are_all_or_nothing() -> None:
    config = RadioConfig(unit_disk=UnitDisk(range_m=100, interference_m=150))
    bench = Bench(in_a_row(0, 100, 101, 240), config=config)
    bench.send(0, 0, BROADCAST, "alone")
    bench.send(10_000, 0, BROADCAST, "left")
    bench.send(10_100, 3, BROADCAST, "right")
    bench.run()
    assert bench.received == [
        ("alone", [1, 2][:1], 568),
        ("left", [], 10_568),
        ("right", [], 10_668),
    ]
