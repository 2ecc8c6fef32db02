"""Simulation process: runs each simulation in a process of its own, with limits.

Entry point: `SimulationSlot.run`, called by a Spark task. A Spark worker keeps one simulation
process (`sweep.simulation_worker`) for all of its runs, so that the simulator is imported once. The
process is watched: one that takes too much time, CPU time or memory is killed. A run whose process
dies, for whatever reason, fails with that reason, and the next run gets a new process.
Clauses: P5, P11. Decision: docs/decisions/0017-sweep-isolation.md.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
import pyarrow as pa

from thyme.model.errors import ThymeError
from thyme.pipeline.executors import package_copies
from thyme.pipeline.sweep.frames import Answer, Request, read_frame, write_frame
from thyme.pipeline.sweep.run_schemas import RUN_PART
from thyme.pipeline.sweep.runs.planned_run import failed_run

WATCH_S = 0.2
START_S_MAX = 300.0
"""Time for Python to start and import the simulator, on a machine with much other work."""
ABORT_S = 2.0
"""Time for a process to write where it was, before it is killed."""
_STDERR_TAIL_BYTES = 4_000
_HAS_PROC = Path("/proc/self/statm").exists()
"""Whether the system is Linux; macOS has no such files."""


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a simulation."""

    memory_max_bytes: int = 4 << 30
    seconds_max: float = 24 * 3600.0
    cpu_seconds_max: float = 24 * 3600.0
    """CPU time does not pass while a busy machine works on something else."""


class SimulationDiedError(ThymeError):
    """The process of a simulation ended without a result; the message names the reason."""

    code = "simulation_died"

    def __init__(self, reason: str, stderr: str = "") -> None:
        super().__init__(reason)
        self.stderr = stderr
        """The last lines that the process wrote: with luck, where it was."""


class SimulationProcess:
    """A child process that simulates runs."""

    def __init__(self, package: Path) -> None:
        """Starts the process with a copy of the package and waits until it is ready."""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "thyme.pipeline.sweep.simulation_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._answers: BinaryIO = self._process.stdout  # type: ignore[assignment]
        self._requests: BinaryIO = self._process.stdin  # type: ignore[assignment]
        try:
            limits = RunLimits(seconds_max=START_S_MAX)
            self.compiled = self._receive(limits).compiled
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def simulate(self, planned: bytes, trace_file: str | None, limits: RunLimits) -> Answer:
        """Simulates a planned run, given as JSON; an error if the process does not answer."""
        memory_max = limits.memory_max_bytes
        request = Request(planned=planned, trace_file=trace_file, memory_max_bytes=memory_max)
        # The answer, or its absence, tells more than a broken pipe.
        with suppress(BrokenPipeError):
            write_frame(self._requests, request)
        return self._receive(limits)

    def close(self) -> None:
        """Ends the process."""
        with suppress(OSError):
            self._requests.close()
        self._process.kill()
        self._process.wait()
        self._answers.close()
        self._stderr.close()

    def _receive(self, limits: RunLimits) -> Answer:
        """Waits for an answer and watches the process meanwhile."""
        until_s = time.monotonic() + limits.seconds_max
        cpu_until_s = used_cpu_s(self.pid) + limits.cpu_seconds_max
        while not select.select([self._answers], [], [], WATCH_S)[0]:
            if time.monotonic() > until_s:
                self._abort()
                raise self._death(f"took longer than {limits.seconds_max:.0f} s and was stopped")
            if used_cpu_s(self.pid) > cpu_until_s:
                self._abort()
                raise self._death(
                    f"used more than {limits.cpu_seconds_max:.0f} s of CPU time and was stopped"
                )
            used = used_memory_bytes(self.pid)
            if used > limits.memory_max_bytes:
                self._process.kill()
                raise self._death(
                    f"out of memory: used {used >> 20} MiB of {limits.memory_max_bytes >> 20} MiB "
                    "and was stopped"
                )
        answer = read_frame(self._answers, Answer)
        if answer is None:
            raise self._death(None)
        return answer

    def _abort(self) -> None:
        """Ends the process after it has written where it was (`-X faulthandler`)."""
        self._process.send_signal(signal.SIGABRT)
        try:
            self._process.wait(ABORT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _death(self, reason: str | None) -> SimulationDiedError:
        status = self._process.wait()
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - _STDERR_TAIL_BYTES))
        stderr = self._stderr.read().decode(errors="replace").strip()
        return SimulationDiedError(reason or exit_reason(status), stderr)


def exit_reason(status: int) -> str:
    """Why a process ended, from its exit status."""
    if status >= 0:
        return f"its process ended with status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    # Nobody but the system, or a person, sends this signal.
    more = ", perhaps because the machine ran out of memory" if name == "SIGKILL" else ""
    return f"its process was killed by {name}{more}"


def used_memory_bytes(pid: int) -> int:
    """The memory that a process uses; 0 if it has ended."""
    if _HAS_PROC:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return int(found) * 1024 if found.isdigit() else 0


def used_cpu_s(pid: int) -> float:
    """The CPU time that a process has used; 0 if it has ended."""
    if _HAS_PROC:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The name of the program, in parentheses, may contain anything.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    command = ["ps", "-o", "time=", "-p", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return parse_cpu_time_s(found)


def parse_cpu_time_s(text: str) -> float:
    """Seconds of a CPU time as `ps` prints it: `[[days-]hours:]minutes:seconds`; 0 if there is
    none."""
    days, _, clock = text.rpartition("-")
    seconds = 0.0
    for part in clock.split(":") if clock else ():
        seconds = 60 * seconds + float(part)
    return 86_400 * int(days or 0) + seconds


# The process of this worker


class SimulationSlot:
    """The place of a Spark worker's simulation process, which is started when it is needed.

    `files_root` is the folder with the files that Spark has fetched, the package among them.
    """

    def __init__(self, files_root: str | None = None) -> None:
        self._files_root = files_root
        self._process: SimulationProcess | None = None
        self._plain_only = False
        self._lock = threading.Lock()

    def run(
        self, planned: bytes, run_id: str, trace_file: str | None, limits: RunLimits
    ) -> pa.Table:
        """Simulates one run; returns a row of RUN_PART, also if the process died."""
        with self._lock:
            try:
                process = self.start()
                answer = process.simulate(planned, trace_file, limits)
            except SimulationDiedError as death:
                self.close()
                row = failed_run(run_id, str(death), death.stderr)
                return pa.Table.from_pylist([row], RUN_PART)
            if answer.out_of_memory:
                self.close()
        return pa.ipc.open_stream(answer.batch).read_all()

    def start(self) -> SimulationProcess:
        """Starts the process unless it runs."""
        if self._process is None or not self._process.alive:
            self.close()
            self._process = self._start_best()
        return self._process

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _start_best(self) -> SimulationProcess:
        """Starts a process with the compiled package if that works here, or with the sources."""
        *compiled, own = package_copies(self._files_root)
        for package in compiled if not self._plain_only else ():
            try:
                return SimulationProcess(package)
            except SimulationDiedError as death:
                # It does not fit this machine, and will not the next time.
                self._plain_only = True
                [*_, reason] = [str(death), *death.stderr.splitlines()]
                print(f"thyme: runs plain Python, not compiled: {reason}", file=sys.stderr)
        return SimulationProcess(own)
