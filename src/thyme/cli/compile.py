"""thyme compile: compiles the hot modules (simulator, routing, link) with mypyc."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from typing import TYPE_CHECKING

from thyme.distribution import install_hint
from thyme.model.errors import InputError

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers


class NotCompiledError(InputError):
    """The compilation failed; the interpreted modules are used."""

    code = "not_compiled"


def add_to(commands: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "compile",
        help="make simulations faster (needs a C compiler)",
        description="Compile the hot modules (simulator, routing, link) to machine code with "
        "mypyc. Simulations then take about half the time and give the same results. Needs a C "
        f"compiler and mypyc: {install_hint('fast')}. Compile again after changes to Thyme's "
        "sources.",
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--state", action="store_true", help="only print whether compiled modules are in use"
    )
    choice.add_argument("--remove", action="store_true", help="remove the compiled modules")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=compile_command)


def compile_command(args: Namespace) -> int:
    """thyme compile [--state | --remove] [--json]"""
    from thyme.tools import mypyc_build

    began = time.monotonic()
    if args.remove:
        mypyc_build.remove_compiled()
    elif not args.state:
        if not args.json:
            print("compiling; this takes about a minute ...", file=sys.stderr)
        try:
            mypyc_build.compile_modules()
        except mypyc_build.MissingToolsError as error:
            raise NotCompiledError(f"{error}: {install_hint('fast')}") from error
        except mypyc_build.CompileError as error:
            raise NotCompiledError(str(error)) from error
    state = mypyc_build.build_state()
    if args.json:
        took_s = round(time.monotonic() - began, 1)
        modules = list(mypyc_build.COMPILED_MODULES)
        print(json.dumps({"state": state.value, "rooms": modules, "took_s": took_s}))
    else:
        print(f"{state.value}: {STATE_TEXTS[state.value]}")
    return 0


STATE_TEXTS = {
    "plain": "the sources are interpreted",
    "compiled": "modules compiled from these sources are in use",
    "stale": "modules compiled from other sources are in use; compile again, or use --remove",
}
