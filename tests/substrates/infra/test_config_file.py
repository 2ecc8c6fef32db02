"""I28: the configuration file of a station, its defaults, and the errors that name a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from thyme.model.ids import NodeId
from thyme.substrates.infra.caches.config import CachePolicy
from thyme.substrates.infra.config_file import (
    Endpoint,
    OtherStation,
    StationConfig,
    parse_station_config,
    reference_table,
)
from thyme.substrates.infra.station.settings import StationConfigError, StationSettings

MINIMAL = """
[station]
name = "north"
address = "192.168.1.67"
mobile_port = 9500
wired_port = 9501
"""
OTHER = """
[[others]]
name = "{name}"
address = "2.2.2.3"
port = 1
id = "{id}"
"""
INFRA_PAGE = Path(__file__).parents[3] / "docs" / "infra.md"


def test_i28_a_minimal_file_has_the_defaults_of_the_settings() -> None:
    assert parse_station_config(MINIMAL) == StationConfig(
        name="north",
        mobile=Endpoint("192.168.1.67", 9500),
        wired=Endpoint("192.168.1.67", 9501),
        discovery=Endpoint("239.84.72.89", 8472),
        others={},
        settings=StationSettings(cell_data_period_us=10_000_000),
    )


def test_i28_values_reach_the_settings_and_durations_are_milliseconds() -> None:
    config = parse_station_config(
        MINIMAL
        + """
[caches]
policy = "s3-fifo"
local_popularity_size = 7
[popularity]
decision_period_ms = 30000
ranking = false
decay = 1
[sharing]
reply_window_ms = 5000
[mobile_addresses]
size = 0
ttl_ms = 300000
[worlds]
cells_min = 9
[[others]]
name = "south"
address = "2.2.2.3"
port = 9502
id = "0123456789abcdef0123456789ABCDEF"
"""
    )

    settings = config.settings
    assert settings.caches.policy is CachePolicy.S3_FIFO
    assert settings.caches.local_popularity_size == 7
    assert (settings.popularity.decision_period_us, settings.popularity.ranking) == (
        30_000_000,
        False,
    )
    assert settings.sharing.reply_window_us == 5_000_000
    assert (settings.mobile_addresses, settings.mobile_address_ttl_us) == (0, 300_000_000)
    assert settings.cells_min == 9
    station_id = NodeId(bytes.fromhex(2 * "0123456789abcdef"))
    assert config.others == {"south": OtherStation(Endpoint("2.2.2.3", 9502), station_id)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[station]\nname = "north"', "station.address: missing"),
        (MINIMAL + "mobil_port = 1", "station.mobil_port: unknown key; did you mean station.mob"),
        (MINIMAL + "[chaches]\npolicy = 1", "chaches.policy: unknown key; did you mean caches.pol"),
        ("colour = 1\n" + MINIMAL, "colour: unknown key"),
        (MINIMAL.replace("9500", '"9500"'), "station.mobile_port: a whole number, not '9500'"),
        (MINIMAL.replace("9500", "true"), "station.mobile_port: a whole number, not True"),
        (MINIMAL.replace("9500", "99999"), "station.mobile_port: a port is from 1 to 65535"),
        (MINIMAL.replace("9500", "9501"), "station.wired_port: the same as"),
        (MINIMAL.replace("192.168.1.67", "here"), "'here' is not an IP address"),
        (MINIMAL + '[discovery]\naddress = "1.2.3.4"', "discovery.address: 1.2.3.4 is not a mul"),
        (MINIMAL + '[caches]\npolicy = "lru"', "caches.policy: w-tinylfu or s3-fifo, not 'lru'"),
        (MINIMAL + "[caches]\nglobal_data_size = -1", "caches.global_data_size must not be neg"),
        (MINIMAL + "[popularity]\nbatch_inserts = 0", "popularity.batch_inserts: from 1 to 1000"),
        (MINIMAL + "[popularity]\ndecay = 1.5", "popularity.decay: from 0 to 1, not 1.5"),
        (MINIMAL + "[worlds]\ncells_min = 9\ncells_max = 8", "worlds.cells_max: from 9"),
        (MINIMAL + '[[others]]\nname = "south"', "others[0].address: missing"),
        (MINIMAL + '[[others]]\nnaem = "south"', "others[0].naem: unknown key"),
        (
            MINIMAL + OTHER.format(name="north", id=32 * "a"),
            "others: north is the name of this station",
        ),
        (MINIMAL + OTHER.format(name="south", id="abc"), "others[0].id: 32 hexadecimal digits"),
        (
            MINIMAL
            + OTHER.format(name="south", id=32 * "a")
            + OTHER.format(name="east", id=32 * "a"),
            "others[1].id: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa is there twice",
        ),
        (
            MINIMAL + "[worlds]\ncell_data_period_ms = 999",
            "worlds.cell_data_period_ms: from 1000 to 86400000, not 999",
        ),
        (MINIMAL + "[", "not valid TOML"),
    ],
)
def test_i28_a_bad_file_is_refused_with_the_key_that_is_wrong(text: str, words: str) -> None:
    with pytest.raises(StationConfigError) as caught:
        parse_station_config(text, "north.toml")

    assert str(caught.value).startswith("north.toml: ")
    assert words in str(caught.value)


def test_i28_the_reference_in_the_documents_is_that_of_the_code() -> None:
    assert reference_table() in INFRA_PAGE.read_text("utf-8")
