"""Privacy: what an eavesdropper learns about a user's topics from generated profiles (U2).

Entry point: `measure_privacy`. Devices meet in random pairs and exchange generated profiles. The
eavesdropper follows one device, so random identifiers do not help it, and guesses that the topics
in all of its profiles are those of the user. Precision is the share of guessed topics that are the
user's, recall the share of the user's topics that are guessed.
Clause: U2.
"""

from __future__ import annotations

import msgspec

from thyme.model.errors import OptionError
from thyme.model.rng import derive_rng
from thyme.model.tags import Tag, as_tag
from thyme.substrates.encounters.demand import Demand


class PrivacyPoint(msgspec.Struct, frozen=True):
    """The quality of the guess after a number of profiles, as means over all devices."""

    profiles: int
    precision: float
    recall: float


def measure_privacy(
    *,
    topics: int = 20,
    topics_per_user: int = 2,
    topics_added: int = 2,
    devices: int = 50,
    profiles_max: int = 32,
    seed: int = 1,
) -> list[PrivacyPoint]:
    """Precision and recall of the guess after 1, 2, 4, … profiles of each device."""
    if not 1 <= topics_per_user <= topics or devices < 2 or profiles_max < 1:
        raise OptionError("privacy needs topics for each user, two devices and one profile")
    known = [as_tag(f"topic{number}") for number in range(topics)]
    real = [
        frozenset(derive_rng(seed, "topics", device).sample(known, topics_per_user))
        for device in range(devices)
    ]
    demands = [Demand(known, derive_rng(seed, "demand", device)) for device in range(devices)]
    guesses: list[frozenset[Tag]] = [frozenset(known)] * devices
    rng = derive_rng(seed, "meetings")
    points: list[PrivacyPoint] = []
    for count in range(1, profiles_max + 1):
        order = rng.sample(range(devices), devices)
        sent = [
            demands[device].generate_profile(real[device], topics_added)
            for device in range(devices)
        ]
        for one, other in zip(order[::2], order[1::2], strict=False):
            demands[one].record_profile(sent[other])
            demands[other].record_profile(sent[one])
        guesses = [guess & profile for guess, profile in zip(guesses, sent, strict=True)]
        if count & (count - 1) == 0:
            points.append(_score(count, guesses, real))
    return points


def _score(count: int, guesses: list[frozenset[Tag]], real: list[frozenset[Tag]]) -> PrivacyPoint:
    pairs = list(zip(guesses, real, strict=True))
    precision = sum(len(guess & mine) / len(guess) for guess, mine in pairs) / len(pairs)
    recall = sum(len(guess & mine) / len(mine) for guess, mine in pairs) / len(pairs)
    return PrivacyPoint(count, round(precision, 4), round(recall, 4))
