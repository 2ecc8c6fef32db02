"""Configuration file of a station: typed, complete, and strict.

Entry point: `parse_station_config`, which reads TOML text. Every parameter of V Table 4.1 has a
key, except the flag for a simulated environment, which the simulator does not need. A key that is
unknown, of the wrong type or out of range is refused with its name and, if it looks like a known
one, the nearest known one. `reference_table` is the reference in docs/infra.md.
Clauses: I28.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from string import hexdigits
from typing import Any

import msgspec

from thyme.model.errors import InputError, safe_repr
from thyme.model.ids import NodeId
from thyme.substrates.infra.caches.config import CachesConfig, CacheUnit
from thyme.substrates.infra.caches.policies.factory import CachePolicy
from thyme.substrates.infra.station.settings import (
    GlobalSettings,
    PopularitySettings,
    StationConfigError,
    StationSettings,
)

MS_US = 1_000
_PORT_MAX = 65_535


class Endpoint(msgspec.Struct, frozen=True):
    """An IP address and a port."""

    address: str
    port: int


class OtherStation(msgspec.Struct, frozen=True):
    """A station that this one exchanges needs and items with."""

    endpoint: Endpoint
    station_id: NodeId
    """The digest of its key, which `thyme station --print-id` prints."""


class StationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration file: the addresses of a station, the other stations, and the settings."""

    name: str
    mobile: Endpoint
    """Where mobile nodes reach the station."""
    wired: Endpoint
    """Where other stations reach it."""
    discovery: Endpoint
    """The multicast group of mobile nodes and their world probes (I2)."""
    others: dict[str, OtherStation]
    """The other stations by name."""
    settings: StationSettings


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the file: its type, its default, and the description for the documents."""

    kind: type
    default: object = None
    """None for a required key."""
    text: str
    choices: tuple[str, ...] = ()


_PAPER = StationSettings()
_C, _P, _G = _PAPER.caches, _PAPER.popularity, _PAPER.sharing


def _ms(duration_us: int) -> int:
    return duration_us // MS_US


KEYS: dict[str, _Key] = {
    "station.name": _Key(kind=str, text="the station's name, different for each station"),
    "station.address": _Key(kind=str, text="the station's own IP address"),
    "station.mobile_port": _Key(kind=int, text="port for messages of mobile nodes"),
    "station.wired_port": _Key(kind=int, text="port for messages of other stations"),
    "discovery.address": _Key(
        kind=str, default="239.84.72.89", text="multicast address of mobile nodes (I2)"
    ),
    "discovery.port": _Key(kind=int, default=8472, text="multicast port of mobile nodes"),
    "caches.policy": _Key(
        kind=str,
        default=_C.policy.value,
        choices=tuple(each.value for each in CachePolicy),
        text="eviction policy",
    ),
    "caches.unit": _Key(
        kind=str,
        default=_C.unit.value,
        choices=tuple(each.value for each in CacheUnit),
        text="unit of the cache sizes",
    ),
    "caches.local_popularity_size": _Key(
        kind=int, default=_C.local_popularity_size, text="size of the local popularity cache"
    ),
    "caches.prefetch_metadata_size": _Key(
        kind=int, default=_C.prefetch_metadata_size, text="prefetch cache: metadata"
    ),
    "caches.prefetch_data_size": _Key(
        kind=int, default=_C.prefetch_data_size, text="prefetch cache: data"
    ),
    "caches.global_metadata_size": _Key(
        kind=int, default=_C.global_metadata_size, text="global cache: metadata"
    ),
    "caches.global_data_size": _Key(
        kind=int, default=_C.global_data_size, text="global cache: data"
    ),
    "caches.max_puts_above_limit": _Key(
        kind=int,
        default=_C.max_puts_above_limit,
        text="puts over a full world after which the global cache is divided anew (I14)",
    ),
    "caches.world_size_min": _Key(
        kind=int, default=_C.world_size_min, text="smallest part of a cache for a world (I15)"
    ),
    "caches.part_change_min": _Key(
        kind=int, default=_C.part_change_min, text="smallest change of a part (B8)"
    ),
    "mobile_addresses.size": _Key(
        kind=int, default=_PAPER.mobile_addresses, text="entries of the address store (I25)"
    ),
    "mobile_addresses.ttl_ms": _Key(
        kind=int,
        default=_ms(_PAPER.mobile_address_ttl_us),
        text="how long a silent node stays in the address store",
    ),
    "sharing.needs_period_ms": _Key(
        kind=int, default=_ms(_G.needs_period_us), text="time between two messages of needs (I17)"
    ),
    "sharing.reply_window_ms": _Key(
        kind=int, default=_ms(_G.reply_window_us), text="length of a station's time slot (I20)"
    ),
    "sharing.consumption_notices": _Key(
        kind=bool,
        default=_G.consumption_notices,
        text="whether source stations are told of downloads (I19)",
    ),
    "sharing.consumed_ignore_cycles": _Key(
        kind=int,
        default=_G.consumed_ignore_cycles,
        text="answers that omit an item after it was consumed (I19)",
    ),
    "sharing.page_items_max": _Key(
        kind=int, default=_G.page_items_max, text="items in one message (B8)"
    ),
    "popularity.decision_period_ms": _Key(
        kind=int, default=_ms(_P.decision_period_us), text="length of a decision cycle (I9)"
    ),
    "popularity.items_max": _Key(
        kind=int, default=_P.items_max, text="items requested in one cycle (I9)"
    ),
    "popularity.active_window": _Key(
        kind=int,
        default=_P.active_window,
        text="cycles after which an item without downloads is not active (I9)",
    ),
    "popularity.batch_inserts": _Key(
        kind=int, default=_P.batch_inserts, text="batch inserts in one cycle (I10)"
    ),
    "popularity.locations_max": _Key(
        kind=int, default=_P.locations_max, text="replicas remembered for an item"
    ),
    "popularity.ranking": _Key(
        kind=bool, default=_P.ranking, text="whether items are ranked; without, all are requested"
    ),
    "popularity.decay": _Key(
        kind=float, default=_P.decay, text="what remains of a count after a cycle (B8)"
    ),
    "requests.mobile_timeout_ms": _Key(
        kind=int,
        default=_ms(_PAPER.mobile_timeout_us),
        text="time-out of requests to mobile nodes (I27)",
    ),
    "requests.station_timeout_ms": _Key(
        kind=int,
        default=_ms(_PAPER.station_timeout_us),
        text="time-out of requests to other stations (I27)",
    ),
    "requests.tries_max": _Key(kind=int, default=_PAPER.tries_max, text="tries of a request (I27)"),
    "requests.mobile_max": _Key(
        kind=int,
        default=_PAPER.mobile_requests_max,
        text="requests to mobile nodes under way at the same time",
    ),
    "requests.station_max": _Key(
        kind=int,
        default=_PAPER.station_requests_max,
        text="requests to other stations under way at the same time",
    ),
    "worlds.nodes_per_cell": _Key(
        kind=int, default=_PAPER.nodes_per_cell, text="mobile nodes for one more cell (I3)"
    ),
    "worlds.cells_min": _Key(kind=int, default=_PAPER.cells_min, text="fewest cells of a world"),
    "worlds.cells_max": _Key(kind=int, default=_PAPER.cells_max, text="most cells of a world"),
    "worlds.cell_data_period_ms": _Key(
        kind=int, default=10_000, text="time between two reports of a cell to the station (I7)"
    ),
}
"""All keys except the list of other stations, `[[others]]`."""
_OTHER_KEYS = {"name": str, "address": str, "port": int, "id": str}
_ID_DIGITS = 32


def parse_station_config(text: str, source: str = "station.toml") -> StationConfig:
    """Parses a configuration file; raises `StationConfigError` with the source and the key."""
    try:
        return _parse(text)
    except StationConfigError as error:
        raise StationConfigError(f"{source}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise StationConfigError(f"{source}: not valid TOML: {error}") from None


def _parse(text: str) -> StationConfig:
    document = tomllib.loads(text)
    others = document.pop("others", [])
    values = _read_values(document)
    address = str(values["station.address"])
    config = StationConfig(
        name=str(values["station.name"]),
        mobile=_endpoint("station.mobile_port", address, values["station.mobile_port"]),
        wired=_endpoint("station.wired_port", address, values["station.wired_port"]),
        discovery=_endpoint(
            "discovery.port", str(values["discovery.address"]), values["discovery.port"]
        ),
        others=_read_others(others),
        settings=_make_settings(values),
    )
    if not ip_address(config.discovery.address).is_multicast:
        raise StationConfigError(
            f"discovery.address: {config.discovery.address} is not a multicast address"
        )
    if config.mobile.port == config.wired.port:
        raise StationConfigError("station.wired_port: the same as station.mobile_port")
    if config.name in config.others:
        raise StationConfigError(f"others: {config.name} is the name of this station")
    return config


def _read_values(document: Mapping[str, Any]) -> dict[str, Any]:
    """The value of each key, checked for its type."""
    given: dict[str, Any] = {}
    for table, entries in document.items():
        if not isinstance(entries, dict):
            raise _unknown(table)
        for name, value in entries.items():
            key = f"{table}.{name}"
            if key not in KEYS:
                raise _unknown(key)
            given[key] = _check_value(key, KEYS[key], value)
    for key, spec in KEYS.items():
        if key not in given and spec.default is None:
            raise StationConfigError(f"{key}: missing; it is {spec.text}")
    return {key: given.get(key, spec.default) for key, spec in KEYS.items()}


def _check_value(key: str, spec: _Key, value: object) -> object:
    if spec.kind is float and type(value) is int:
        value = float(value)
    if type(value) is not spec.kind:
        words = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
        raise StationConfigError(f"{key}: {words[spec.kind]}, not {safe_repr(value)}")
    if spec.choices and value not in spec.choices:
        choices = " or ".join(spec.choices)
        raise StationConfigError(f"{key}: {choices}, not {safe_repr(value)}")
    return value


def _unknown(key: str) -> StationConfigError:
    near = get_close_matches(key, KEYS, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else f"; known keys: {', '.join(KEYS)}"
    return StationConfigError(f"{key}: unknown key{hint}")


def _endpoint(key: str, address: str, port: object) -> Endpoint:
    try:
        ip_address(address)
    except ValueError:
        raise StationConfigError(f"{key}: {safe_repr(address)} is not an IP address") from None
    if not isinstance(port, int) or not 1 <= port <= _PORT_MAX:
        raise StationConfigError(f"{key}: a port is from 1 to {_PORT_MAX}, not {port}")
    return Endpoint(address, port)


def _read_others(others: object) -> dict[str, OtherStation]:
    if not isinstance(others, list):
        raise StationConfigError("others: a list of tables, each [[others]]")
    found: dict[str, OtherStation] = {}
    for number, other in enumerate(others):
        place = f"others[{number}]"
        if not isinstance(other, dict):
            raise StationConfigError(f"{place}: a table with {', '.join(_OTHER_KEYS)}")
        for name in other:
            if name not in _OTHER_KEYS:
                known = ", ".join(_OTHER_KEYS)
                raise StationConfigError(f"{place}.{name}: unknown key; known keys: {known}")
        for name, kind in _OTHER_KEYS.items():
            if type(other.get(name)) is not kind:
                raise StationConfigError(f"{place}.{name}: missing, or not of type {kind.__name__}")
        if other["name"] in found:
            raise StationConfigError(f"{place}.name: {safe_repr(other['name'])} is there twice")
        endpoint = _endpoint(f"{place}.port", other["address"], other["port"])
        station_id = _parse_id(f"{place}.id", other["id"])
        if any(station_id == known.station_id for known in found.values()):
            raise StationConfigError(f"{place}.id: {other['id']} is there twice")
        found[other["name"]] = OtherStation(endpoint, station_id)
    return found


def _parse_id(key: str, text: str) -> NodeId:
    if len(text) != _ID_DIGITS or not all(digit in hexdigits for digit in text):
        raise StationConfigError(
            f"{key}: {_ID_DIGITS} hexadecimal digits, as thyme station --print-id prints them, "
            f"not {safe_repr(text)}"
        )
    return NodeId(bytes.fromhex(text))


def _make_settings(values: Mapping[str, Any]) -> StationSettings:
    def of(table: str) -> dict[str, Any]:
        """The settings of a table; durations in microseconds."""
        found: dict[str, Any] = {}
        for key, value in values.items():
            of_table, name = key.split(".")
            if of_table == table:
                is_ms = name.endswith("_ms")
                found[name.removesuffix("_ms") + "_us" if is_ms else name] = (
                    value * MS_US if is_ms else value
                )
        return found

    caches, requests = of("caches"), of("requests")
    caches |= {"policy": CachePolicy(caches["policy"]), "unit": CacheUnit(caches["unit"])}
    addresses = of("mobile_addresses")
    try:
        return StationSettings(
            caches=CachesConfig(**caches),
            popularity=PopularitySettings(**of("popularity")),
            sharing=GlobalSettings(**of("sharing")),
            mobile_addresses=addresses["size"],
            mobile_address_ttl_us=addresses["ttl_us"],
            mobile_timeout_us=requests["mobile_timeout_us"],
            station_timeout_us=requests["station_timeout_us"],
            tries_max=requests["tries_max"],
            mobile_requests_max=requests["mobile_max"],
            station_requests_max=requests["station_max"],
            **of("worlds"),
        )
    except StationConfigError:
        raise
    except InputError as error:
        raise StationConfigError(f"caches.{error}") from None


def reference_table() -> str:
    """The keys as a table in Markdown, for docs/infra.md."""
    rows = ["| key | default | meaning |", "| --- | --- | --- |"]
    for key, spec in KEYS.items():
        default = "required" if spec.default is None else f"`{_toml(spec.default)}`"
        choices = f" ({', '.join(spec.choices)})" if spec.choices else ""
        rows.append(f"| `{key}` | {default} | {spec.text}{choices} |")
    return "\n".join(rows)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
