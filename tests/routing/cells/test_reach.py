"""The reach of the radio is measured, and cells that are too large for it are noticed (D2)."""

from __future__ import annotations

import math

import pytest

from tests.substrates.dcs.network import DcsNetwork
from thyme.cli import _parser
from thyme.cli.node import node_options
from thyme.daemon.status.collect_status import reach_warning
from thyme.model.errors import OptionError
from thyme.model.ids import NodeId
from thyme.routing.cells import GeographicRouting, Grid

GRID = Grid(columns=3, rows=1)


def reach_of(net: DcsNetwork, name: str) -> tuple[list[int], float | None]:
    routing = net.nodes[name].routing
    assert isinstance(routing, GeographicRouting)
    unreachable = [int(cell) for cell in routing.reach.unreachable_cells(net.links.kernel.now_us)]
    return unreachable, routing.reach.reach_m(routing.cell)


def with_reach(range_m: float) -> DcsNetwork:
    """Ann, bob and cat in cells 0 and 1; radios that reach less than the cells need."""
    places = {"ann": (1.0, 20.0), "bob": (79.0, 20.0), "cat": (38.0, 20.0)}
    net = DcsNetwork(places, grid=GRID, settle_s=0.0)
    for name, place in places.items():
        near = [
            NodeId(other.encode())
            for other, there in places.items()
            if other != name and math.dist(place, there) <= range_m
        ]
        net.links.relink(NodeId(name.encode()), near)
    net.run(30)
    return net


def test_d2_cells_that_the_radio_covers_raise_no_warning() -> None:
    net = with_reach(113.0)

    assert reach_of(net, "ann") == ([], 40.0)
    assert reach_warning(net.nodes["ann"], net.links.kernel.now_us) is None


def test_d2_a_node_learns_from_its_neighbours_that_it_does_not_hear_an_adjacent_cell() -> None:
    """Cat hears bob in the next cell, and ann does not: 78 m are too far for this radio."""
    net = with_reach(50.0)

    assert reach_of(net, "ann") == ([1], 0.0)
    assert reach_of(net, "cat") == ([], 40.0)
    warning = reach_warning(net.nodes["ann"], net.links.kernel.now_us)
    assert warning is not None
    assert "cells of 40 m are too large" in warning
    assert "at most 14 m" in warning


def test_d2_a_node_that_left_is_not_taken_for_one_out_of_reach() -> None:
    net = with_reach(113.0)
    net.go("bob")
    net.run(30)

    assert reach_of(net, "ann") == ([], 0.0)


def test_d2_cells_are_made_for_the_range_of_the_radio() -> None:
    def cell_m(*words: str) -> float | None:
        args = ["node", "--world", "w", "--memory", "--create", "--area", "400x200", *words]
        return node_options(_parser().parse_args(args)).cell_m

    assert cell_m() == 40.0
    assert cell_m("--range", "80") == pytest.approx(28.28, abs=0.01)
    Grid(columns=1, rows=1, cell_m=cell_m("--range", "80") or 0, range_m=80.0)
    with pytest.raises(OptionError, match="not both"):
        cell_m("--range", "80", "--cell", "40")
    with pytest.raises(OptionError, match="longer than 0"):
        cell_m("--range", "0")
