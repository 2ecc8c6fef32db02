"""The warehouse: a folder that keeps what each stage made, and knows what it was made from.

A stage is a folder of tables (folders of a few Parquet files) with a `manifest.json`: configuration
with its seeds, fingerprints of the inputs, versions, row counts. It is made as a draft beside its
place, the manifest last, and moved there in one step, so a half-written stage is never taken for
done. A stage that is there for the same configuration and inputs is not made again.

    warehouse = Warehouse("w")
    posts = warehouse.stage("posts", {"seed": 1}, {}, lambda draft: draft.write("posts", frame))
    posts.rows("posts"), posts.table("posts"), posts.fingerprint, posts.made_now

`inputs` names what the stage was made from and gives the fingerprint of each: another stage's
`fingerprint`, or `fingerprint_of_files`. The folder must be one that all workers see.
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

from thyme.model.errors import ThymeError, shown
from thyme.traces.files import InputFileError, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MANIFEST = "manifest.json"
LAYOUT = 1
"""Grows when what is written changes its form: stages of other layouts are made again."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_VERSIONS_OF = ("thyme", "pyspark", "pyarrow", "pandas")
_READ_BYTES = 1 << 20


class WarehouseError(ThymeError):
    """The warehouse cannot be used: not there, not writable, full, or lacking a stage."""

    code = "bad_warehouse"


