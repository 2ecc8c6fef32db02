"""Node processes on loopback, for tests with several terminals."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOON_S = 30.0
SHIFTED_CLOCK = Path(__file__).with_name("shifted_clock.py")


def free_group() -> str:
    """A multicast group that nobody else on this machine uses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return f"239.84.{random.randint(1, 254)}.{random.randint(1, 254)}:{port}"


class NodeProcess:
    """A running `thyme node`, `server` or `station`."""

    def __init__(self, command: str, *options: str | Path, clock: Path | None = None) -> None:
        """`clock` is a file with the microseconds by which the clock of the process is ahead."""
        program = ["-m", "thyme.cli"] if clock is None else [str(SHIFTED_CLOCK), str(clock)]
        words = [sys.executable, *program, command, *map(str, options)]
        words += ["--log-json", *([] if "--http" in options else ["--http", "127.0.0.1:0"])]
        words += [] if command == "station" else ["--interface", "127.0.0.1"]
        self._process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        self.ready = self.wait_for("ready")

    @property
    def url(self) -> str:
        """The address for its applications."""
        return str(self.ready["http"])

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, event: str) -> dict[str, Any]:
        """Reads the log up to an event."""
        assert self._process.stderr is not None
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            entry = json.loads(line) if line.startswith("{") else {}
            if entry.get("event") == event:
                return dict(entry)
        raise AssertionError(f"no {event!r} in the log: {''.join(lines)}")

    def kill(self) -> None:
        """Kills the process."""
        self._process.kill()
        self._end()

    def stop(self) -> int:
        """Asks the node to leave; returns the exit status."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._end()

    def _end(self) -> int:
        status = self._process.wait(SOON_S)
        assert self._process.stderr is not None
        self._process.stderr.close()
        return status


@contextmanager
def running(command: str, *options: str | Path) -> Iterator[NodeProcess]:
    """Runs a node inside the block."""
    node = NodeProcess(command, *options)
    try:
        yield node
    finally:
        node.stop()
