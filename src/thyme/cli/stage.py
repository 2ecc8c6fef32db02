"""The stage of the demo: where its story is shown.

The story says what happened; a stage decides how that looks, and how long to wait between scenes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

PAUSE_S = 0.45


class Stage(Protocol):
    """What a story needs."""

    async def scene(self, title: str, words: str) -> None:
        """Opens a scene."""
        ...

    def code(self, line: str) -> None:
        """Shows a line of Python that is being run."""
        ...

    def say(self, words: str) -> None:
        """Tells what came of it."""
        ...

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Shows several things of a kind."""
        ...

    async def end(self, title: str, lines: Sequence[tuple[str, str]]) -> None:
        """Says what to try next: commands and what they are for."""
        ...


class SilentStage:
    """For programs, which want only the facts."""

    async def scene(self, title: str, words: str) -> None:
        """Nothing to see."""

    def code(self, line: str) -> None:
        """Nothing to see."""

    def say(self, words: str) -> None:
        """Nothing to see."""

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Nothing to see."""

    async def end(self, title: str, lines: Sequence[tuple[str, str]]) -> None:
        """Nothing to see."""


class RichStage:
    """For people: with colour and pauses on a terminal, plain text without either elsewhere."""

    def __init__(self) -> None:
        from thyme.cli.terminal import Terminal

        self._console = Terminal()
        self._scenes = 0

    async def scene(self, title: str, words: str) -> None:
        from rich.panel import Panel
        from rich.text import Text

        await self._pause()
        if self._scenes == 0:
            heading = Text.assemble((title, "bold"), "\n", words)
            self._console.print(Panel(heading, border_style="green", padding=(0, 2)))
        else:
            self._console.print()
            self._console.rule(Text(f"{self._scenes}. {title}", "bold"), style="green")
            self._console.print(Text(words))
        self._scenes += 1

    def code(self, line: str) -> None:
        from rich.text import Text

        self._console.print(Text.assemble(("  > ", "green"), (line, "cyan")))

    def say(self, words: str) -> None:
        from rich.padding import Padding
        from rich.text import Text

        for line in words.splitlines():
            self._console.print(Padding(Text(line), (0, 0, 0, 4), expand=False))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns, box=SIMPLE_HEAD, header_style="dim", show_edge=False)
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(Padding(table, (0, 0, 0, 3), expand=False))

    async def end(self, title: str, lines: Sequence[tuple[str, str]]) -> None:
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        await self._pause()
        grid = Table.grid(padding=(0, 3))
        for command, purpose in lines:
            grid.add_row(Text(command, "cyan"), Text(purpose))
        self._console.print()
        self._console.print(Panel(grid, title=title, border_style="green", padding=(0, 2)))

    async def _pause(self) -> None:
        if self._scenes and self._console.is_terminal:
            await asyncio.sleep(PAUSE_S)
