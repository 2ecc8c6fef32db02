"""The warehouse: a folder that stores the tables of each stage and their provenance.

A stage is a folder of tables (folders of a few Parquet files) with a `manifest.json`: configuration
with seeds, fingerprints of the inputs, versions, row counts. A stage is built as a draft in a
hidden folder, its manifest last, and renamed into place atomically, so an unfinished stage is never
taken for a finished one. A stage with the same configuration and inputs is not built again.

    warehouse = Warehouse("w")
    build = lambda draft: draft.write("posts", frame)
    posts = warehouse.get_or_build("posts", {"seed": 1}, {}, build)
    posts.row_count("posts"), posts.table_path("posts"), posts.fingerprint, posts.built_now

`inputs` maps the name of each input to its fingerprint: another stage's `fingerprint`, or
`files_fingerprint`. All Spark workers need access to the folder.
Clause: P10.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import msgspec

from thyme.model.errors import ThymeError, safe_repr
from thyme.traces.files import FilePath, InputFileError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MANIFEST = "manifest.json"
LAYOUT_VERSION = 1
"""Version of the layout; stages of another version are built again."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_VERSIONS_OF = ("thyme", "pyspark", "pyarrow", "pandas")
_READ_BYTES = 1 << 20


class WarehouseError(ThymeError):
    """The warehouse is missing, not writable or full, or a stage is missing."""

    code = "bad_warehouse"


class TableFacts(msgspec.Struct, frozen=True):
    """Size of a table."""

    rows: int
    files: int
    bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The provenance of a stage: configuration, inputs, versions and table sizes."""

    stage: str
    layout: int
    fingerprint: str
    config: dict[str, Any]
    inputs: dict[str, str]
    versions: dict[str, str]
    tables: dict[str, TableFacts]
    notes: dict[str, Any]
    """Other facts about the stage, such as quarantined rows by reason."""


class Stage(msgspec.Struct, frozen=True):
    """A finished stage."""

    folder: Path
    manifest: Manifest
    built_now: bool = False
    """Whether this call built the stage rather than found it."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint that a stage built from this one lists among its inputs."""
        return self.manifest.fingerprint

    def table_path(self, name: str) -> str:
        """The path of a table, for `spark.read.schema(…).parquet(…)`."""
        self._table_facts(name)
        return str(self.folder / name)

    def row_count(self, name: str) -> int:
        """The number of rows of a table."""
        return self._table_facts(name).rows

    def _table_facts(self, name: str) -> TableFacts:
        if name not in self.manifest.tables:
            known = ", ".join(self.manifest.tables) or "none"
            raise WarehouseError(f"{self.folder} has no table {name}; its tables: {known}")
        return self.manifest.tables[name]


class Draft:
    """A stage under construction: add frames by `write`, files in `path`, facts by `add_notes`."""

    def __init__(self, folder: Path, parts: Path) -> None:
        self._folder = folder
        self._parts = parts
        self.notes: dict[str, Any] = {}

    @property
    def parts(self) -> Path:
        """A folder for partial results of a long build. It survives an interrupted build, for the
        next one with the same configuration and inputs, and is removed with the finished stage."""
        self._parts.mkdir(parents=True, exist_ok=True)
        return self._parts

    def path(self, table: str) -> Path:
        """The folder of a table, for callers that write its Parquet files themselves."""
        _check_name(table)
        path = self._folder / table
        path.mkdir(exist_ok=True)
        return path

    def write(
        self, table: str, frame: DataFrame, order: Sequence[str] = (), files: int | None = None
    ) -> None:
        """Writes a table in few files, globally sorted by the columns of `order` if given."""
        if order:
            spread = (files, *order) if files else order
            frame = frame.repartitionByRange(*spread).sortWithinPartitions(*order)
        elif files:
            frame = frame.coalesce(files)
        path = self._folder / table
        _check_name(table)
        with _translate_disk_errors(self._folder.parent, any_os_error=False):
            frame.write.mode("error").parquet(str(path))

    def add_notes(self, **facts: Any) -> None:
        """Adds facts, as JSON values, to the notes of the manifest."""
        self.notes |= facts


