"""What the command modules share: the type of the list they add themselves to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Commands = _SubParsersAction[Any]
