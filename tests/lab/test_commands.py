"""thyme lab, without starting one: parsing of options, and error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from thyme.cli import main
from thyme.cli.lab import parse_area, parse_share
from thyme.model.errors import OptionError


def test_areas_and_losses_are_read() -> None:
    assert parse_area("120x80") == (120, 80)
    assert parse_area("12.5x8") == (12.5, 8)
    assert parse_share("5%") == pytest.approx(0.05)
    assert parse_share("0.05") == pytest.approx(0.05)


@pytest.mark.parametrize("text", ["", "120", "120x", "axb", "1x2x3"])
def test_what_is_no_area_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="120x80"):
        parse_area(text)


@pytest.mark.parametrize("text", ["", "%", "much"])
def test_what_is_no_loss_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="5%"):
        parse_share(text)


def test_where_no_lab_is_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "status", "--dir", str(tmp_path)]) == 1
    assert main(["lab", "down", "--dir", str(tmp_path)]) == 0
    assert capsys.readouterr().err == "no lab is up\n" * 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nodes", "0"], "1 to 250 nodes"),
        (["--loss", "100%"], "below 100%"),
        (["--nodes", "3", "--range", "10"], "out of range"),
        (["--area", "wide"], "written 120x80"),
        (["--stations", "2", "--nodes", "0"], "1 to 250 nodes"),
    ],
)
def test_a_lab_that_cannot_be_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["lab", "up", "--dir", str(tmp_path), *options]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
