"""Labels: each class declares its own, so that a renaming changes no table and no byte."""

from __future__ import annotations

from typing import get_args

import pytest

from thyme.protocol.app_interface import AppEvent, AppRequest
from thyme.protocol.messages.common import Message


@pytest.mark.parametrize("kinds", [get_args(Message), get_args(AppRequest), get_args(AppEvent)])
def test_every_kind_has_a_label_of_its_own(kinds: tuple[type, ...]) -> None:
    assert all("label" in vars(kind) for kind in kinds)
    assert len({kind.label for kind in kinds}) == len(kinds)  # type: ignore[attr-defined]