class Warehouse:
    """A folder of stages."""

    def __init__(self, path: FilePath) -> None:
        self.path = Path(path)

    def get_or_build(
        self,
        name: str,
        config: Mapping[str, Any],
        inputs: Mapping[str, str],
        build: Callable[[Draft], None],
    ) -> Stage:
        """Returns the stage for this name, configuration and inputs; builds it if it is missing.

        A finished build replaces a stage of the same name with other configuration or inputs.
        """
        _check_name(name)
        wanted = stage_fingerprint(name, config, inputs)
        with self._lock(name):
            if (found := self._find(name)) is not None and found.fingerprint == wanted:
                return found
            draft = Draft(self.path / f".{name}.draft", self.path / f".{name}.parts.{wanted[:16]}")
            with _translate_disk_errors(self.path):
                _make_empty(draft._folder)
                try:
                    with _translate_disk_errors(self.path, any_os_error=False):
                        build(draft)
                    manifest = _make_manifest(name, wanted, config, inputs, draft)
                    _write_manifest(draft._folder / MANIFEST, manifest)
                    self._replace_stage(name, draft._folder)
                finally:
                    shutil.rmtree(draft._folder, ignore_errors=True)
                for parts in self.path.glob(f".{name}.parts.*"):
                    shutil.rmtree(parts, ignore_errors=True)
        return Stage(self.path / name, manifest, built_now=True)

    def open_stage(self, name: str) -> Stage:
        """Opens a finished stage; an error if there is none of this name."""
        if (found := self._find(name)) is None:
            there = ", ".join(self.stage_names()) or "none"
            raise WarehouseError(f"{self.path} has no finished stage {name}; its stages: {there}")
        return found

    def stage_names(self) -> list[str]:
        """The names of all finished stages."""
        if not self.path.is_dir():
            return []
        names = (path.name for path in self.path.iterdir() if _NAME.fullmatch(path.name))
        return sorted(name for name in names if self._find(name) is not None)

    def _find(self, name: str) -> Stage | None:
        try:
            data = (self.path / name / MANIFEST).read_bytes()
            return Stage(self.path / name, msgspec.json.decode(data, type=Manifest))
        except (OSError, msgspec.DecodeError):
            return None

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """Locks a stage: one process builds it at a time; older leftovers can be removed."""
        with _translate_disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / f".{name}.lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise WarehouseError(
                    f"{self.path / name} is being made by another process; wait until it is done"
                ) from error
            yield

    def _replace_stage(self, name: str, draft: Path) -> None:
        place = self.path / name
        old = self.path / f".{name}.old.{token_hex(4)}"
        if place.exists():
            place.rename(old)
        draft.rename(place)
        for litter in self.path.glob(f".{name}.old.*"):
            shutil.rmtree(litter, ignore_errors=True)


def stage_fingerprint(name: str, config: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Hash of everything that a stage depends on, as 32 hexadecimal digits."""
    parts = [name, LAYOUT_VERSION, _package_versions()["thyme"], dict(config), dict(inputs)]
    data = msgspec.json.encode(parts, order="deterministic")
    return blake2b(data, digest_size=16).hexdigest()


def files_fingerprint(paths: Iterable[FilePath]) -> str:
    """Hash of the contents of files; independent of their paths."""
    whole = blake2b(digest_size=16)
    for path in paths:
        one = blake2b(digest_size=16)
        try:
            with open(path, "rb") as file:
                while data := file.read(_READ_BYTES):
                    one.update(data)
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
            raise InputFileError(os.fspath(path), problem) from error
        whole.update(one.digest())
    return whole.hexdigest()


def _make_manifest(
    name: str, fingerprint: str, config: Mapping[str, Any], inputs: Mapping[str, str], draft: Draft
) -> Manifest:
    folders = sorted(path for path in draft._folder.iterdir() if path.is_dir())
    return Manifest(
        stage=name,
        layout=LAYOUT_VERSION,
        fingerprint=fingerprint,
        config=dict(config),
        inputs=dict(inputs),
        versions=_package_versions(),
        tables={folder.name: _measure_table(folder) for folder in folders},
        notes=draft.notes,
    )


def _measure_table(folder: Path) -> TableFacts:
    """Counts rows, files and bytes in the Parquet files themselves."""
    from pyarrow import parquet

    files = sorted(folder.rglob("*.parquet"))
    rows = sum(parquet.read_metadata(file).num_rows for file in files)
    return TableFacts(rows, len(files), sum(file.stat().st_size for file in files))


def _package_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _VERSIONS_OF:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def _write_manifest(path: Path, manifest: Manifest) -> None:
    with path.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _make_empty(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise WarehouseError(
            f"names of stages and tables have small letters, digits, - and _, not {safe_repr(name)}"
        )


_DISK_MESSAGES = (
    "No space left on device",
    "Disk quota exceeded",
    "Permission denied",
    "Read-only file system",
)
"""Messages of the operating system, which Java repeats."""


@contextmanager
def _translate_disk_errors(path: Path, *, any_os_error: bool = True) -> Iterator[None]:
    """Translates disk errors, from this process or from a Spark task, into a WarehouseError.

    Without `any_os_error` (code of the caller or of Spark), only errors of the whole disk count.
    """
    try:
        yield
    except ThymeError:
        raise
    except Exception as error:
        if any_os_error and isinstance(error, OSError):
            problem = error.strerror or str(error)
        elif found := [text for text in _DISK_MESSAGES if text in str(error)]:
            problem = found[0]
        else:
            raise
        raise WarehouseError(f"{path} cannot be written: {problem}") from error
