"""S17: a run reports its progress, and has the same result."""

from __future__ import annotations

from itertools import count

from thyme.sim.engine.kernel import make_kernel
from thyme.sim.progress import RunProgress, run_with_progress

S = 1_000_000


def test_s17_a_watched_run_tells_how_far_it_is() -> None:
    kernel = make_kernel(100 * S)
    happened: list[int] = []
    for second in range(35):
        kernel.schedule((100 + second) * S, lambda _: happened.append(kernel.now_us))
    ticks = count()
    clock = run_with_progress(kernel, 125 * S, every_us=10 * S, clock=lambda: float(next(ticks)))

    assert list(clock) == [
        RunProgress(done_us=10 * S, span_us=25 * S, events=11, wall_s=1.0),
        RunProgress(done_us=20 * S, span_us=25 * S, events=21, wall_s=2.0),
        RunProgress(done_us=25 * S, span_us=25 * S, events=26, wall_s=3.0),
    ]
    assert happened == [(100 + second) * S for second in range(26)]
    assert kernel.now_us == 125 * S


def test_s17_progress_in_words() -> None:
    progress = RunProgress(done_us=180 * S, span_us=720 * S, events=1, wall_s=12.0)
    assert str(progress) == "180 of 720 s (25%), 15.0 s per second"
    assert str(RunProgress(done_us=0, span_us=0, events=0, wall_s=0.0)).startswith(
        "0 of 0 s (100%)"
    )


def test_s17_it_runs_only_as_far_as_it_is_watched() -> None:
    kernel = make_kernel()
    stretches = run_with_progress(kernel, 30 * S)
    next(stretches)
    assert kernel.now_us == 10 * S
