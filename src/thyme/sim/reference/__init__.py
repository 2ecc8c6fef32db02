"""The reference: what ns-3 made of the same sends, to hold our radio against.

The sends and figures were measured with ns-3.44; README.md beside this file says how. The files
travel with the package, so that a self-test needs nothing else.
Clause: S3.
"""

from __future__ import annotations

import csv
import gzip
from functools import cache
from importlib.resources import files

import msgspec

from thyme.sim.replay import RawSend

PAYLOAD_BYTES = 300
"""Of every send in the sets `a_bcast`, `b_ucast` and `e_replies`."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Random sends at a rate among 100 nodes, and the means of five runs."""

    set: str
    per_second: int
    sends: int
    receivers: float
    """Per send; for unicasts the share that arrived."""
    delay_mean_us: float
    delay_p95_us: float
    delay_p99_us: float
    retransmissions: float
    exceeded: float


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """Five nodes in a line, 90 m apart, from first to last; the means of three runs."""

    profile: str
    """`anchor`, or `cca_at_decode`: carrier sense only of what can be locked on to."""
    payload_bytes: int
    per_second: int
    goodput_per_second: float
    delay_mean_us: float
    delay_p95_us: float
    data_frames: int
    retransmissions: float


class Link(msgspec.Struct, frozen=True, array_like=True):
    """The share of 1,000 sends that arrived at a distance, with nobody else on the air."""

    distance_m: int
    bcast50: float
    bcast300: float
    bcast1000: float
    bcast1472: float
    unicast300: float
    unicast300_transmissions: float
    """Per send."""


class Replies(msgspec.Struct, frozen=True, kw_only=True):
    """50 broadcasts, each answered by all who got it, after up to `jitter_us`; one run."""

    reply: str
    """`unicast` to the one who asked, or `broadcast`."""
    jitter_us: int
    replies: int
    receptions: int
    delay_mean_us: float
    retransmissions: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured."""

    questioners: tuple[int, ...]
    """Who sends the broadcasts that are replied to, one every two seconds."""
    loads: tuple[Load, ...]
    chains: tuple[Chain, ...]
    links: tuple[Link, ...]
    replies: tuple[Replies, ...]


@cache
def figures() -> Figures:
    """The reference figures."""
    return msgspec.json.decode(_bytes("figures.json"), type=Figures)


@cache
def positions() -> tuple[tuple[float, float], ...]:
    """The 100 nodes of all sets but the chain and the link, in 400 by 200 metres."""
    rows = csv.DictReader(_bytes("positions.csv").decode().splitlines())
    return tuple((float(row["x"]), float(row["y"])) for row in rows)


def sends(load: Load) -> list[RawSend]:
    """The sends behind a load's figures."""
    text = gzip.decompress(_bytes(f"{load.set}_{load.per_second}.csv.gz")).decode()
    found: list[RawSend] = []
    at_us = 0
    for number, line in enumerate(text.splitlines()[1:]):
        after_us, source, to = map(int, line.split(","))
        at_us += after_us
        found.append(RawSend(number, at_us, source, to, PAYLOAD_BYTES))
    return found


def _bytes(name: str) -> bytes:
    return (files("thyme.sim") / "reference" / name).read_bytes()
