"""Labels: declared by each class itself, so that renaming one changes no table and no byte."""

from __future__ import annotations

from typing import get_args

import pytest

from thyme.protocol.messages import Message
from thyme.protocol.requests import Request, Told


@pytest.mark.parametrize("kinds", [get_args(Message), get_args(Request), get_args(Told)])
def test_every_kind_has_a_label_of_its_own(kinds: tuple[type, ...]) -> None:
    assert all("label" in vars(kind) for kind in kinds)
    assert len({kind.label for kind in kinds}) == len(kinds)  # type: ignore[attr-defined]
