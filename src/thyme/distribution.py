"""Distribution: the name and version under which Thyme is packaged, and how to install its extras.

PyPI's `thyme` is another project, so the distribution has a name of its own; the import name and
the command are `thyme`. pyproject.toml takes the version from here.
Entry point: `install_hint`.
"""

DISTRIBUTION_NAME = "thyme-store"
VERSION = "0.1.0"


def install_hint(extra: str) -> str:
    """The commands that install an extra, for error messages. The distribution is not published, so
    they install from a checkout or a wheel."""
    wheel = f"{DISTRIBUTION_NAME.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    return f"pip install '.[{extra}]' in a checkout, or pip install '{wheel}[{extra}]'"
