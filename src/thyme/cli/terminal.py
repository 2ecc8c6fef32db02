"""The terminal: Rich, set up for our commands. Import it late, Rich takes a while to load."""

from __future__ import annotations

from rich.console import Console


class Terminal(Console):
    """Colour and width as the terminal has them, plain text elsewhere."""

    def __init__(self) -> None:
        super().__init__(highlight=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Called while a `BrokenPipeError` is handled, which `main` knows how to end with."""
        raise  # what Rich is handling as it calls this
