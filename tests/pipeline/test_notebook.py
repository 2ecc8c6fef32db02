"""The notebook in examples/notebooks/ opens a warehouse and draws three figures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebooks" / "warehouse.py"


def test_the_notebook_draws_three_figures_of_a_warehouse(
    spark: SparkSession, tmp_path: Path
) -> None:
    w, figures = tmp_path / "w", tmp_path / "figures"
    for words in (
        f"posts synth --users 50 --posts 800 --tags 90 --out {w}",
        f"trace build --posts {w} --users 10 --out {w}",
        f"oracle --trace {w} --out {w}",
    ):
        assert main(words.split()) == 0

    done = subprocess.run(
        [sys.executable, NOTEBOOK, w, figures],
        capture_output=True,
        text=True,
        env={**os.environ, "MPLBACKEND": "svg", "MPLCONFIGDIR": str(tmp_path)},
    )

    assert done.returncode == 0, done.stderr
    made = {file.name: file.read_text() for file in figures.iterdir()}
    assert sorted(made) == ["operations.svg", "posts.svg", "tags.svg"]
    assert all("<svg" in text and len(text) > 5_000 for text in made.values())
