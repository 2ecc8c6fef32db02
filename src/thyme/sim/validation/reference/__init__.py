"""Reference: measurements of ns-3.44, with which the simulated radio and DSDV are compared.

Entry points: `figures`, `positions`, `sends` and their DSDV counterparts. README.md in this folder
describes the measurements. The sends (`*.csv.gz`) are in a checkout and in the source distribution,
and not in wheels. `selftest` makes the comparison.
Clauses: S3, R3.
"""

from __future__ import annotations

import csv
import gzip
from functools import cache
from importlib.resources import files

import msgspec

from thyme.distribution import DISTRIBUTION_NAME, VERSION
from thyme.model.errors import InputError
from thyme.sim.validation.raw_replay import RawSend

PAYLOAD_BYTES = 300
"""The payload of every send in the sets `a_bcast`, `b_ucast`, `d_dsdv_load`, `e_replies`."""


class MissingReferenceError(InputError):
    """A file of the reference is not installed."""

    code = "no_reference"


class LoadFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Random sends at a fixed rate among 100 nodes; means of five runs."""

    set: str
    per_second: int
    sends: int
    receivers: float
    """Receivers per send; for unicasts, the share that arrived."""
    delay_mean_us: float
    delay_p95_us: float
    delay_p99_us: float
    retransmissions: float
    exceeded: float


class ChainFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Sends from the first of five nodes in a line, 90 m apart, to the last; three runs."""

    profile: str
    """`anchor`, or `cca_at_decode`: carrier sense only of frames that can be decoded."""
    payload_bytes: int
    per_second: int
    goodput_per_second: float
    delay_mean_us: float
    delay_p95_us: float
    data_frames: int
    retransmissions: float


class LinkFigures(msgspec.Struct, frozen=True, array_like=True):
    """The share of 1,000 sends that arrived at a distance, without interference."""

    distance_m: int
    bcast50: float
    bcast300: float
    bcast1000: float
    bcast1472: float
    unicast300: float
    unicast300_transmissions: float
    """Transmissions per send."""


class ReplyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """50 broadcasts, each answered by all receivers after up to `jitter_us`; one run."""

    reply: str
    """`unicast` (to the broadcaster) or `broadcast`."""
    jitter_us: int
    replies: int
    receptions: int
    delay_mean_us: float
    retransmissions: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of the radio."""

    questioners: tuple[int, ...]
    """The nodes that send the broadcasts of the replies, one every two seconds."""
    loads: tuple[LoadFigures, ...]
    chains: tuple[ChainFigures, ...]
    links: tuple[LinkFigures, ...]
    replies: tuple[ReplyFigures, ...]


class DsdvIdle(msgspec.Struct, frozen=True, kw_only=True):
    """DSDV without data traffic, for the first 120 s; one run."""

    nodes: int
    frames: float
    """Frames per node and second."""
    bytes: float
    """Bytes of MPDUs per node and second."""


class DsdvLoad(msgspec.Struct, frozen=True, kw_only=True):
    """50 unicasts per second among 100 nodes over DSDV, with ARP caches filled; three runs."""

    sends: int
    delivered: float
    """The share of sends that arrived."""
    hops_mean: float
    delay_p50_us: float
    delay_p95_us: float
    data_frames: int
    """Data frames, retransmissions included."""
    retransmissions: int
    control_frames: int
    control_bytes: int
    """Bytes of MPDUs, in one run."""


class DsdvFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of DSDV."""

    idle: tuple[DsdvIdle, ...]
    load: DsdvLoad


@cache
def figures() -> Figures:
    """The measurements of the radio."""
    return msgspec.json.decode(_read_bytes("figures.json"), type=Figures)


@cache
def positions() -> tuple[tuple[float, float], ...]:
    """The positions of 100 nodes in 400 by 200 metres: of all sets except chains and links."""
    return _read_positions("positions.csv")


def sends(load: LoadFigures) -> list[RawSend]:
    """The sends of a load."""
    return _read_sends(_sends_file(load))


def require_sends() -> None:
    """Raises `MissingReferenceError` if the sends of the loads are not installed."""
    for load in figures().loads:
        _read_bytes(_sends_file(load))


@cache
def dsdv_figures() -> DsdvFigures:
    """The measurements of DSDV (R3)."""
    return msgspec.json.decode(_read_bytes("dsdv.json"), type=DsdvFigures)


def dsdv_positions(nodes: int) -> tuple[tuple[float, float], ...]:
    """The positions of the first `nodes` of 196 nodes, scaled to keep the density of 196 nodes in
    560 by 280 metres."""
    scale = (nodes / 196) ** 0.5
    return tuple((x * scale, y * scale) for x, y in _read_positions("positions_196.csv")[:nodes])


def dsdv_sends() -> list[RawSend]:
    """The sends of the DSDV measurements with data traffic."""
    return _read_sends("d_dsdv_load.csv.gz")


def _read_positions(file: str) -> tuple[tuple[float, float], ...]:
    rows = csv.DictReader(_read_bytes(file).decode().splitlines())
    return tuple((float(row["x"]), float(row["y"])) for row in rows)


def _sends_file(load: LoadFigures) -> str:
    return f"{load.set}_{load.per_second}.csv.gz"


def _read_sends(file: str) -> list[RawSend]:
    text = gzip.decompress(_read_bytes(file)).decode()
    found: list[RawSend] = []
    at_us = 0
    for number, line in enumerate(text.splitlines()[1:]):
        after_us, source, to = map(int, line.split(","))
        at_us += after_us
        found.append(RawSend(number, at_us, source, to, PAYLOAD_BYTES))
    return found


def _read_bytes(name: str) -> bytes:
    try:
        return (files(__name__) / name).read_bytes()
    except FileNotFoundError:
        archive = f"{DISTRIBUTION_NAME.replace('-', '_')}-{VERSION}.tar.gz"
        raise MissingReferenceError(
            f"the sends of ns-3 ({name}) are not in the wheel: in a checkout of Thyme, or in the "
            f"unpacked source distribution {archive}, use ./run thyme sim radio --selftest"
        ) from None
