"""Native code: the event kernel and the radio in C, for speed. Optional.

Entry point: `AVAILABLE`. The module `radio_core` is compiled from the C sources of this folder, as
the other compiled modules are (`tools.mypyc_build`). It has twins in Python, `engine.plain_kernel`
and `radio.mac` with the modules below it, which give the same results to the byte and are used if
it is not compiled.
Decision: docs/decisions/0064-native-radio.md.
"""

from __future__ import annotations

from importlib import import_module


def _is_compiled() -> bool:
    try:
        import_module("thyme.sim.native.radio_core")
    except ImportError:  # not compiled, or for another Python or C library
        return False
    return True


AVAILABLE = _is_compiled()
"""Whether the native code is used."""
