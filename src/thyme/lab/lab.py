"""Labs: many live nodes on one machine, connected by a virtual radio.

`up` starts the supervisor process (`supervisor`), which runs the virtual radio and the nodes;
`read_status` reads the state that it writes; `down` stops the supervisor and all nodes. All files
of a lab are in one directory.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from thyme.lab.plan import LabPlan, choose_positions, start_order
from thyme.lab.supervisor import (
    LOCK_FILE,
    LOG_FILE,
    PLAN_FILE,
    STATE_FILE,
    STOP_S_MAX,
    LabState,
    last_log_line,
)
from thyme.model.errors import OptionError, StoreError

POLL_S = 0.1


def default_directory() -> Path:
    """The default directory of a lab."""
    state_home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_home) / "thyme" / "lab"


def up(directory: Path, plan: LabPlan, on_progress: Callable[[LabState], None]) -> LabState:
    """Starts a lab and waits until all its nodes are running."""
    if not plan.has_named_world:
        start_order(choose_positions(plan), plan.effective_range_m)
    if plan.namespaces:
        from thyme.lab.namespaces import check_namespaces

        check_namespaces()
    _prepare_directory(directory)
    (directory / PLAN_FILE).write_bytes(msgspec.json.encode(plan))
    supervisor_pid = _start_supervisor(directory)
    try:
        return _wait_until_ready(directory, supervisor_pid, on_progress)
    except BaseException:
        if not _has_ended(supervisor_pid):
            os.kill(supervisor_pid, signal.SIGTERM)
            os.waitpid(supervisor_pid, 0)
        raise


def read_status(directory: Path) -> LabState | None:
    """The state of the lab in a directory; None if no lab is running there."""
    return _read_state(directory) if _is_running(directory) else None


def down(directory: Path) -> int:
    """Stops a lab; returns the number of its nodes."""
    state = read_status(directory)
    if state is None:
        return 0
    os.kill(state.pid, signal.SIGTERM)
    deadline = time.monotonic() + 2 * STOP_S_MAX
    while _is_running(directory):
        if time.monotonic() > deadline:
            os.kill(state.pid, signal.SIGKILL)  # its nodes are killed with it
            break
        time.sleep(POLL_S)
    return len(state.nodes)


def _wait_until_ready(
    directory: Path, supervisor_pid: int, on_progress: Callable[[LabState], None]
) -> LabState:
    while True:
        state = _read_state(directory)
        if state is not None and state.pid == supervisor_pid:
            on_progress(state)
            if state.error:
                raise OptionError(f"the lab did not start: {state.error}")
            if state.ready:
                return state
        if _has_ended(supervisor_pid):
            raise OptionError(f"the lab did not start: {last_log_line(directory / LOG_FILE)}")
        time.sleep(POLL_S)


def _start_supervisor(directory: Path) -> int:
    """Starts the supervisor in a session of its own, so that it outlives this process."""
    command = [sys.executable, "-m", "thyme.lab.supervisor", str(directory)]
    log = os.open(directory / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    streams = [(os.POSIX_SPAWN_DUP2, null, 0)]
    streams += [(os.POSIX_SPAWN_DUP2, log, number) for number in (1, 2)]
    try:
        return os.posix_spawn(command[0], command, os.environ, file_actions=streams, setsid=True)
    finally:
        os.close(log)
        os.close(null)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _prepare_directory(directory: Path) -> None:
    """Prepares the directory for a new lab; removes only the files of an earlier lab."""
    if _is_running(directory):
        raise OptionError(f"a lab is running already in {directory}: stop it with thyme lab down")
    try:
        if directory.exists() and any(directory.iterdir()):
            if not (directory / PLAN_FILE).exists():
                raise OptionError(f"{directory} contains other files: choose another directory")
            shutil.rmtree(directory)
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot use {directory} for a lab: {error.strerror}") from error


def _is_running(directory: Path) -> bool:
    """Whether a supervisor holds the lock of the directory."""
    try:
        lock = os.open(directory / LOCK_FILE, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _read_state(directory: Path) -> LabState | None:
    try:
        return msgspec.json.decode((directory / STATE_FILE).read_bytes(), type=LabState)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise StoreError(f"{directory / STATE_FILE} is damaged: {error}") from error
