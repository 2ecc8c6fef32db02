"""Spark sessions for the tests of the pipeline: two, in two workers of xdist."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from thyme.pipeline.session import SparkError, find_java, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
STREAMS_AND_CLUSTERS = ("test_analytics", "test_cluster", "test_connect", "test_infra", "test_kill")
"""Files of the second worker: about a half of the time."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each further worker would start another Java (see --dist in pyproject.toml)."""
    for item in items:
        if HERE in item.path.parents:
            second = item.path.stem.startswith(STREAMS_AND_CLUSTERS)
            item.add_marker(pytest.mark.xdist_group("spark-2" if second else "spark-1"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    try:
        find_java()
    except SparkError as error:
        pytest.skip(str(error))
    settings = {
        "spark.sql.shuffle.partitions": "3",
        "spark.default.parallelism": "2",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        # The optimising compiler does not pay for jobs of a second.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    # Warnings of libraries while they start are not ours.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = spark_session("local[2]", settings)
    yield session
    session.stop()
