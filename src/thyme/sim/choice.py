"""Choices: which nodes are the mobile, the crashing ones; `thyme.model.choice` as known here."""

from __future__ import annotations

from thyme.model.choice import check_share, choose

__all__ = ["check_share", "choose"]
