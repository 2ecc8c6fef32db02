"""The choice of keys pays off on formulas (B10), measured against the random choice of the papers.

A cell examines, for each object that is inserted, the conjunctions that are keyed by one of its
tags, and for each new subscription the stored objects with its key. The fewer, the better.
"""

from __future__ import annotations

from random import Random

import msgspec

from tests.substrates.dcs.network import STREET, DcsNetwork
from thyme.model.tags import Tag, as_tags
from thyme.substrates.dcs.config import ROBUST, KeyChoice

TAGS = [f"tag{number}" for number in range(12)]
WEIGHTS = [1 / (rank + 1) for rank in range(len(TAGS))]
"""Few tags are popular, as in posts of a crowd (Zipf's law)."""
OBJECTS = 40
FORMULAS = 24


def some_tags(rng: Random, count: int) -> list[str]:
    return list(dict.fromkeys(rng.choices(TAGS, WEIGHTS, k=count)))


def a_formula(rng: Random) -> str:
    """Such as `(tag0 | tag3) & tag1 & !tag7`: two conjunctions with two positive literals each."""
    one, other, both, without = rng.sample(TAGS, 4)
    return f"({one} | {other}) & {both} & !{without}"


def examined(choice: KeyChoice, seed: int) -> tuple[int, int, dict[str, list[str]]]:
    """The conjunctions that cells examine for all objects, the objects that they examine for all
    subscriptions, and the notifications of each node."""
    rng = Random(seed)
    net = DcsNetwork(STREET, config=msgspec.structs.replace(ROBUST, key_choice=choice), seed=seed)
    names = sorted(net.nodes)
    objects: list[tuple[Tag, ...]] = []

    def publish(count: int) -> None:
        for _ in range(count):
            tags = some_tags(rng, 4)
            objects.append(as_tags(tags))
            net.insert(rng.choice(names), f"object{len(objects)}", *tags, seconds=0.2)

    publish(OBJECTS)
    for _ in range(FORMULAS):
        net.subscribe(rng.choice(names), a_formula(rng))
    keys = [
        chosen
        for name in names
        for record in net.nodes[name].subscriber.active_records()
        for chosen in map(net.nodes[name].parts.client.key_chooser.choose_key, record.conjunctions)
    ]
    publish(OBJECTS)
    net.run(3)
    live = sum(key in tags for tags in objects[OBJECTS:] for key in keys)
    past = sum(key in tags for tags in objects[:OBJECTS] for key in keys)
    return live, past, {name: sorted(net.heard(name)) for name in names}


def test_b10_rare_keys_make_cells_examine_less_than_random_ones() -> None:
    """B10: past and live queries use the same key, and both profit; nobody hears less for it."""
    live, past = {}, {}
    heard = {}
    for choice in (KeyChoice.RANDOM, KeyChoice.RAREST):
        found = [examined(choice, seed) for seed in range(3)]
        live[choice] = sum(each[0] for each in found)
        past[choice] = sum(each[1] for each in found)
        heard[choice] = [each[2] for each in found]

    assert heard[KeyChoice.RAREST] == heard[KeyChoice.RANDOM]
    assert live[KeyChoice.RAREST] < 0.8 * live[KeyChoice.RANDOM]
    assert past[KeyChoice.RAREST] < 0.8 * past[KeyChoice.RANDOM]
