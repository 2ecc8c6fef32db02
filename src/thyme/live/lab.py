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

from thyme.live.lab_plan import LabPlan, places_of, waves_of
from thyme.live.lab_run import LOCK, LOG, PLAN, STATE, STOP_S_MAX, LabState, last_words
from thyme.model.errors import OptionError, StoreError

POLL_S = 0.1


def usual_directory() -> Path:
    """The default directory of a lab."""
    state_home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_home) / "thyme" / "lab"


def up(directory: Path, plan: LabPlan, on_progress: Callable[[LabState], None]) -> LabState:
    """Starts a lab and waits until all its nodes are running."""
    waves_of(places_of(plan), plan.reach_m)
    if plan.namespaces:
        from thyme.live.lab_spaces import check_spaces

        check_spaces()
    _clear(directory)
    (directory / PLAN).write_bytes(msgspec.json.encode(plan))
    keeper = _start_keeper(directory)
    try:
        return _await(directory, keeper, on_progress)
    except BaseException:
        if not _has_ended(keeper):
            os.kill(keeper, signal.SIGTERM)
            os.waitpid(keeper, 0)
        raise


def look(directory: Path) -> LabState | None:
    """The state of the lab in a directory; None if no lab is running there."""
    return _state(directory) if _is_kept(directory) else None


def down(directory: Path) -> int:
    """Stops a lab; returns the number of its nodes."""
    state = look(directory)
    if state is None:
        return 0
    os.kill(state.pid, signal.SIGTERM)
    deadline = time.monotonic() + 2 * STOP_S_MAX
    while _is_kept(directory):
        if time.monotonic() > deadline:
            os.kill(state.pid, signal.SIGKILL)  # its nodes are killed with it
            break
        time.sleep(POLL_S)
    return len(state.nodes)


def _await(directory: Path, keeper: int, on_progress: Callable[[LabState], None]) -> LabState:
    while True:
        state = _state(directory)
        if state is not None and state.pid == keeper:
            on_progress(state)
            if state.trouble:
                raise OptionError(f"the lab did not start: {state.trouble}")
            if state.ready:
                return state
        if _has_ended(keeper):
            raise OptionError(f"the lab did not start: {last_words(directory / LOG)}")
        time.sleep(POLL_S)


def _start_keeper(directory: Path) -> int:
    """Starts the supervisor in a session of its own, so that it outlives this process."""
    command = [sys.executable, "-m", "thyme.live.lab_run", str(directory)]
    log = os.open(directory / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    streams = [(os.POSIX_SPAWN_DUP2, null, 0)]
    streams += [(os.POSIX_SPAWN_DUP2, log, number) for number in (1, 2)]
    try:
        return os.posix_spawn(command[0], command, os.environ, file_actions=streams, setsid=True)
    finally:
        os.close(log)
        os.close(null)


def _has_ended(keeper: int) -> bool:
    try:
        return os.waitpid(keeper, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _clear(directory: Path) -> None:
    """Prepares the directory for a new lab; removes only the files of an earlier lab."""
    if _is_kept(directory):
        raise OptionError(f"a lab is running already in {directory}: stop it with thyme lab down")
    try:
        if directory.exists() and any(directory.iterdir()):
            if not (directory / PLAN).exists():
                raise OptionError(f"{directory} contains other files: choose another directory")
            shutil.rmtree(directory)
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot use {directory} for a lab: {error.strerror}") from error


def _is_kept(directory: Path) -> bool:
    """Whether a supervisor holds the lock of the directory."""
    try:
        lock = os.open(directory / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _state(directory: Path) -> LabState | None:
    try:
        return msgspec.json.decode((directory / STATE).read_bytes(), type=LabState)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise StoreError(f"{directory / STATE} is damaged: {error}") from error
