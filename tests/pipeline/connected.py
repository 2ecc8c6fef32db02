"""Import, trace and oracle through Spark Connect, for the test of it, as commands of one process.

    SPARK_REMOTE=sc://… python -m tests.pipeline.connected FOLDER

imports FOLDER/in.jsonl, and prints the tables' rows as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from thyme.model.errors import ThymeError
from thyme.pipeline.jobs import build_trace, compute_oracle, import_posts
from thyme.pipeline.posts.formats import PostReader
from thyme.pipeline.session import spark_session
from thyme.pipeline.warehouse import Warehouse


def main(folder: Path) -> None:
    """Runs the stages that need no SparkContext."""
    spark = spark_session()
    warehouse = Warehouse(folder / "w")
    posts = import_posts(spark, warehouse, [str(folder / "in.jsonl")], PostReader(form="jsonl"))
    trace = build_trace(spark, warehouse, posts, 3, 1)
    oracle = compute_oracle(spark, warehouse, trace)
    try:
        Warehouse("hdfs://host/w").open_stage("posts")
    except ThymeError as error:
        refused = str(error)
    stages = (posts, trace, oracle)
    rows = {name: facts.rows for stage in stages for name, facts in stage.manifest.tables.items()}
    print(json.dumps({"kind": type(spark).__module__, "rows": rows, "refused": refused}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
