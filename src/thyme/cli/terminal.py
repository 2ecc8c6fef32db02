"""Terminal output with Rich. Import this module late: Rich is slow to load."""

from __future__ import annotations

from rich.console import Console


class Terminal(Console):
    """A Rich console: colour and width of the terminal, or plain text if there is none."""

    def __init__(self) -> None:
        super().__init__(highlight=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Re-raises the `BrokenPipeError` that Rich is handling; `main` ends with it."""
        raise  # the exception that Rich is handling
