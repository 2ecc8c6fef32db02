"""Reads the imports of the modules of a source tree, without running them.

Imports count wherever they are: at the top, inside functions, under TYPE_CHECKING, and as
`import_module("…")` with a literal name.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "thyme"
FRONT_DOOR = "the front door (thyme/__init__.py)"
_NOT_ROOMS = {"__init__", "__main__"}


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


def rooms_of(package: Path) -> list[str]:
    """The top-level packages and single modules of a package that contain Python."""
    folders = {p.name for p in package.iterdir() if p.is_dir() and any(p.rglob("*.py"))}
    modules = {p.stem for p in package.glob("*.py")}
    return sorted((folders | modules) - _NOT_ROOMS)


def imports_of(package: Path, room: str) -> list[Import]:
    """All imports in a package, in order of file and line."""
    single = package / f"{room}.py"
    files = [single] if single.exists() else []
    files += sorted((package / room).rglob("*.py"))
    return [found for file in files for found in _imports_in(file, package)]


def room_behind(found: Import, package: Path) -> str | None:
    """The package that an import leads to; None when it leads outside the source tree."""
    top, *inner = found.module.split(".")
    if top != package.name:
        return None
    if inner:
        return inner[0]
    return found.name if found.name in rooms_of(package) else FRONT_DOOR


def _imports_in(file: Path, package: Path) -> Iterator[Import]:
    shown = file.relative_to(package.parent).as_posix()
    home = file.relative_to(package.parent).parent.parts
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
