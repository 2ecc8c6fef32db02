"""The native code refuses what is wrong, passes exceptions on, and frees its memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from thyme.sim import native
from thyme.sim.engine.kernel import Kernel, make_kernel
from thyme.sim.engine.plain_kernel import PlainKernel
from thyme.sim.radio.radio import BROADCAST, Frame, Radio, RadioConfig

KERNELS = [PlainKernel, make_kernel] if native.AVAILABLE else [PlainKernel]
POSITIONS = [(0.0, 0.0), (50.0, 0.0), (90.0, 0.0)]


class CallbackError(Exception):
    pass


class Token:
    """A token that can be observed."""


class User:
    """The user of a radio, which refers to it; the radio's callbacks refer to the user."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.raises_at = ""
        self.done: list[tuple[object, str]] = []
        self.radio = Radio(
            kernel,
            POSITIONS,
            seed=1,
            config=RadioConfig(),
            on_received=self._on_received,
            on_done=self._on_done,
        )

    def _on_received(self, frame: Frame, receivers: int, now_us: int) -> None:
        if self.raises_at == "received":
            raise CallbackError

    def _on_done(self, frame: Frame, outcome: str) -> None:
        self.done.append((frame.token, outcome))
        if self.raises_at == outcome:
            raise CallbackError


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize(
    ("source", "to", "size"), [(3, BROADCAST, 10), (0, 3, 10), (0, -2, 10), (2**70, BROADCAST, 10)]
)
def test_a_node_that_does_not_exist_is_an_error(make: Any, source: int, to: int, size: int) -> None:
    user = User(make())
    with pytest.raises((IndexError, OverflowError)):
        user.radio.send(source, to, size, "token")
    user.kernel.run(10_000)
    assert user.done == []


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize("raises_at", ["received", "sent", "exceeded", "off"])
def test_an_exception_of_a_callback_ends_the_run_and_the_radio_goes_on_after_it(
    make: Any, raises_at: str
) -> None:
    user = User(make())
    user.raises_at = raises_at
    if raises_at == "exceeded":
        user.radio.set_power(1, on=False)
    user.radio.send(0, 1, 300, "first")
    if raises_at == "off":
        with pytest.raises(CallbackError):
            user.radio.set_power(0, on=False)
        user.radio.set_power(0, on=True)
    else:
        with pytest.raises(CallbackError):
            user.kernel.run(1_000_000)
    user.raises_at = ""
    user.radio.send(2, BROADCAST, 300, "second")
    user.kernel.run(2_000_000)
    assert ("second", "sent") in user.done


@pytest.mark.skipif(not native.AVAILABLE, reason="not compiled here: thyme compile")
@pytest.mark.parametrize("arguments", [(), (1,), (1, print, 2, 3), ("soon", print), (2**80, print)])
def test_the_native_kernel_refuses_wrong_arguments(arguments: tuple[Any, ...]) -> None:
    kernel = make_kernel()
    with pytest.raises((TypeError, OverflowError)):
        kernel.schedule(*arguments)
    assert kernel.next_event_us() is None


@pytest.mark.skipif(not native.AVAILABLE, reason="not compiled here: thyme compile")
@pytest.mark.parametrize("position", [(0.0,), "here", (float("nan"), 0.0), (0.0, float("inf"))])
def test_the_native_radio_refuses_what_is_no_position(position: Any) -> None:
    user = User(make_kernel())
    with pytest.raises((TypeError, ValueError)):
        user.radio.links.move(1, position)
    assert user.radio.links.position_of(1) == POSITIONS[1]


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize("until_us", [0, 60, 600, 1_000_000])
def test_a_radio_in_the_middle_of_its_work_is_freed_with_its_tokens(
    make: Any, until_us: int
) -> None:
    """Queued frames, frames on the air and pending events are part of the cycle of references."""
    user = User(make())
    tokens = [Token() for _ in range(6)]
    watched: list[weakref.ref[Any]] = [weakref.ref(token) for token in tokens]
    for number, token in enumerate(tokens):
        user.radio.send(number % 3, BROADCAST if number % 2 else (number + 1) % 3, 300, token)
    user.kernel.schedule(500_000, user.radio.set_power, user)
    if until_us < 500_000:
        user.kernel.run(until_us)
    watched.append(weakref.ref(user))
    user.done.append((user.kernel, "part of the cycle"))
    del tokens, token, user
    gc.collect()
    assert [each() for each in watched] == [None] * len(watched)


@pytest.mark.skipif(not native.AVAILABLE, reason="not compiled here: thyme compile")
def test_the_references_of_tokens_are_balanced() -> None:
    """After all sends, moves and failures nothing refers to a token any more."""
    user = User(make_kernel())
    tokens = [Token() for _ in range(300)]
    watched = [weakref.ref(token) for token in tokens]
    for number, token in enumerate(tokens):
        to = BROADCAST if number % 3 == 0 else (number + 1) % 3
        user.kernel.schedule(
            400 * number, lambda each: user.radio.send(*each), (number % 3, to, 300, token)
        )
        if number % 50 == 49:
            on = number % 100 == 99
            user.kernel.schedule(400 * number, lambda on: user.radio.set_power(1, on=on), on)
    user.kernel.run(5_000_000)
    assert len(user.done) == len(tokens)
    del tokens, token
    user.done.clear()
    user.radio.send(0, BROADCAST, 10, None)  # the last frames that ended are kept for EIFS
    user.kernel.run(6_000_000)
    gc.collect()
    assert sum(each() is not None for each in watched) == 0
