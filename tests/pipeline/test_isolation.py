"""Simulations in processes of their own: one that dies, hangs or eats memory fails alone.

Clauses: P5, P11.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from tests.pipeline.planned import planned, result
from tests.pipeline.test_sweep import kept
from tests.sim.runs import SHORT, insert, trace
from thyme.pipeline.sweep.progress import SweepProgress
from thyme.pipeline.sweep.results import RunResults
from thyme.pipeline.sweep.runner import SweepLimits, sweep
from thyme.pipeline.sweep.runs.planned_run import ENDED, PlannedRun
from thyme.pipeline.sweep.simulation_process import (
    RunLimits,
    SimulationSlot,
    exit_reason,
    parse_cpu_time_s,
    used_cpu_s,
    used_memory_bytes,
)
from thyme.pipeline.warehouse import Warehouse
from thyme.sim.scenario import Substrate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKER = "thyme.pipeline.sweep.simulation_worker"
PATIENCE_S = 120
MIB = 1 << 20
PARENT = """
import sys, threading
from thyme.pipeline.sweep.runs.planned_run import PlannedRun
from thyme.pipeline.sweep.simulation_process import RunLimits, SimulationSlot
import msgspec

planned = sys.argv[1].encode()
run = msgspec.json.decode(planned, type=PlannedRun)
slot = SimulationSlot()
pid = slot.start().pid
threading.Timer(0.5, print, (pid,), {"flush": True}).start()
slot.run(planned, run.run_id, run.trace_file, RunLimits(seconds_max=600))
"""
"""A process that simulates, and says the number of its child meanwhile."""


@pytest.fixture
def slot() -> Iterator[SimulationSlot]:
    made = SimulationSlot()
    yield made
    made.close()


def endless(folder: Path) -> PlannedRun:
    """A run that takes many minutes: a month of beacons."""
    timeline = msgspec.structs.replace(SHORT, quiet_us=30 * 24 * 3600 * 1_000_000)
    return planned(folder, Substrate.DCS, timeline=timeline)


def large(folder: Path) -> PlannedRun:
    """A run with a trace that needs some hundred megabytes."""
    many = (insert(1, 0, f"object-{number}", text="x" * 20_000) for number in range(4_000))
    return planned(folder, story=trace(4, *many))


def simulated(slot: SimulationSlot, run: PlannedRun, limits: RunLimits) -> dict[str, object]:
    table = slot.run(msgspec.json.encode(run), run.run_id, run.trace_file, limits)
    [row] = table.to_pylist()
    found: dict[str, object] = row
    return found


def test_p11_a_killed_simulation_is_a_failed_run_and_the_next_one_works(
    slot: SimulationSlot, tmp_path: Path
) -> None:
    pid = slot.start().pid
    killer = threading.Timer(0.5, os.kill, (pid, signal.SIGKILL))
    killer.start()
    failed = simulated(slot, endless(tmp_path), RunLimits(seconds_max=PATIENCE_S))
    ended = simulated(slot, planned(tmp_path), RunLimits())

    assert (failed["state"], failed["run_id"]) == ("failed", endless(tmp_path).run_id)
    assert "its process was killed by SIGKILL, perhaps" in str(failed["error"])
    assert ended["state"] == "ended"
    assert slot.start().pid != pid


def test_p11_a_simulation_that_hangs_is_stopped_and_tells_where_it_was(
    slot: SimulationSlot, tmp_path: Path
) -> None:
    """Its trace is a pipe into which nobody writes."""
    run = planned(tmp_path)
    Path(run.trace_file).unlink()
    os.mkfifo(run.trace_file)

    failed = simulated(slot, run, RunLimits(seconds_max=1))

    assert failed["error"] == "took longer than 1 s and was stopped"
    assert "read_trace" in str(failed["trace_back"])


def test_p11_a_simulation_is_stopped_by_its_cpu_time_and_not_by_that_of_the_runs_before(
    slot: SimulationSlot, tmp_path: Path
) -> None:
    """A busy machine stretches the wall-clock time of a run, not its CPU time."""
    before_s = used_cpu_s(slot.start().pid)
    failed = simulated(slot, endless(tmp_path), RunLimits(cpu_seconds_max=0.3))
    assert failed["error"] == "used more than 0 s of CPU time and was stopped"
    assert "simulate" in str(failed["trace_back"])
    assert before_s > 0.1, "the process has used CPU time to start"

    slot.start()
    ended = simulated(slot, planned(tmp_path), RunLimits(cpu_seconds_max=60))
    assert ended["state"] == "ended"


def test_p11_by_default_cpu_time_is_limited_and_wall_clock_time_generously() -> None:
    run = cast("PlannedRun", SimpleNamespace(cost=SimpleNamespace(seconds=30.0)))
    limits = SweepLimits().for_run(run)
    assert (limits.cpu_seconds_max, limits.seconds_max) == (1_200.0, 12_000.0)
    assert SweepLimits(seconds_max=5).for_run(run).seconds_max == 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:01.50", 1.5), ("1:02:03", 3_723), ("2-00:00:01", 172_801), ("", 0)],
)
def test_the_cpu_time_that_ps_prints_is_understood(text: str, seconds: float) -> None:
    assert parse_cpu_time_s(text) == seconds


def test_p11_a_simulation_that_eats_memory_is_stopped(slot: SimulationSlot, tmp_path: Path) -> None:
    before = used_memory_bytes(slot.start().pid)
    limits = RunLimits(memory_max_bytes=before + 60 * MIB)

    failed = simulated(slot, large(tmp_path), limits)
    ended = simulated(slot, planned(tmp_path), limits)

    assert before > 10 * MIB
    assert str(failed["error"]).startswith("out of memory: ")
    assert ended["state"] == "ended"


def test_the_process_ends_with_its_parent(tmp_path: Path) -> None:
    """Also while it simulates: its input ends when the parent does."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, msgspec.json.encode(endless(tmp_path)).decode()],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    with parent:
        child = int(parent.stdout.readline())
        before = used_memory_bytes(child)
        parent.kill()
    until_s = time.monotonic() + PATIENCE_S
    while (after := used_memory_bytes(child)) and time.monotonic() < until_s:
        time.sleep(0.05)

    assert before > 0
    assert after == 0


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (3, "its process ended with status 3"),
        (-11, "its process was killed by SIGSEGV"),
        (-64, "its process was killed by SIGRTMAX"),
    ],
)
def test_the_status_of_a_process_tells_why_it_ended(status: int, reason: str) -> None:
    assert exit_reason(status) == reason


