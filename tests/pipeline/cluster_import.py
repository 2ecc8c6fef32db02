"""An import in a process of its own, for the test that runs it on a cluster.

    python -m tests.pipeline.cluster_import FOLDER MASTER

imports the files in FOLDER/in into a warehouse, both by URIs of a bucket that is FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.pipeline.buckets import SCHEME, bucket_options
from tests.pipeline.sweeping import started
from thyme.pipeline.jobs import import_posts
from thyme.pipeline.posts.formats import PostReader
from thyme.pipeline.warehouse import Warehouse

READER = PostReader(form="jsonl")


def main(folder: Path, master: str) -> None:
    """Imports the files one after the other, then all of them again."""
    spark = started(master)
    for name, value in bucket_options("cluster", folder).items():
        spark.conf.set(name, value)
    uri = f"{SCHEME}://cluster"
    warehouse = Warehouse(f"{uri}/w")
    for number in (1, 2):
        import_posts(spark, warehouse, [f"{uri}/in/{number}.jsonl"], READER)
    if import_posts(spark, warehouse, [f"{uri}/in"], READER).built_now:
        raise SystemExit("the files were imported again")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
