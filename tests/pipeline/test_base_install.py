"""Commands of the pipeline in an installation without its packages: a line with the remedy."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyspark", "pandas", "pyarrow", "matplotlib", "jinja2", "scipy", "numpy")
PROGRAM = f"""
import sys
for name in {HEAVY!r}:
    sys.modules[name] = None  # as if it were not installed
from thyme.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("evaluate --preset quick --out w", "pipeline,report"),
        ("evaluate --preset quick --plan --out w", "pipeline,report"),
        ("demo --out w", "pipeline,report"),
        ("report w", "report"),
        ("posts import a.csv --out w", "pipeline"),
        ("posts synth --out w", "pipeline"),
        ("trace build --posts w --out w", "pipeline"),
        ("trace lecture --out w", "pipeline"),
        ("trace mobuser --out w", "pipeline"),
        ("oracle --trace w --out w", "pipeline"),
        ("posts compact --out w", "pipeline"),
        ("analytics follow w", "pipeline"),
    ],
)
def test_a_base_installation_is_told_what_to_install(words: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words.split()], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert f"pip install '.[{extra}]'" in line
