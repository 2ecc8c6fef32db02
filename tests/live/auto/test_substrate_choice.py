"""The choice of a substrate from the situation (B7)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thyme.live.auto.substrate_choice import (
    DCS,
    ES,
    LS,
    ChoiceConfig,
    Situation,
    SubstrateChoice,
)
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US

ALONE = Situation()
SERVER = Situation(server=True)
CONFIG = ChoiceConfig()


def crowd(nodes: int, **more: int) -> Situation:
    return Situation(nodes=frozenset(NodeId(bytes([node])) for node in range(nodes)), **more)


def watch(choice: SubstrateChoice, situation: Situation, from_s: int, until_s: int) -> list[str]:
    """What is chosen, second by second."""
    return [choice.observe(situation, at_s * SECOND_US) for at_s in range(from_s, until_s)]


def test_b7_a_server_that_stays_is_used_and_left_soon_after_it_is_gone() -> None:
    choice = SubstrateChoice()
    assert watch(choice, ALONE, 0, 5) == [LS] * 5
    assert watch(choice, SERVER, 5, 10) == [LS] * 3 + [ES] * 2
    assert watch(choice, ALONE, 10, 16) == [ES] * 4 + [LS] * 2


def test_b7_clients_of_a_server_that_is_gone_do_not_lead_back_to_it() -> None:
    choice = SubstrateChoice()
    stranded = Situation(clients=True)
    watch(choice, SERVER, 0, 4)
    assert watch(choice, stranded, 4, 200)[-1] == LS
    assert watch(choice, Situation(server=True, clients=True), 200, 210)[-1] == ES


def test_b7_a_node_out_of_range_of_the_server_follows_its_clients() -> None:
    assert watch(SubstrateChoice(), Situation(clients=True), 0, 4)[-1] == ES


def test_b7_a_crowd_uses_cells_until_half_of_it_is_gone() -> None:
    choice = SubstrateChoice(cells=True)
    watch(choice, crowd(11), 0, 120)  # the first minute they have just come
    assert choice.current == DCS
    assert watch(choice, crowd(6), 120, 300)[-1] == DCS
    assert watch(choice, crowd(3), 300, 365)[-1] == LS


def test_b7_a_crowd_without_an_area_stays_without_cells() -> None:
    assert set(watch(SubstrateChoice(), crowd(50), 0, 200)) == {LS}


def test_b7_few_nodes_that_read_a_lot_are_a_crowd_and_nodes_that_come_and_go_are_not() -> None:
    assert watch(SubstrateChoice(cells=True), crowd(8, reads=9), 0, 120)[-1] == DCS
    assert watch(SubstrateChoice(cells=True), crowd(8, inserts=9), 0, 120)[-1] == LS
    unsteady = SubstrateChoice(cells=True)
    for at_s in range(120):
        unsteady.observe(crowd(14 + at_s % 5), at_s * SECOND_US)
    assert unsteady.current == LS


def test_b7_a_node_follows_others_that_use_cells() -> None:
    assert watch(SubstrateChoice(cells=True), crowd(7, in_cells=6), 0, 120)[-1] == DCS
    assert watch(SubstrateChoice(cells=True), crowd(7, in_cells=2), 0, 120)[-1] == LS


situations = st.builds(
    lambda server, clients, nodes, in_cells: Situation(
        server=server, clients=clients, nodes=crowd(nodes).nodes, in_cells=min(in_cells, nodes)
    ),
    st.booleans(),
    st.booleans(),
    st.integers(0, 30),
    st.integers(0, 30),
)


@given(st.lists(st.tuples(situations, st.integers(1, 30)), max_size=60))
def test_b7_whatever_happens_changes_become_rare_and_a_lasting_situation_wins(
    spells: list[tuple[Situation, int]],
) -> None:
    choice, at_s, entered_s = SubstrateChoice(cells=True), 0, []
    for situation, seconds in spells:
        for _ in range(seconds):
            before = choice.current
            if choice.observe(situation, at_s * SECOND_US) not in (before, LS):
                entered_s.append(at_s)
            at_s += 1
    window_s = CONFIG.penalty_us // SECOND_US
    for begun_s in entered_s:
        # 3 + 6 + 12 … seconds of waiting fit into ten minutes eight times
        assert sum(begun_s <= at < begun_s + window_s for at in entered_s) <= 8
    assert watch(choice, ALONE, at_s, at_s + 70)[-1] == LS
    assert watch(choice, SERVER, at_s + 70, at_s + 70 + window_s + 2)[-1] == ES
