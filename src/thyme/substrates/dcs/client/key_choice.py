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

from thyme.model.bounded import BoundedDict
from thyme.model.ids import SubscriptionId
from thyme.model.subscriptions import Conjunction, SubscriptionRecord
from thyme.model.tags import Tag
from thyme.protocol.messages.cell_records import CellId
from thyme.storage.store import RecordTable, Store
from thyme.substrates.dcs.config import KeyChoice

_CHOICES_MAX = 10_000
"""For how many conjunctions the chosen key is remembered, in addition to those of the node's own
subscriptions."""


class ChosenKeys(msgspec.Struct, frozen=True, array_like=True):
    """The conjunctions of an own subscription, and the key of each."""

    conjunctions: tuple[Conjunction, ...]
    keys: tuple[Tag, ...]


SUBSCRIPTION_KEYS = RecordTable("subscription keys", ChosenKeys)


class KeyChooser:
    """The key choices of one node."""

    def __init__(
        self,
        store: Store,
        rng: Random,
        choice: KeyChoice,
        cell_of_key: Callable[[str], CellId],
        key_cost: Callable[[Tag], tuple[float, ...]] = lambda _tag: (),
        choices_max: int = _CHOICES_MAX,
    ) -> None:
        """Unless keys are chosen at random, the literal with the lowest cost is chosen, the first
        among equals."""
        self._store = store
        self._rng = rng
        self._choice = choice
        self._cell_of_key = cell_of_key
        self._key_cost = key_cost
        self._chosen: BoundedDict[Conjunction, Tag] = BoundedDict(choices_max)
        self._own_subscriptions = {
            SubscriptionId(sid): chosen for sid, chosen in store.load(SUBSCRIPTION_KEYS)
        }
        for chosen in self._own_subscriptions.values():
            for conjunction, key in zip(chosen.conjunctions, chosen.keys, strict=True):
                self._chosen[conjunction] = key

    def choose_key(self, conjunction: Conjunction) -> Tag:
        """The key of a conjunction, chosen now if it is new."""
        key = self._chosen.get(conjunction)
        if key is None:
            literals = conjunction.positive
            is_random = self._choice is KeyChoice.RANDOM
            key = self._rng.choice(literals) if is_random else min(literals, key=self._key_cost)
            self._chosen[conjunction] = key
        return key

    def group_by_cell(
        self, conjunctions: Sequence[Conjunction], keys: Sequence[Tag] | None = None
    ) -> dict[CellId, tuple[Conjunction, ...]]:
        """The conjunctions grouped by their key cell."""
        keys = keys or [self.choose_key(conjunction) for conjunction in conjunctions]
        cells: dict[CellId, tuple[Conjunction, ...]] = {}
        for conjunction, key in zip(conjunctions, keys, strict=True):
            cell = self._cell_of_key(key)
            cells[cell] = (*cells.get(cell, ()), conjunction)
        return cells

    def assign_cells(
        self, subscription: SubscriptionRecord
    ) -> dict[CellId, tuple[Conjunction, ...]]:
        """The key cells of an own subscription with their conjunctions; stores the choice."""
        sid, conjunctions = subscription.key.sid, subscription.conjunctions
        chosen = self._own_subscriptions.get(sid)
        if chosen is None:
            chosen = ChosenKeys(conjunctions, tuple(map(self.choose_key, conjunctions)))
            self._own_subscriptions[sid] = chosen
            self._store.put(SUBSCRIPTION_KEYS, sid, chosen)
        return self.group_by_cell(chosen.conjunctions, chosen.keys)

    def cells_of(self, sid: SubscriptionId) -> list[CellId]:
        """The key cells of an own subscription."""
        chosen = self._own_subscriptions.get(sid)
        return [] if chosen is None else list(self.group_by_cell(chosen.conjunctions, chosen.keys))

    def all_cells(self) -> list[CellId]:
        """The key cells of all own subscriptions."""
        return list(
            dict.fromkeys(cell for sid in self._own_subscriptions for cell in self.cells_of(sid))
        )

    def forget_subscription(self, sid: SubscriptionId) -> None:
        """Forgets the keys of a subscription that ended."""
        if self._own_subscriptions.pop(sid, None) is not None:
            self._store.remove(SUBSCRIPTION_KEYS, sid)

    def prune_ended(self, is_alive: Callable[[SubscriptionId], bool], count_expected: int) -> None:
        """Forgets the keys of subscriptions that are no longer alive, once there are many of
        them."""
        if len(self._own_subscriptions) > 2 * count_expected + 64:
            for sid in [sid for sid in self._own_subscriptions if not is_alive(sid)]:
                self.forget_subscription(sid)
