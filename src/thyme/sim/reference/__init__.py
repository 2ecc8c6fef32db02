"""The reference: what ns-3 made of the same sends, to hold our radio and our DSDV against.

The sends and figures were measured with ns-3.44; README.md beside this file says how. The files
travel with the package, so that a self-test needs nothing else.
Clauses: S3, R3.
"""

from __future__ import annotations

import csv
import gzip
from functools import cache
from importlib.resources import files

import msgspec

from thyme.sim.replay import RawSend

PAYLOAD_BYTES = 300
"""Of every send in the sets `a_bcast`, `b_ucast`, `d_dsdv_load` and `e_replies`."""


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


class DsdvIdle(msgspec.Struct, frozen=True, kw_only=True):
    """DSDV with nothing to carry, for 120 s from the start; one run."""

    nodes: int
    frames: float
    """Per node and second."""
    bytes: float
    """Of MPDUs, per node and second."""


class DsdvLoad(msgspec.Struct, frozen=True, kw_only=True):
    """50 unicasts per second among 100 nodes over DSDV, ARP caches filled; three runs."""

    sends: int
    delivered: float
    """The share of sends that arrived."""
    hops_mean: float
    delay_p50_us: float
    delay_p95_us: float
    data_frames: int
    """With repetitions."""
    retransmissions: int
    control_frames: int
    control_bytes: int
    """Of MPDUs; of one run."""


class DsdvFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of DSDV."""

    idle: tuple[DsdvIdle, ...]
    load: DsdvLoad


@cache
def figures() -> Figures:
    """The reference figures."""
    return msgspec.json.decode(_bytes("figures.json"), type=Figures)


@cache
def positions() -> tuple[tuple[float, float], ...]:
    """The 100 nodes of all sets but the chain and the link, in 400 by 200 metres."""
    return _places("positions.csv")


def sends(load: Load) -> list[RawSend]:
    """The sends behind a load's figures."""
    return _sends(f"{load.set}_{load.per_second}.csv.gz")


@cache
def dsdv() -> DsdvFigures:
    """The reference figures of DSDV (R3)."""
    return msgspec.json.decode(_bytes("dsdv.json"), type=DsdvFigures)


def dsdv_positions(nodes: int) -> tuple[tuple[float, float], ...]:
    """So many nodes as dense as the 196 in 560 by 280 metres: the same places, drawn together."""
    scale = (nodes / 196) ** 0.5
    return tuple((x * scale, y * scale) for x, y in _places("positions_196.csv")[:nodes])


def dsdv_sends() -> list[RawSend]:
    """The sends behind the figures of DSDV with something to carry."""
    return _sends("d_dsdv_load.csv.gz")


def _places(file: str) -> tuple[tuple[float, float], ...]:
    rows = csv.DictReader(_bytes(file).decode().splitlines())
    return tuple((float(row["x"]), float(row["y"])) for row in rows)


def _sends(file: str) -> list[RawSend]:
    text = gzip.decompress(_bytes(file)).decode()
    found: list[RawSend] = []
    at_us = 0
    for number, line in enumerate(text.splitlines()[1:]):
        after_us, source, to = map(int, line.split(","))
        at_us += after_us
        found.append(RawSend(number, at_us, source, to, PAYLOAD_BYTES))
    return found


def _bytes(name: str) -> bytes:
    return (files("thyme.sim") / "reference" / name).read_bytes()
