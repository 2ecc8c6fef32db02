"""Worlds: their description (M21)."""

from __future__ import annotations

from typing import Any

import pytest

from thyme.model.errors import InstantError, WorldError
from thyme.model.time_frames import INSTANT_MAX_US
from thyme.model.worlds import Area, WorldInfo, check_world_name


def world(**parts: Any) -> WorldInfo:
    return WorldInfo(**{"name": "lisbon", "world_id": "w1", **parts})


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"area": Area(100.0, 50.0), "cell_m": 10.0},
        {"cells": 1},
        {"cells": 64, "ends_us": 10},
        {"name": "x" * 128},
        {"name": "Estádio da Luz"},
        {"name": "é" * 64},
    ],
)
def test_m21_a_world_has_a_name_an_id_and_perhaps_cells_and_an_end(parts: dict[str, Any]) -> None:
    made = world(**parts)

    assert {name: getattr(made, name) for name in parts} == parts


def test_m21_worlds_of_one_name_are_told_apart_by_their_id() -> None:
    assert world(world_id="w1") != world(world_id="w2")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"world_id": ""}, "needs an identifier"),
        ({"area": Area(1.0, 1.0)}, "go together"),
        ({"cell_m": 1.0}, "go together"),
        ({"area": Area(1.0, 1.0), "cell_m": 0.0}, "a cell is larger than 0 m"),
        ({"area": Area(1.0, 1.0), "cell_m": -1.0}, "a cell is larger than 0 m"),
        ({"area": Area(1.0, 1.0), "cell_m": float("nan")}, "a cell is larger than 0 m"),
        ({"area": Area(1.0, 1.0), "cell_m": float("inf")}, "a cell is larger than 0 m"),
        ({"cells": 0}, "at least one cell, not 0"),
        ({"cells": -3}, "at least one cell, not -3"),
    ],
)
def test_m21_a_world_that_cannot_be_is_refused(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(WorldError, match=words):
        world(**parts)


def test_m21_a_world_ends_at_an_instant() -> None:
    with pytest.raises(InstantError, match="out of range"):
        world(ends_us=INSTANT_MAX_US + 1)


@pytest.mark.parametrize("side", [0.0, -1.0, float("nan"), float("inf"), float("-inf")])
def test_m21_an_area_has_two_sides_longer_than_nothing(side: float) -> None:
    with pytest.raises(WorldError, match="sides longer than 0 m"):
        Area(side, 1.0)
    with pytest.raises(WorldError, match="sides longer than 0 m"):
        Area(1.0, side)


@pytest.mark.parametrize("name", ["", " ", "\t", "a\nb", "a\x00", "\ud800", None, 7, b"lisbon"])
def test_m25_a_worlds_name_is_printable_text(name: Any) -> None:
    with pytest.raises(WorldError, match="a world's name is printable text, not "):
        check_world_name(name)


@pytest.mark.parametrize("name", ["x" * 129, "é" * 65])
def test_m25_a_worlds_name_fits_128_bytes(name: str) -> None:
    with pytest.raises(WorldError, match="at most 128 bytes"):
        check_world_name(name)
