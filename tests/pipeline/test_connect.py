"""P11: import, trace and oracle through a Spark Connect server, which is a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hashing import ROOT
from tests.pipeline.sweeping import HASTE
from tests.pipeline.test_cluster import SPARK_CLASS, _free_port, _wait_for
from thyme.pipeline.session import SparkError, find_java, launcher_dir, spark_session

PATIENCE_S = 400
ROWS = [
    {"id": str(number), "user": f"u{number % 3}", "time": 1_468_180_801 + number, "text": "#goal"}
    for number in range(60)
]


@pytest.mark.slow
def test_p11_the_stages_before_the_sweep_run_through_spark_connect(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    lines = [*map(json.dumps, ROWS), json.dumps(ROWS[0]), "broken"]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    with server(tmp_path) as remote:
        made = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.pipeline.connected", str(tmp_path)],
            cwd=ROOT,
            env=os.environ | {"SPARK_REMOTE": remote},
            stdout=subprocess.PIPE,
            check=True,
            timeout=PATIENCE_S,
        )
    found = json.loads(made.stdout)
    assert found["kind"].startswith("pyspark.sql.connect")
    assert found["rows"]["posts"] == 60
    assert found["rows"]["quarantine"] == 2
    assert found["rows"]["operations"] > 60
    assert found["rows"]["notifications"] > 0
    assert "hdfs://host/w cannot be a warehouse through Spark Connect" in found["refused"]


def test_without_its_packages_spark_connect_is_named_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "thyme.pipeline.session.find_spec", lambda name: None if name == "grpc" else object()
    )
    with pytest.raises(SparkError, match=r"Spark Connect needs grpc: pip install .*connect"):
        spark_session("sc://host")


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A Spark Connect server on two cores; it stops at the end of the block."""
    port = _free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": HASTE,
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    home = launcher_dir(find_java())
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [SPARK_CLASS, "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", *options,
             "--class", main, "spark-internal"],
            stdout=log, stderr=log,
            env=os.environ | {
                "JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
            },
        )  # fmt: skip
        try:
            _wait_for(port)
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
