"""The output of `thyme story`: an interface, one implementation with Rich and one without output.

`story` reports what happened; the output decides how it is displayed and how long to pause between
scenes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

PAUSE_S = 0.45


class StoryOutput(Protocol):
    """The output that a story writes to."""

    async def begin_scene(self, title: str, text: str) -> None:
        """Begins a scene with a title and an introduction."""
        ...

    def show_code(self, line: str) -> None:
        """Shows a line of Python that the story executes."""
        ...

    def show_text(self, text: str) -> None:
        """Shows a text, such as the result of the code."""
        ...

    def show_table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Shows a table."""
        ...

    async def end_story(self, title: str, lines: Sequence[tuple[str, str]]) -> None:
        """Ends the story with a list of commands to try, each with its purpose."""
        ...


class NullOutput:
    """Shows nothing, for `thyme story --json`."""

    async def begin_scene(self, title: str, text: str) -> None:
        """Does nothing."""

    def show_code(self, line: str) -> None:
        """Does nothing."""

    def show_text(self, text: str) -> None:
        """Does nothing."""

    def show_table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Does nothing."""

    async def end_story(self, title: str, lines: Sequence[tuple[str, str]]) -> None:
        """Does nothing."""


class RichOutput:
    """Colour and pauses on a terminal; plain text without pauses elsewhere."""

    def __init__(self) -> None:
        from thyme.cli.terminal import Terminal

        self._console = Terminal()
        self._scenes = 0

    async def begin_scene(self, title: str, text: str) -> None:
        from rich.panel import Panel
        from rich.text import Text

        await self._pause()
        if self._scenes == 0:
            heading = Text.assemble((title, "bold"), "\n", text)
            self._console.print(Panel(heading, border_style="green", padding=(0, 2)))
        else:
            self._console.print()
            self._console.rule(Text(f"{self._scenes}. {title}", "bold"), style="green")
            self._console.print(Text(text))
        self._scenes += 1

    def show_code(self, line: str) -> None:
        from rich.text import Text

        self._console.print(Text.assemble(("  > ", "green"), (line, "cyan")))

    def show_text(self, text: str) -> None:
        from rich.padding import Padding
        from rich.text import Text

        for line in text.splitlines():
            self._console.print(Padding(Text(line), (0, 0, 0, 4), expand=False))

    def show_table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns, box=SIMPLE_HEAD, header_style="dim", show_edge=False)
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(Padding(table, (0, 0, 0, 3), expand=False))

    async def end_story(self, title: str, lines: Sequence[tuple[str, str]]) -> None:
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
