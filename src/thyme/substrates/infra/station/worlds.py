"""Worlds of a station: the list that probes are answered with, and the number of cells of each.

Entry point: `WorldTable`. A world created at one station is announced to all. The number of cells
follows the number of mobile nodes of the own venue: one cell for every few nodes, changed only when
it is far off.
Clauses: I2, I3.
"""

from __future__ import annotations

from msgspec.structs import replace

from thyme.model.errors import RejectedError
from thyme.protocol.messages.stations import WorldEntry
from thyme.substrates.infra.world_numbers import world_number

WORLDS_MAX = 1_000


class WorldTable:
    """The worlds that one station knows."""

    def __init__(self, nodes_per_cell: int, cells_min: int, cells_max: int) -> None:
        self._nodes_per_cell = nodes_per_cell
        self._cells_min = cells_min
        self._cells_max = cells_max
        self._entries: dict[int, WorldEntry] = {}

    def __contains__(self, world: int) -> bool:
        return world in self._entries

    def __getitem__(self, world: int) -> WorldEntry:
        return self._entries[world]

    def name_of(self, world: int) -> str | None:
        """The name of the world with a number; None if it is unknown."""
        entry = self._entries.get(world)
        return None if entry is None else entry.name

    def entries(self) -> tuple[WorldEntry, ...]:
        """All worlds, in the order of their creation here."""
        return tuple(self._entries.values())

    def create(self, name: str) -> WorldEntry:
        """Returns the world with a name, created now if it is new (I3)."""
        world = world_number(name)
        if world not in self._entries:
            self.add(WorldEntry(world, name, self._cells_min))
        return self._entries[world]

    def add(self, entry: WorldEntry) -> bool:
        """Adds a world that another station announced; returns whether it is new. The number of
        cells is the own station's: it depends on the own venue."""
        if entry.world in self._entries or entry.world != world_number(entry.name):
            return False
        if len(self._entries) >= WORLDS_MAX:
            raise RejectedError(f"this station has {WORLDS_MAX} worlds already")
        self._entries[entry.world] = replace(entry, cells=self._cells_min)
        return True

    def restore(self, entry: WorldEntry) -> None:
        """Adds a world as it was before a restart, with its number of cells."""
        if self.add(entry):
            cells = max(self._cells_min, min(self._cells_max, entry.cells))
            self._entries[entry.world] = replace(entry, cells=cells)

    def adapt_cells(self, world: int, population: int) -> bool:
        """Adapts the number of cells to the number of nodes; returns whether it changed.

        It changes only when it is off by a factor of two: each change costs every node a move.
        """
        entry = self._entries[world]
        wanted = max(self._cells_min, min(self._cells_max, population // self._nodes_per_cell))
        if entry.cells < 2 * wanted and wanted < 2 * entry.cells:
            return False
        if wanted == entry.cells:
            return False
        self._entries[world] = replace(entry, cells=wanted)
        return True
