"""Kernel: the discrete-event scheduler of the simulator, with its virtual clock.

Entry points: `Kernel` and `make_kernel`. An event is a function with one argument. Events of the
same instant run in the order in which they were scheduled, so a run is deterministic. A scheduled
event cannot be cancelled: its function checks when it runs whether it still applies. There are two
kernels with the same results: one in C (`native`), and `PlainKernel` where C is not compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from thyme.sim import native

EventHandler = Callable[[Any], None]


class Kernel(Protocol):
    """A virtual clock and a queue of scheduled events."""

    @property
    def now_us(self) -> int:
        """The current instant."""
        ...

    @property
    def events_processed(self) -> int:
        """The number of events that have run."""
        ...

    def schedule(self, at_us: int, event: EventHandler, argument: Any = None, /) -> None:
        """Schedules an event for an instant, which must not be in the past."""
        ...

    def next_event_us(self) -> int | None:
        """The instant of the next event; None if none is scheduled."""
        ...

    def run(self, until_us: int, /) -> None:
        """Runs all events up to and including an instant, and sets the clock to it."""
        ...


def make_kernel(start_us: int = 0) -> Kernel:
    """Makes a kernel, in C if it is compiled."""
    if native.AVAILABLE:
        from thyme.sim.native.radio_core import NativeKernel

        return NativeKernel(start_us)
    from thyme.sim.engine.plain_kernel import PlainKernel

    return PlainKernel(start_us)
