"""Settings for all tests: HYPOTHESIS_PROFILE chooses how Hypothesis draws its examples, and
`--rewrite` records the transcripts in tests/transcripts and the values in tests/golden anew.
"""

import logging
import os

import pytest
from hypothesis import settings

from tests.golden.frozen import Frozen
from thyme.tools import mypyc_build

# No deadline: a busy machine is not an error.
settings.register_profile("default", deadline=None)
# The same examples on every run, so that a failed build is caused by the change; fewer of them.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="record transcripts and golden values anew"
    )


@pytest.fixture
def frozen(request: pytest.FixtureRequest) -> Frozen:
    """Compares values with the recorded ones in tests/golden."""
    return Frozen(rewrite=bool(request.config.getoption("--rewrite")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """More workers than cores: many tests wait for other processes (Java, nodes)."""
    return (os.cpu_count() or 1) + 2


def pytest_configure(config: pytest.Config) -> None:
    if mypyc_build.build_state() is mypyc_build.BuildState.STALE:
        pytest.exit("machine code of other sources would run: thyme compile [--remove]", 2)


def pytest_runtest_teardown() -> None:
    """A command that ran in this process may have configured the logs for itself."""
    for name in ("thyme", "aiohttp", "asyncio"):
        log = logging.getLogger(name)
        if not log.propagate:
            log.handlers.clear()
            log.propagate = True
            log.setLevel(logging.NOTSET)
    logging.getLogger("aiohttp.server").filters.clear()
