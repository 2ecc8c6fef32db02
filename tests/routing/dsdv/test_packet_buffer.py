"""Buffered packets: in order, bounded in number and in time (R1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.routing.graph import name, question
from thyme.protocol.messages.common import Packet
from thyme.routing.dsdv.packet_buffer import PacketBuffer

steps = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5), st.sampled_from(["put", "take", "expire"])),
    max_size=60,
)


def packet(number: int, to: int) -> Packet:
    return Packet(name(9), name(to), 0, question(number, name(to)))


@given(steps)
def test_r1_what_waits_leaves_in_order_or_expires_and_the_limits_hold(
    script: list[tuple[int, int, str]],
) -> None:
    waiting = PacketBuffer(packets_max=6, per_destination_max=3, wait_us_max=10)
    model: dict[int, list[tuple[int, Packet]]] = {to: [] for to in range(4)}
    now_us = 0
    for number, (to, later_us, what) in enumerate(script):
        now_us += later_us
        queue = model[to]
        if what == "put":
            fits = len(queue) < 3 and sum(map(len, model.values())) < 6
            assert waiting.add(packet(number, to), now_us) == fits
            if fits:
                queue.append((now_us, packet(number, to)))
        elif what == "take" and queue:
            assert name(to) in waiting
            assert waiting.pop(name(to)) == queue.pop(0)[1]
        elif what == "expire":
            kept = {
                to: [entry for entry in queue if entry[0] + 10 >= now_us]
                for to, queue in model.items()
            }
            gone = sum(map(len, model.values())) - sum(map(len, kept.values()))
            assert waiting.drop_expired(now_us) == gone
            model = kept
        waiting.check()
        assert len(waiting) == sum(map(len, model.values()))
        assert set(waiting.destinations) == {name(to) for to in model if model[to]}
