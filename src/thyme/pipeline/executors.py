"""Executors: sends the package to the machines of a cluster.

Entry point: `ship_package`. Executors get two copies. One has the sources only, as a zip file that
Python imports from; all stages use it. The other has the compiled modules too (decision 12) and is
unpacked by Spark; simulations use it where it fits (`package_copies`). Machine code is for one
version of Python, one system and one processor: on an executor with another of these, or with an
older C library, simulations run the sources, with the same results at half the speed. A worker in
local mode uses the package of the driver.
Clauses: P8, P11.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.tools.mypyc_build import PACKAGE, BuildState, build_state

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SOURCES_FILE = "thyme.zip"
COMPILED_FOLDER = "thyme-compiled"
"""The folder, beside the other files of the application, in which Spark unpacks the archive."""
COMPILED_SUFFIX = EXTENSION_SUFFIXES[0]
"""The ending of compiled modules for this Python and system."""

_folders: dict[str, tempfile.TemporaryDirectory[str]] = {}
"""The files that this process serves to executors, by application; removed when it ends."""


def ship_package(spark: SparkSession) -> None:
    """Sends the package to the executors of a cluster, with compiled modules if there are any."""
    folder, context = application_folder(spark), spark_context(spark)
    sources = zip_package(folder / SOURCES_FILE, PACKAGE.rglob("*.py"))
    if context is None:
        spark.addArtifacts(str(sources), pyfile=True)
    else:
        context.addPyFile(str(sources))
    if build_state() is BuildState.COMPILED:
        files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob(f"*{COMPILED_SUFFIX}")]
        archive = zip_package(folder / f"{COMPILED_FOLDER}.zip", files)
        if context is None:
            spark.addArtifacts(f"{archive}#{COMPILED_FOLDER}", archive=True)
        else:
            context.addArchive(f"{archive}#{COMPILED_FOLDER}")


def ship_file(spark: SparkSession, name: str, data: bytes) -> None:
    """Sends a file to the executors, under a name that stands for its contents."""
    path = application_folder(spark) / name
    if not path.exists():
        draft = path.with_name(f".{name}")
        draft.write_bytes(data)
        draft.replace(path)
        if (context := spark_context(spark)) is None:
            spark.addArtifacts(str(path), file=True)
        else:
            context.addFile(str(path))


def spark_context(spark: SparkSession) -> SparkContext | None:
    """The Spark context of a session; None for Spark Connect."""
    found: SparkContext | None = getattr(spark, "_sc", None)
    return found


def application_folder(spark: SparkSession) -> Path:
    """The folder for the files that this driver serves to the executors of an application."""
    context = spark_context(spark)
    application = (
        str(getattr(spark, "session_id", "")) if context is None else context.applicationId
    )
    if application not in _folders:
        _folders[application] = tempfile.TemporaryDirectory(prefix="thyme-executors-")
    return Path(_folders[application].name)


def zip_package(target: Path, files: Iterable[Path]) -> Path:
    """Writes files of the package into a zip file."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in sorted(files):
            archive.write(file, Path(PACKAGE.name, file.relative_to(PACKAGE)))
    return target


def package_copies(files_root: str | None = None) -> list[Path]:
    """The copies of the package on this machine, best first; the last is the one in use.

    `files_root` is the folder with the files that Spark has fetched for the application.
    """
    copies = [PACKAGE.parent]
    if files_root is not None:
        shipped = Path(files_root, COMPILED_FOLDER)
        # Files for another Python or system have another ending.
        if any(shipped.glob(f"{PACKAGE.name}/*{COMPILED_SUFFIX}")):
            copies.insert(0, shipped)
    return copies
