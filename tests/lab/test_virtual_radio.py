"""The virtual radio of a lab: datagrams reach the nodes within range."""

from __future__ import annotations

import asyncio
import math
import socket
from random import Random

import pytest

from thyme.lab.plan import LabPlan, Walkers, choose_positions, start_order
from thyme.lab.virtual_radio import DelayLine, LoopbackRadio, TunRadio, VirtualRadio
from thyme.model.errors import OptionError

ROW = [(0.0, 0.0), (40.0, 0.0), (80.0, 0.0)]


def in_a_row(loss: float = 0.0) -> VirtualRadio:
    return VirtualRadio(ROW, 50, loss, Random(1))


def test_who_is_in_reach_is_heard() -> None:
    air = in_a_row()

    assert [air.broadcast_receivers(number) for number in range(3)] == [[1], [0, 2], [1]]
    assert air.is_delivered(0, 1)
    assert not air.is_delivered(0, 2)
    assert not air.is_delivered(1, 1)


def test_losses_are_each_receivers_own() -> None:
    air = in_a_row(loss=0.2)
    came = [air.broadcast_receivers(1) for _ in range(2_000)]

    assert {tuple(receivers) for receivers in came} == {(0, 2), (0,), (2,), ()}
    assert 0.75 < sum(map(len, came)) / 4_000 < 0.85
    assert air.delivered + air.lost == 4_000


def test_nodes_stand_in_all_cells_and_each_reaches_the_cells_beside() -> None:
    plan = LabPlan(nodes=12, range_m=50)
    places = choose_positions(plan)

    cells = [(x // 40, y // 40) for x, y in places]
    assert len(set(cells)) == 6
    assert all(cells.count(cell) == 2 for cell in cells)
    assert len(start_order(places, plan.effective_range_m)) == 4, (
        "the far corner is three hops away"
    )
    assert places == choose_positions(plan)


def test_the_range_is_what_cells_need_unless_told() -> None:
    """D2."""
    assert LabPlan().effective_range_m == pytest.approx(113.1, abs=0.1)


def test_a_lab_that_falls_apart_is_refused() -> None:
    with pytest.raises(OptionError, match="nodes 3 are out of range"):
        start_order([(0.0, 0.0), (40.0, 0.0), (100.0, 0.0)], 50)


@pytest.mark.parametrize(
    "options",
    [{"nodes": 0}, {"nodes": 1_000}, {"loss": 1.0}, {"loss": -0.1}, {"cell_m": 0.0},
     {"width_m": float("nan")}, {"range_m": -1.0}],
)  # fmt: skip
def test_a_plan_that_cannot_be_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        LabPlan(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("delay_s", [0.0, 0.01])
def test_voices_carry_to_all_in_reach_and_to_one(delay_s: float) -> None:
    asyncio.run(_carry(delay_s))


async def _carry(delay_s: float) -> None:
    nodes = [_node() for _ in ROW]
    voices = LoopbackRadio(
        in_a_row(), [node.getsockname()[1] for node in nodes], DelayLine(delay_s)
    )
    voices.open()
    addresses = voices.addresses
    nodes[1].sendto(b"all", addresses[1])
    nodes[0].sendto(b"to 1", addresses[1])
    nodes[0].sendto(b"to 2", addresses[2])
    await asyncio.sleep(0.1)

    assert _heard(nodes[0]) == [(b"all", addresses[1])]
    assert _heard(nodes[1]) == [(b"to 1", addresses[0])]
    assert _heard(nodes[2]) == [(b"all", addresses[1])], "what is too far away is not heard"
    voices.close()
    for node in nodes:
        node.close()


def test_packets_go_to_whom_they_are_for() -> None:
    addresses = ["10.84.0.2", "10.84.0.3", "10.84.0.4"]
    tunnels = TunRadio(in_a_row(), DelayLine(0), [], addresses)

    assert tunnels._receivers(1, _packet("239.84.72.89")) == [0, 2]
    assert tunnels._receivers(0, _packet("10.84.0.3")) == [1]
    assert tunnels._receivers(0, _packet("10.84.0.4")) == []
    assert tunnels._receivers(0, _packet("8.8.8.8")) == []
    assert tunnels._receivers(0, b"\x60" * 40) == []
    assert tunnels._receivers(0, b"") == []


def _packet(to: str) -> bytes:
    return b"\x45" + bytes(15) + socket.inet_aton(to)


def _node() -> socket.socket:
    node = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    node.bind(("127.0.0.1", 0))
    node.setblocking(False)
    return node


def _heard(node: socket.socket) -> list[tuple[bytes, tuple[str, int]]]:
    heard = []
    while True:
        try:
            heard.append(node.recvfrom(2_000))
        except BlockingIOError:
            return heard


def test_nodes_that_move_meet_and_part() -> None:
    radio = VirtualRadio([(0.0, 0.0), (30.0, 0.0)], 10.0, 0.0, Random(1))
    assert radio.broadcast_receivers(0) == []
    radio.move_to([(25.0, 0.0), (30.0, 0.0)])
    assert radio.broadcast_receivers(0) == [1]
    radio.move_to([(50.0, 0.0), (30.0, 0.0)])
    assert radio.broadcast_receivers(0) == []


def test_walkers_stay_in_their_area_and_keep_their_speed() -> None:
    plan = LabPlan(
        nodes=3, width_m=40.0, height_m=20.0, substrate="mobuser", speed_m_s=2.0, range_m=10.0
    )
    walkers = Walkers(plan, [(0.0, 0.0), (20.0, 10.0), (40.0, 20.0)])
    for _ in range(200):
        before = list(walkers.positions)
        walkers.walk(0.5)
        for (x, y), here in zip(walkers.positions, before, strict=True):
            assert 0 <= x <= 40
            assert 0 <= y <= 20
            assert math.dist((x, y), here) <= 1.0 + 1e-9


def test_only_nodes_of_encounters_move() -> None:
    with pytest.raises(OptionError, match="mobuser"):
        LabPlan(speed_m_s=1.0)
