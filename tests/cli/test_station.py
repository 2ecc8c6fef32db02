"""thyme station: what it refuses, in one line that names the key or the option (I28)."""

from __future__ import annotations

from pathlib import Path

import pytest

from thyme.cli import main

pytest.importorskip("nacl", reason="live stations need the extra `live`")
GOOD = """
[station]
name = "north"
address = "127.0.0.1"
mobile_port = 9500
wired_port = 9501
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "station.name: missing; it is the station's name"),
        (GOOD + "[caches]\nlocal_popularty_size = 1", "did you mean caches.local_popularity_size?"),
        (GOOD.replace("9501", "9500"), "station.wired_port: the same as station.mobile_port"),
        (GOOD.replace("127.0.0.1", "::1"), "station.address: live stations need an IPv4 address"),
        (GOOD.replace("127.0.0.1", "192.0.2.1"), "no interface here has the address 192.0.2.1"),
        (GOOD + "[[others]]\nname = 'south'", "others[0].address: missing"),
        (GOOD + "[sharing]\nreply_window_ms = 0", "sharing.reply_window_ms: from 0.001 to"),
    ],
)
def test_i28_a_bad_file_ends_the_command_with_the_key_that_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    config = tmp_path / "north.toml"
    config.write_text(text)

    assert main(["station", "--config", str(config), "--data", str(tmp_path / "data")]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--config FILE"),
        (["--config", "nowhere.toml"], "nowhere.toml: No such file"),
        (["--print-id", "--memory"], "another id at each start"),
    ],
)
def test_bad_options_are_refused(
    capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["station", *options]) == 2
    assert said in capsys.readouterr().err


def test_the_id_of_a_station_stays_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert main(["station", "--print-id", "--data", str(tmp_path)]) == 0
    first, second = capsys.readouterr().out.split()

    assert first == second
    assert len(bytes.fromhex(first)) == 16


def test_a_node_refuses_a_station_id_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["node", "--world", "hall", "--substrate", "infra", "--memory"]
    assert main([*command, "--station", "north"]) == 2
    assert "--station takes the id of a station" in capsys.readouterr().err
    assert main(["node", "--world", "w", "--substrate", "ls", "--station", 32 * "a"]) == 2
    assert "only nodes of infra worlds use stations" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--stations", "21"], "0 to 20 stations"),
        (["--stations", "2", "--substrate", "dcs"], "use --substrate infra"),
        (["--stations", "2", "--range", "9"], "leave out --range"),
        (["--stations", "2", "--namespaces"], "leave out --namespaces"),
    ],
)
def test_a_lab_with_stations_that_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["lab", "up", "--dir", str(tmp_path), *options]) == 2
    assert said in capsys.readouterr().err
