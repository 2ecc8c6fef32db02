"""The warehouse: a folder that stores the tables of each stage and their provenance.

    w/posts/manifests/000002.json          configuration, inputs, versions, tables and their files
    w/posts/builds/000001-3f9a…/posts/…    Parquet files of one build, never changed afterwards

A build writes files under new names and commits them by creating the next manifest, which fails if
another build created it first. The manifest with the highest number is the stage; files that it
does not list do not count. So nothing is renamed or locked, and a stage is complete or absent on
any file system, object stores included (docs/decisions/0016-warehouse.md). Files of builds that
failed are removed by the next commit; those of the version before it stay, for its readers.

    warehouse = Warehouse("w")             # or hdfs://…, s3a://…, abfs://…, with a Spark session
    build = lambda draft: draft.write("posts", frame)
    posts = warehouse.get_or_build("posts", {"seed": 1}, {}, build)
    posts.row_count("posts"), posts.read(spark, "posts", POSTS), posts.fingerprint, posts.built_now

`inputs` maps the name of each input to its fingerprint, such as another stage's `fingerprint`.
Clauses: P10, P11.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from thyme.distribution import VERSION
from thyme.model.errors import ThymeError, safe_repr
from thyme.pipeline.storage import Storage, WarehouseError, storage_at
from thyme.pipeline.tables import Draft, FileFacts, TableFacts, read_parquet_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from thyme.traces.files import FilePath

__all__ = ["Draft", "Manifest", "Stage", "Warehouse", "WarehouseError", "stage_fingerprint"]

LAYOUT_VERSION = 2
"""Version of the layout and of the tables' schemas; stages of an older one are built again."""
MANIFESTS, BUILDS = "manifests", "builds"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_NUMBERED = re.compile(r"(\d{6,})\.json")
_VERSIONS_OF = ("pyspark", "pyarrow", "pandas")
_WRITING_S_MAX = 60.0
"""An incomplete manifest of this age is one whose writer died."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The provenance of a stage: configuration, inputs, versions and tables."""

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

    storage: Storage
    manifest: Manifest
    built_now: bool = False
    """Whether this call built the stage rather than found it."""

    @property
    def folder(self) -> str:
        """The folder of the stage, a path or a URI."""
        return f"{self.storage.uri}/{self.manifest.stage}"

    @property
    def fingerprint(self) -> str:
        """The fingerprint that a stage built from this one lists among its inputs."""
        return self.manifest.fingerprint

    def read(
        self,
        spark: SparkSession,
        name: str,
        schema: StructType,
        between_us: tuple[int, int] | None = None,
    ) -> DataFrame:
        """A table as a frame; with `between_us`, without files that have no `at_us` in the span."""
        facts = self._table_facts(name)
        facts.check_columns(f"{self.folder}, table {name}", schema)
        files = [each for each in facts.files if between_us is None or each.overlaps(*between_us)]
        return self.read_files(spark, schema, files)

    def read_files(
        self, spark: SparkSession, schema: StructType, files: Sequence[FileFacts]
    ) -> DataFrame:
        """Some files of a table as a frame."""
        return read_parquet_files(spark, self.storage, self.manifest.stage, schema, files)

    def table_path(self, name: str) -> str:
        """The folder of a table that one build wrote, for readers of single files."""
        builds = {each.path.split("/")[1] for each in self._table_facts(name).files}
        if len(builds) != 1:
            raise WarehouseError(
                f"{self.folder} has the table {name} in {len(builds)} folders; use the file list"
            )
        return f"{self.folder}/{BUILDS}/{builds.pop()}/{name}"

    def table_files(self, name: str) -> list[str]:
        """The Parquet files of a table, as paths or URIs, for any other reader."""
        return [f"{self.folder}/{each.path}" for each in self._table_facts(name).files]

    def row_count(self, name: str) -> int:
        """The number of rows of a table."""
        return self._table_facts(name).rows

    def _table_facts(self, name: str) -> TableFacts:
        if name not in self.manifest.tables:
            known = ", ".join(self.manifest.tables) or "none"
            raise WarehouseError(f"{self.folder} has no table {name}; its tables: {known}")
        return self.manifest.tables[name]


