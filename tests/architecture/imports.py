"""Reads the imports of a source tree without running it, and the import rules of the page.

Imports count wherever they stand: at the top, inside functions, under TYPE_CHECKING, and as
`import_module("…")` with a literal name. The rules are two tables in docs/architecture.md.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "thyme"
PAGE = ROOT / "docs" / "architecture.md"
PUBLIC_API = "thyme"
"""How the page calls `thyme/__init__.py`."""
_NOT_PACKAGES = {"__init__", "__main__"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported name: `from module import name`, or `import module` where name is None."""

    file: str
    line: int
    module: str
    name: str | None = None

    def __str__(self) -> str:
        what = f"{self.module}.{self.name}" if self.name else self.module
        return f"{self.file}:{self.line} imports {what}"


def packages_of(source: Path) -> list[str]:
    """The packages of a source tree: its folders and single modules that hold Python."""
    folders = {p.name for p in source.iterdir() if p.is_dir() and any(p.rglob("*.py"))}
    modules = {p.stem for p in source.glob("*.py")}
    return sorted((folders | modules) - _NOT_PACKAGES)


def sub_packages_of(source: Path) -> list[str]:
    """The packages inside packages, as `sim.radio`."""
    found = {init.parent.relative_to(source) for init in source.rglob("*/__init__.py")}
    return sorted(".".join(path.parts) for path in found if len(path.parts) > 1)


def imports_of(source: Path, package: str) -> list[Import]:
    """Every import in a package or sub-package, in order of file and line."""
    folder = source.joinpath(*package.split("."))
    single = folder.with_suffix(".py")
    files = [single] if single.exists() else []
    files += sorted(folder.rglob("*.py"))
    return [found for file in files for found in _imports_in(file, source)]


def imported_package(found: Import, source: Path) -> str | None:
    """The package that an import leads to; None for one outside the source tree."""
    top, *inner = found.module.split(".")
    if top != source.name:
        return None
    if inner:
        return inner[0]
    return found.name if found.name in packages_of(source) else PUBLIC_API


def imported_part(found: Import, source: Path, package: str) -> str | None:
    """The part of a package that an import leads to: a sub-package as `sim.radio`, or the package
    itself for its own modules; None for an import from elsewhere."""
    prefix = f"{source.name}.{package}"
    if found.module != prefix and not found.module.startswith(prefix + "."):
        return None
    dotted = [*found.module.split(".")[1:], *([found.name] if found.name else [])]
    known = set(sub_packages_of(source))
    for length in range(len(dotted), 1, -1):
        if ".".join(dotted[:length]) in known:
            return ".".join(dotted[:length])
    return package


def section_of_page(heading: str, page: Path = PAGE) -> str:
    """The text below a heading of the page."""
    return page.read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]


def rules_of_page(heading: str, page: Path = PAGE) -> dict[str, set[str]]:
    """A table of the page: names of packages, and of those that each may import."""
    section = section_of_page(heading, page)
    rules: dict[str, set[str]] = {}
    for name, *_, allowed in re.findall(
        r"^\| `([\w.]+)` \|(.*\|)? ([^|\n]*) \|$", section, re.MULTILINE
    ):
        rules[name] = set(re.findall(r"`([\w.]+)`", allowed))
    return rules


def _imports_in(file: Path, source: Path) -> Iterator[Import]:
    shown = file.relative_to(source.parent).as_posix()
    home = file.relative_to(source.parent).parent.parts
    for node in ast.walk(ast.parse(file.read_bytes(), filename=shown)):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Import(file=shown, line=node.lineno, module=alias.name)
            case ast.ImportFrom():
                above = home[: len(home) - node.level + 1] if node.level else ()
                module = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names:
                    yield Import(file=shown, line=node.lineno, module=module, name=alias.name)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield Import(file=shown, line=node.lineno, module=module)
