"""The built files of the page: they are those of the sources, small, and in the wheel."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRONTEND = ROOT / "frontend"
ASSETS = ROOT / "src/thyme/gallery/web/assets"
MAP_ASSETS = ROOT / "src/thyme/map/assets"
COMPRESSED_BYTES_MAX = 200_000


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_built_files_are_those_of_the_sources(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    if not (FRONTEND / "node_modules/esbuild").exists():
        pytest.skip("the packages are not installed: npm ci in frontend/")
    built = {ASSETS: tmp_path / "gallery", MAP_ASSETS: tmp_path / "map"}
    command = ["node", "build.mjs", *map(str, built.values())]
    subprocess.run(command, cwd=FRONTEND, check=True, timeout=120)
    for assets, folder in built.items():
        assert contents(folder) == contents(assets)


@pytest.mark.parametrize("folder", [ASSETS, MAP_ASSETS], ids=["gallery", "map"])
def test_a_page_is_small_and_asks_nobody_else(folder: Path) -> None:
    files = contents(folder)
    assert sum(len(gzip.compress(data)) for data in files.values()) < COMPRESSED_BYTES_MAX
    for name, data in files.items():
        links = set(re.findall(rb"https?://[\w.]+", data))
        assert links <= {b"http://www.w3.org"}, name


def test_the_wheel_has_the_page(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    [wheel] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"thyme/gallery/web/assets/{name}" for name in contents(ASSETS)} <= names
    assert {f"thyme/map/assets/{name}" for name in contents(MAP_ASSETS)} <= names


@pytest.mark.parametrize("name", ["texts.ts", "map/map_texts.ts"])
def test_texts_of_both_languages_have_the_same_places_for_values(name: str) -> None:
    source = (FRONTEND / "src" / name).read_text("utf-8")
    tables = [dict(re.findall(r'^  (\w+): "(.*)",$', part, re.M)) for part in source.split("\n};")]
    english, portuguese = tables[0], tables[1]
    assert english.keys() == portuguese.keys()
    for name, text in english.items():
        assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", portuguese[name])), (
            name
        )


FOR_PROGRAMS = {
    *("bad_body", "bad_header", "bad_limit", "bad_mark", "bad_position", "bad_rights", "bad_view"),
    *("bad_type", "bad_version", "bad_range", "wrong_offset", "wrong_host", "wrong_origin"),
    *("too_long", "complete", "no_thumbnail"),
}
"""Codes of errors that only a wrong program meets."""


def test_every_error_that_people_meet_is_said_in_portuguese() -> None:
    source = (FRONTEND / "src/errors.ts").read_text("utf-8")
    said = set(re.findall(r'^  (\w+): "', source, re.M))
    web = [path.read_text("utf-8") for path in (ROOT / "src/thyme/gallery").rglob("*.py")]
    codes = {code for text in web for code in re.findall(r'RefusedError\(\s*\d+, "(\w+)"', text)}
    assert codes
    assert codes - said == FOR_PROGRAMS