class _Latest(NamedTuple):
    """The highest number of a stage's manifests, and the last complete one of them."""

    number: int
    stage: Stage | None


class Warehouse:
    """A folder of stages, at a path or a URI, or in a storage of its own kind."""

    def __init__(self, place: FilePath | Storage) -> None:
        self._storage = storage_at(place) if isinstance(place, str | PathLike) else place

    @property
    def uri(self) -> str:
        """The folder, a path or a URI."""
        return self._storage.uri

    @property
    def is_local(self) -> bool:
        """Whether the warehouse can be opened without Spark."""
        return self._storage.folder is not None

    @property
    def path(self) -> Path:
        """The folder as a local path; an error for other file systems."""
        if self._storage.folder is None:
            raise WarehouseError(
                f"{self.uri} cannot store single runs: use a folder that all machines share"
            )
        return self._storage.folder

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
        return self.commit(name, stage_fingerprint(name, config, inputs), config, inputs, build)

    def commit(
        self,
        name: str,
        fingerprint: str,
        config: Mapping[str, Any],
        inputs: Mapping[str, str],
        build: Callable[[Draft], None],
        base: Stage | None = None,
    ) -> Stage:
        """As `get_or_build`, for a given fingerprint.

        A build that keeps files of a stage names it as `base`; then it is always carried out, and
        rejected if the stage is another one by now.
        """
        _check_name(name)
        latest = self._latest(name)
        found = latest.stage
        if base is None and found is not None and found.fingerprint == fingerprint:
            return found
        if base is not None and (found is None or found.manifest != base.manifest):
            raise self._lost(name)
        draft = Draft(self._storage, name, f"{BUILDS}/{latest.number + 1:06}-{token_hex(4)}")
        try:
            with _translate_disk_errors(self.uri):
                draft.check_writable()
            with _translate_disk_errors(self.uri, any_os_error=False):
                build(draft)
            with _translate_disk_errors(self.uri):
                manifest = _make_manifest(name, fingerprint, config, inputs, draft)
                self._create_manifest(name, latest.number, manifest)
        except BaseException as error:
            with suppress(OSError, ThymeError):
                self._storage.delete(f"{name}/{draft.build}")
            if isinstance(error, Exception) and (won := self._winner(name, latest)) is not None:
                if won.fingerprint == fingerprint:
                    return won
                raise self._lost(name) from error
            raise
        self._remove_unused(name, latest, manifest)
        return Stage(self._storage, manifest, built_now=True)

    def open_stage(self, name: str) -> Stage:
        """Opens a finished stage; an error if there is none of this name."""
        if (found := self.find_stage(name)) is None:
            there = ", ".join(self.stage_names()) or "none"
            raise WarehouseError(f"{self.uri} has no finished stage {name}; its stages: {there}")
        return found

    def find_stage(self, name: str) -> Stage | None:
        """A finished stage; None if there is none, an error if its layout is another one."""
        found = self._latest(name).stage
        if found is None and "manifest.json" in self._storage.names(name):
            raise self._other_layout(name, 1)
        return found

    def stage_names(self) -> list[str]:
        """The names of all finished stages."""
        names = [name for name in self._storage.names("") if _NAME.fullmatch(name)]
        return [name for name in names if self._latest(name).stage is not None]

    def _latest(self, name: str) -> _Latest:
        """Finds the last manifest. A listing may lag behind, so higher numbers are tried too."""
        listed = map(_NUMBERED.fullmatch, self._storage.names(f"{name}/{MANIFESTS}"))
        numbers = sorted(int(each[1]) for each in listed if each is not None)
        highest = numbers[-1] if numbers else 0
        while self._read_manifest(name, highest + 1) is not None:
            highest += 1
        for number in range(highest, 0, -1):
            if (data := self._read_manifest(name, number)) is None:
                continue
            if number == highest and not _is_complete(data):
                data = self._wait_for_manifest(name, number)
            if _is_complete(data):
                return _Latest(highest, Stage(self._storage, self._decode(name, data)))
        return _Latest(highest, None)

    def _read_manifest(self, name: str, number: int) -> bytes | None:
        try:
            return self._storage.read(_manifest_path(name, number))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _wait_for_manifest(self, name: str, number: int) -> bytes:
        """Waits for the end of a manifest, unless it is so old that its writer must be dead."""
        path = _manifest_path(name, number)
        while True:
            data = self._read_manifest(name, number) or b""
            written = {each.path: each for each in self._storage.files(f"{name}/{MANIFESTS}")}
            age_s = time.time() - written[path].modified_s if path in written else 0.0
            if _is_complete(data) or age_s > _WRITING_S_MAX:
                return data
            time.sleep(0.1)

    def _decode(self, name: str, data: bytes) -> Manifest:
        layout = msgspec.json.decode(data).get("layout")
        if layout != LAYOUT_VERSION:
            raise self._other_layout(name, layout)
        return msgspec.json.decode(data, type=Manifest)

    def _create_manifest(self, name: str, base: int, manifest: Manifest) -> None:
        """Commits a build: the manifest that follows `base` must not exist yet."""
        data = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        self._storage.create(_manifest_path(name, base + 1), data)

    def _winner(self, name: str, before: _Latest) -> Stage | None:
        """The stage that another process committed since `before`."""
        with suppress(OSError, ThymeError):
            now = self._latest(name)
            return now.stage if now.number > before.number else None
        return None

    def _lost(self, name: str) -> WarehouseError:
        return WarehouseError(
            f"{self.uri}/{name} was changed by another process during this build, of which nothing "
            "was kept: run the command again"
        )

    def _other_layout(self, name: str, layout: object) -> WarehouseError:
        return WarehouseError(
            f"{self.uri}/{name} has layout {layout}, and this version of Thyme reads layout "
            f"{LAYOUT_VERSION}: use the version that wrote it, or another folder, or remove this "
            "one to build it again"
        )

    def _remove_unused(self, name: str, before: _Latest, manifest: Manifest) -> None:
        """Removes files that neither the new nor the last version lists. Only a failed build, or
        one that can no longer be committed, has such files. Manifests before the last one become
        empty; they stay, so that no late build can use their number."""
        kept = {before.number, before.number + 1}
        stages = [manifest] + ([before.stage.manifest] if before.stage else [])
        used = {
            each.path.split("/")[1]
            for stage in stages
            for facts in stage.tables.values()
            for each in facts.files
        }
        with suppress(OSError, ThymeError):
            for build in self._storage.names(f"{name}/{BUILDS}"):
                if build not in used:
                    self._storage.delete(f"{name}/{BUILDS}/{build}")
            for each in self._storage.files(f"{name}/{MANIFESTS}"):
                found = _NUMBERED.fullmatch(each.path.rpartition("/")[2])
                if found and int(found[1]) not in kept and each.bytes:
                    self._storage.overwrite(each.path, b"")


