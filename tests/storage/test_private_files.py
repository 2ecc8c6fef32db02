"""Files of a node are readable by its user alone (B5)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from thyme.live.keys.identity import load_or_create_identity
from thyme.storage.node_profile import world_file
from thyme.storage.private_files import make_private_directory
from thyme.storage.sqlite.store import SqliteStore


@pytest.fixture(autouse=True)
def lenient_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, str]:
    paths = [directory, *directory.iterdir()]
    return {path.name: f"{path.stat().st_mode & 0o777:o}" for path in paths}


def test_b5_another_user_can_read_neither_key_nor_store(tmp_path: Path) -> None:
    data = tmp_path / "data"
    load_or_create_identity(data)
    store = SqliteStore(world_file(data, "lisbon"))
    store.put_data("photo", b"secret")
    store.chunks.append_upload("upload", b"x" * 1_000)
    store.commit()

    open_to_others = {
        name: mode for name, mode in modes(data).items() if mode not in ("700", "600")
    }
    assert open_to_others == {}
    store.close()


def test_b5_what_an_earlier_version_left_open_is_closed_at_the_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    file = world_file(data, "lisbon")
    SqliteStore(file).close()
    data.chmod(0o755)
    file.chmod(0o644)

    SqliteStore(file).close()

    assert modes(data)["data"] == "700"
    assert modes(data)[file.name] == "600"


def test_a_directory_with_files_of_others_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "holiday.txt").write_text("of somebody else")

    make_private_directory(tmp_path, "node.key")

    assert modes(tmp_path)[tmp_path.name] == "755"
