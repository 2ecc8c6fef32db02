"""Simulation worker: the process that simulates the runs of a sweep, one after the other.

    python -m thyme.pipeline.sweep.simulation_worker

It is started and watched by `sweep.simulation_process`, and reads requests from standard input and
writes answers to standard output, as frames: eight bytes of length, then MessagePack. It ends with
its parent: when its input ends, also while a simulation is running.
Clauses: P5, P11.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from importlib.machinery import EXTENSION_SUFFIXES
from typing import BinaryIO

import msgspec
import pyarrow as pa

from thyme.pipeline.sweep.frames import Answer, Request, read_frame, write_frame
from thyme.pipeline.sweep.run_schemas import RUN_PART
from thyme.pipeline.sweep.runs.planned_run import failed_run
from thyme.pipeline.sweep.runs.run_kinds import AnyRun, simulate

RESERVED_BYTES = 1 << 30
"""Memory that libraries reserve and do not use; it counts for the limit of the system."""


def main() -> None:
    """Answers requests until the input ends."""
    # Whatever a library prints must not get between the frames.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: queue.Queue[Request] = queue.Queue()
    threading.Thread(target=_read_requests, args=(sys.stdin.buffer, requests), daemon=True).start()
    write_frame(output, Answer(compiled=runs_compiled()))
    while True:
        write_frame(output, answer(requests.get()))


def _read_requests(source: BinaryIO, requests: queue.Queue[Request]) -> None:
    while (request := read_frame(source, Request)) is not None:
        requests.put(request)
    os._exit(0)


def answer(request: Request) -> Answer:
    """Simulates a run; a failure of the simulation is a result too."""
    limit_memory(request.memory_max_bytes)
    run = msgspec.json.decode(request.planned, type=AnyRun)
    compiled = runs_compiled()
    try:
        row = simulate(run, request.trace_file)
        row["compiled"] = compiled
        return Answer(compiled=compiled, batch=encode_row(row))
    except MemoryError:
        error = f"out of memory: it needs more than {request.memory_max_bytes >> 20} MiB"
        row = failed_run(run.run_id, error, traceback.format_exc())
        return Answer(compiled=compiled, batch=encode_row(row), out_of_memory=True)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        row = failed_run(run.run_id, message, traceback.format_exc())
        return Answer(compiled=compiled, batch=encode_row(row))


def limit_memory(memory_max_bytes: int) -> None:
    """Makes allocations fail far above the limit, where the system can: on Linux. The parent looks
    at the memory in use now and then; this is for a run that takes much of it in between."""
    if sys.platform == "linux":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (memory_max_bytes + RESERVED_BYTES, most))


def runs_compiled() -> bool:
    """Whether this process runs the machine code of the simulator rather than its sources."""
    from thyme.sim.engine import driver

    return str(driver.__file__).endswith(tuple(EXTENSION_SUFFIXES))


def encode_row(row: dict[str, object]) -> bytes:
    """Encodes a row of RUN_PART in Arrow's own format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, RUN_PART) as writer:
        writer.write_table(pa.Table.from_pylist([row], RUN_PART))
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


if __name__ == "__main__":
    main()
