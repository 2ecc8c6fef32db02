"""Key choice: which key, and so which cell, each conjunction of a query is sent to.

Each conjunction is keyed by one of its positive literals. The choice is made once and remembered,
so that later requests go to the same cell, and a subscription can be cancelled where it was made,
also after a restart. Entry point: `KeyChooser`.
Clauses: D3, D16, B10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec

from thyme.model.ids import SubscriptionId
from thyme.model.subscriptions import Conjunction, Subscription
from thyme.model.tags import Tag
from thyme.protocol.cells import CellId
from thyme.storage.store import Shelf, Store
from thyme.substrates.dcs.config import KeyChoice


class ChosenKeys(msgspec.Struct, frozen=True, array_like=True):
    """The conjunctions of an own subscription, and the key of each."""

    conjunctions: tuple[Conjunction, ...]
    keys: tuple[Tag, ...]


KEYS = Shelf("subscription keys", ChosenKeys)


class Keys:
    """The key choices of one node."""

    def __init__(
        self,
        store: Store,
        rng: Random,
        choice: KeyChoice,
        keys_max: int,
        cell_of_key: Callable[[str], CellId],
        cost_of: Callable[[Tag], tuple[float, ...]] = lambda _tag: (),
    ) -> None:
        """Unless keys are chosen at random, the literal with the lowest cost is chosen, the first
        among equals."""
        self._store = store
        self._rng = rng
        self._choice = choice
        self._keys_max = keys_max
        self._cell_of_key = cell_of_key
        self._cost_of = cost_of
        self._chosen: dict[Conjunction, Tag] = {}
        self._own = {SubscriptionId(sid): chosen for sid, chosen in store.load(KEYS)}
        for chosen in self._own.values():
            self._chosen.update(zip(chosen.conjunctions, chosen.keys, strict=True))

    def key_of(self, conjunction: Conjunction) -> Tag:
        """The key of a conjunction, chosen now if it is new."""
        key = self._chosen.get(conjunction)
        if key is None:
            literals = conjunction.positive
            is_random = self._choice is KeyChoice.RANDOM
            key = self._rng.choice(literals) if is_random else min(literals, key=self._cost_of)
            self._chosen[conjunction] = key
            if len(self._chosen) > self._keys_max:
                del self._chosen[next(iter(self._chosen))]
        return key

    def by_cell(
        self, conjunctions: Sequence[Conjunction], keys: Sequence[Tag] | None = None
    ) -> dict[CellId, tuple[Conjunction, ...]]:
        """The conjunctions grouped by their key cell."""
        keys = keys or [self.key_of(conjunction) for conjunction in conjunctions]
        cells: dict[CellId, tuple[Conjunction, ...]] = {}
        for conjunction, key in zip(conjunctions, keys, strict=True):
            cell = self._cell_of_key(key)
            cells[cell] = (*cells.get(cell, ()), conjunction)
        return cells

    def of_subscription(self, subscription: Subscription) -> dict[CellId, tuple[Conjunction, ...]]:
        """The key cells of an own subscription with their conjunctions; stores the choice."""
        sid, conjunctions = subscription.key.sid, subscription.conjunctions
        chosen = self._own.get(sid)
        if chosen is None:
            chosen = ChosenKeys(conjunctions, tuple(map(self.key_of, conjunctions)))
            self._own[sid] = chosen
            self._store.put(KEYS, sid, chosen)
        return self.by_cell(chosen.conjunctions, chosen.keys)

    def cells(self, sid: SubscriptionId) -> list[CellId]:
        """The key cells of an own subscription."""
        chosen = self._own.get(sid)
        return [] if chosen is None else list(self.by_cell(chosen.conjunctions, chosen.keys))

    def all_cells(self) -> list[CellId]:
        """The key cells of all own subscriptions."""
        return list(dict.fromkeys(cell for sid in self._own for cell in self.cells(sid)))

    def forget(self, sid: SubscriptionId) -> None:
        """Forgets the keys of a subscription that ended."""
        if self._own.pop(sid, None) is not None:
            self._store.remove(KEYS, sid)

    def forget_all_but(self, alive: Callable[[SubscriptionId], bool], expected: int) -> None:
        """Forgets the keys of subscriptions that are no longer alive, once there are many of
        them."""
        if len(self._own) > 2 * expected + 64:
            for sid in [sid for sid in self._own if not alive(sid)]:
                self.forget(sid)