def test_p5_runs_that_die_hang_or_eat_memory_fail_alone_in_a_sweep(
    spark: SparkSession, tmp_path: Path
) -> None:
    good = [planned(tmp_path / "good", substrate) for substrate in Substrate]
    killed, eater = endless(tmp_path / "endless"), large(tmp_path / "large")
    results = RunResults(Warehouse(tmp_path / "w"))
    limits = SweepLimits(memory_max_bytes=220 * MIB)

    def kill_the_last(now: SweepProgress) -> None:
        if now.done == now.total - 1:
            for pid in simulation_processes():
                os.kill(pid, signal.SIGKILL)

    swept = sweep(spark, [killed, eater, *good], results, kill_the_last, limits)

    errors = {failure.run_id: failure.error for failure in swept.failures}
    assert errors.keys() == {killed.run_id, eater.run_id}
    assert "killed by SIGKILL" in errors[killed.run_id]
    assert "out of memory" in errors[eater.run_id]
    assert results.parts(ENDED).keys() == {run.run_id for run in good}
    stage = results.compact(spark)
    assert stage is not None
    assert kept(stage, good) == [result(run) for run in good]
    # The next command tries again: a shorter limit this time.
    again = sweep(spark, [killed, *good], results, limits=SweepLimits(seconds_max=2))
    assert (again.found, again.ran) == (3, 1)
    assert [each.error for each in again.failures] == ["took longer than 2 s and was stopped"]


def simulation_processes() -> list[int]:
    """The simulation processes below this one."""
    command = ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    parents = {int(pid): int(parent) for pid, parent, *_ in rows}
    found = [int(pid) for pid, _, *args in rows if args and WORKER in args[0]]
    return [pid for pid in found if _is_below(pid, os.getpid(), parents)]


def _is_below(pid: int, above: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != above:
        pid = parents[pid]
    return pid == above
