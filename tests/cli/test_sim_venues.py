"""thyme sim run --substrate infra: venues with base stations, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Thyme
from tests.substrates.infra.test_config_file import MINIMAL


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--scenario", "crash"], "'crash' is not for infra; there is static, mobile or outage"),
        (["--failing", "0.5"], "--failing is for outage"),
        (["--speed", "2"], "--speed is for mobile"),
        (["--stations", "-1"], "stations: from 0 to 100"),
        (["--scenario", "mobile"], "nobody can walk to another one"),
        (["--area", "500x500"], "its diagonal is at most 100 m"),
        (["--station-config", "nowhere.toml"], "nowhere.toml"),
        (["--gap", "-100"], "gap: from -60"),
        (["--wire-rate", "0"], "a bandwidth above 0"),
        (["--wire-latency", "nan"], "--wire-latency is a number, not nan"),
        (["--wire-loss", "1"], "a loss from 0 to 1"),
    ],
)
def test_s11_options_that_do_not_fit_are_refused(
    thyme: Thyme, options: list[str], words: str
) -> None:
    result = thyme("sim", "run", "--substrate", "infra", "--nodes", "4", *options)

    assert result.status == 2
    assert words in result.err


def test_stations_are_for_infra_only(thyme: Thyme) -> None:
    result = thyme("sim", "run", "--substrate", "dcs", "--nodes", "4", "--stations", "2")

    assert result.status == 2
    assert "--stations" in result.err


def test_i28_a_bad_configuration_names_file_and_key(thyme: Thyme, tmp_path: Path) -> None:
    path = tmp_path / "north.toml"
    path.write_text(MINIMAL + "[popularity]\nitem_max = 3\n")
    result = thyme("sim", "run", "--substrate", "infra", "--station-config", str(path))

    assert result.status == 2
    assert "north.toml: popularity.item_max: unknown key; did you mean popularity.items_max?" in (
        result.err
    )


def test_the_json_has_stations_and_uses_the_configuration(thyme: Thyme, tmp_path: Path) -> None:
    path = tmp_path / "north.toml"
    path.write_text(MINIMAL + "[caches]\nlocal_popularity_size = 7\n")
    options = ["--nodes", "4", "--stations", "2", "--trace", "lecture", "--json"]
    wires = ["--wire-latency", "40", "--wire-rate", "10", "--wire-loss", "0.01", "--gap", "200"]
    options += [*wires, "--station-config", str(path)]
    result = thyme("sim", "run", "--substrate", "infra", *options)

    assert result.status == 0, result.err
    found = json.loads(result.out)
    assert [station["is_up"] for station in found["stations"]] == [True, True]
    assert found["stations"][0]["caches"]["local_popularity"]["capacity"] == 7
    assert found["notifications"]["spurious"] == 0
    assert found["scenario"]["wires"] == {
        "latency_us": 40_000, "bits_per_s": 10_000_000, "loss": 0.01,
    }  # fmt: skip
    assert found["scenario"]["gap_m"] == 200.0


def test_the_summary_shows_each_station(thyme: Thyme) -> None:
    result = thyme("sim", "run", "--substrate", "infra", "--nodes", "4", "--trace", "lecture")

    assert result.status == 0, result.err
    assert "station 0004: " in result.out
    assert "notification, own venue" in result.out