def stage_fingerprint(name: str, config: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Hash of everything that a stage depends on, as 32 hexadecimal digits."""
    parts = [name, LAYOUT_VERSION, VERSION, dict(config), dict(inputs)]
    data = msgspec.json.encode(parts, order="deterministic")
    return blake2b(data, digest_size=16).hexdigest()


def _manifest_path(name: str, number: int) -> str:
    return f"{name}/{MANIFESTS}/{number:06}.json"


def _is_complete(data: bytes) -> bool:
    """Whether a manifest has been written to its end."""
    try:
        msgspec.json.decode(data)
    except msgspec.DecodeError:
        return False
    return True


def _make_manifest(
    name: str, fingerprint: str, config: Mapping[str, Any], inputs: Mapping[str, str], draft: Draft
) -> Manifest:
    return Manifest(
        stage=name,
        layout=LAYOUT_VERSION,
        fingerprint=fingerprint,
        config=dict(config),
        inputs=dict(inputs),
        versions=_package_versions(),
        tables=draft.measure_tables(),
        notes=draft.notes,
    )


def _package_versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "thyme": VERSION}
    for package in _VERSIONS_OF:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


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
def _translate_disk_errors(place: str, *, any_os_error: bool = True) -> Iterator[None]:
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
        raise WarehouseError(f"{place} cannot be written: {problem}") from error
