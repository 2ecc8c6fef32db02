"""The distribution's name and version are said once, and no text names PyPI's `thyme`."""

import tomllib
from pathlib import Path

import thyme
from thyme.distribution import DISTRIBUTION_NAME, VERSION, install_hint

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TEXTS = ("src/**/*.py", "src/**/*.md", "benchmarks/*.py", "examples/**/*.py", "docs/**/*.md")


def test_pyproject_has_the_name_and_takes_the_version_of_the_module() -> None:
    assert PROJECT["project"]["name"] == DISTRIBUTION_NAME
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/thyme/distribution.py"
    assert thyme.__version__ == VERSION


def test_the_extra_all_has_the_other_extras_but_large_references() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    [everything] = extras.pop("all")
    name, _, names = everything.removesuffix("]").partition("[")

    assert name == DISTRIBUTION_NAME
    assert set(names.split(",")) == set(extras) - {"ns3", "referee"}


def test_the_hint_installs_an_extra_from_a_checkout_or_a_wheel() -> None:
    wheel = f"thyme_store-{VERSION}-py3-none-any.whl"

    assert install_hint("live") == (
        f"pip install '.[live]' in a checkout, or pip install '{wheel}[live]'"
    )


def test_no_text_tells_to_install_the_thyme_of_pypi() -> None:
    paths = [*ROOT.glob("*.md"), *(path for text in TEXTS for path in ROOT.glob(text))]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(paths)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if "thyme[" in line or "pip install thyme" in line
    ]
    assert not wrong, "\n".join(wrong)