class TableFacts(msgspec.Struct, frozen=True):
    """How large a table is."""

    rows: int
    files: int
    bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage was made from, by what, and how much it holds."""

    stage: str
    layout: int
    fingerprint: str
    config: dict[str, Any]
    inputs: dict[str, str]
    versions: dict[str, str]
    tables: dict[str, TableFacts]
    notes: dict[str, Any]
    """What the stage wants to tell besides: rows quarantined by reason, and the like."""


class Stage(msgspec.Struct, frozen=True):
    """A stage that is done."""

    folder: Path
    manifest: Manifest
    made_now: bool = False
    """Whether it was made just now, and not found."""

    @property
    def fingerprint(self) -> str:
        """What a stage made from this one names as its input."""
        return self.manifest.fingerprint

    def table(self, name: str) -> str:
        """Where a table is, for `spark.read.schema(…).parquet(…)`."""
        self._facts(name)
        return str(self.folder / name)

    def rows(self, name: str) -> int:
        """How many rows a table has."""
        return self._facts(name).rows

    def _facts(self, name: str) -> TableFacts:
        if name not in self.manifest.tables:
            known = ", ".join(self.manifest.tables) or "none"
            raise WarehouseError(f"{self.folder} has no table {name}; its tables: {known}")
        return self.manifest.tables[name]


class Draft:
    """A stage while it is made: `write` frames into it, or files into `path`, and `note` facts."""

    def __init__(self, folder: Path, parts: Path) -> None:
        self._folder = folder
        self._parts = parts
        self.notes: dict[str, Any] = {}

    @property
    def parts(self) -> Path:
        """A folder for finished pieces of a long build: if the build is killed, the next one for
        the same configuration and inputs finds them again. Gone once the stage is done."""
        self._parts.mkdir(parents=True, exist_ok=True)
        return self._parts

    def path(self, table: str) -> Path:
        """Where the Parquet files of a table go, for those who write them themselves."""
        _check_name(table)
        path = self._folder / table
        path.mkdir(exist_ok=True)
        return path

    def write(
        self, table: str, frame: DataFrame, order: Sequence[str] = (), files: int | None = None
    ) -> None:
        """Writes a table, in few files; rows in order of some columns over all files if asked."""
        if order:
            spread = (files, *order) if files else order
            frame = frame.repartitionByRange(*spread).sortWithinPartitions(*order)
        elif files:
            frame = frame.coalesce(files)
        path = self._folder / table
        _check_name(table)
        with _disk_errors(self._folder.parent, ours=False):
            frame.write.mode("error").parquet(str(path))

    def note(self, **facts: Any) -> None:
        """Keeps facts for the manifest; anything that JSON can say."""
        self.notes |= facts


class Warehouse:
    """A folder of stages."""

    def __init__(self, path: Source) -> None:
        self.path = Path(path)

    def stage(
        self,
        name: str,
        config: Mapping[str, Any],
        inputs: Mapping[str, str],
        build: Callable[[Draft], None],
    ) -> Stage:
        """The stage of this name, configuration and inputs: the one that is there, or a new one.

        A stage of the name that was made from something else gives way when the new one is done.
        """
        _check_name(name)
        wanted = fingerprint_of(name, config, inputs)
        with self._alone(name):
            if (found := self._found(name)) is not None and found.fingerprint == wanted:
                return found
            draft = Draft(self.path / f".{name}.draft", self.path / f".{name}.parts.{wanted[:16]}")
            with _disk_errors(self.path):
                _empty(draft._folder)
                try:
                    with _disk_errors(self.path, ours=False):
                        build(draft)
                    manifest = _manifest(name, wanted, config, inputs, draft)
                    _write_last(draft._folder / MANIFEST, manifest)
                    self._put_in_place(name, draft._folder)
                finally:
                    shutil.rmtree(draft._folder, ignore_errors=True)
                for parts in self.path.glob(f".{name}.parts.*"):
                    shutil.rmtree(parts, ignore_errors=True)
        return Stage(self.path / name, manifest, made_now=True)

    def open(self, name: str) -> Stage:
        """A stage that must be there."""
        if (found := self._found(name)) is None:
            there = ", ".join(self.stages()) or "none"
            raise WarehouseError(f"{self.path} has no finished stage {name}; its stages: {there}")
        return found

    def stages(self) -> list[str]:
        """The names of all stages that are done."""
        if not self.path.is_dir():
            return []
        names = (path.name for path in self.path.iterdir() if _NAME.fullmatch(path.name))
        return sorted(name for name in names if self._found(name) is not None)

    def _found(self, name: str) -> Stage | None:
        try:
            data = (self.path / name / MANIFEST).read_bytes()
            return Stage(self.path / name, msgspec.json.decode(data, type=Manifest))
        except (OSError, msgspec.DecodeError):
            return None

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """One process at a time makes a stage, so what an earlier one left behind is litter."""
        with _disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / f".{name}.lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise WarehouseError(
                    f"{self.path / name} is being made by another process; wait for it"
                ) from error
            yield

    def _put_in_place(self, name: str, draft: Path) -> None:
        place = self.path / name
        old = self.path / f".{name}.old.{token_hex(4)}"
        if place.exists():
            place.rename(old)
        draft.rename(place)
        for litter in self.path.glob(f".{name}.old.*"):
            shutil.rmtree(litter, ignore_errors=True)


def fingerprint_of(name: str, config: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """What a stage is a function of, in 32 letters."""
    parts = [name, LAYOUT, _versions()["thyme"], dict(config), dict(inputs)]
    data = msgspec.json.encode(parts, order="deterministic")
    return blake2b(data, digest_size=16).hexdigest()


def fingerprint_of_files(paths: Iterable[Source]) -> str:
    """The fingerprint of what is in files, wherever they lie."""
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


def _manifest(
    name: str, wanted: str, config: Mapping[str, Any], inputs: Mapping[str, str], draft: Draft
) -> Manifest:
    folders = sorted(path for path in draft._folder.iterdir() if path.is_dir())
    return Manifest(
        stage=name,
        layout=LAYOUT,
        fingerprint=wanted,
        config=dict(config),
        inputs=dict(inputs),
        versions=_versions(),
        tables={folder.name: _facts(folder) for folder in folders},
        notes=draft.notes,
    )


def _facts(folder: Path) -> TableFacts:
    """Counted in the files themselves: what the manifest says is there, is there."""
    from pyarrow import parquet

    files = sorted(folder.rglob("*.parquet"))
    rows = sum(parquet.read_metadata(file).num_rows for file in files)
    return TableFacts(rows, len(files), sum(file.stat().st_size for file in files))


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _VERSIONS_OF:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def _write_last(path: Path, manifest: Manifest) -> None:
    with path.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _empty(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise WarehouseError(
            f"stages and tables are named with small letters, digits, - and _, not {shown(name)}"
        )


_TROUBLES = (
    "No space left on device",
    "Disk quota exceeded",
    "Permission denied",
    "Read-only file system",
)
"""In the words of the system, which Java repeats."""


@contextmanager
def _disk_errors(path: Path, *, ours: bool = True) -> Iterator[None]:
    """Says of what the disk refuses, to us or to a task of Spark's, what and where it was.

    Where the work is not ours, only troubles of the disk as a whole are taken to be meant.
    """
    try:
        yield
    except ThymeError:
        raise
    except Exception as error:
        if ours and isinstance(error, OSError):
            problem = error.strerror or str(error)
        elif found := [trouble for trouble in _TROUBLES if trouble in str(error)]:
            problem = found[0]
        else:
            raise
        raise WarehouseError(f"{path} cannot be written: {problem}") from error
