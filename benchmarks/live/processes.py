"""Node processes on loopback, for benchmarks: started, stopped for a while, measured."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

_START = """
import os, runpy, sys, time
from thyme.live.sockets import Sockets
offset, off = sys.argv.pop(1), sys.argv.pop(1)
class Switched(Sockets):
    def send(self, datagram, to):
        if not os.path.exists(off):
            super().send(datagram, to)
    @property
    def on_datagram(self):
        return lambda *words: os.path.exists(off) or self._handler(*words)
    @on_datagram.setter
    def on_datagram(self, handler):
        self._handler = handler
from thyme.daemon import daemon
daemon.run.__defaults__ = (*daemon.run.__defaults__[:-1], Switched)
real_ns = time.time_ns
def shifted():
    with open(offset) as file:
        return real_ns() + int(float(file.read() or 0) * 1e9)
time.time_ns, time.time = shifted, lambda: shifted() / 1e9
runpy.run_module("thyme.cli", run_name="__main__", alter_sys=True)
"""
"""Starts a command with a clock that is ahead of the real one by the seconds in a file, and a
network that drops everything while another file exists."""


def free_group() -> str:
    """A multicast group that nobody else on this machine uses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return f"239.84.{random.randint(1, 254)}.{random.randint(1, 254)}:{port}"


class NodeProcess:
    """A running `thyme node` or `thyme server`."""

    def __init__(self, command: str, directory: Path, *options: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._clock = directory / "clock-offset"
        if not self._clock.exists():
            self._clock.write_text("0")
        self._off = directory / "network-off"
        words = [sys.executable, "-c", _START, str(self._clock), str(self._off), command]
        words += ["--data", str(directory)]
        words += [*options, "--interface", "127.0.0.1", "--http", "127.0.0.1:0", "--log-json"]
        self._process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        self.url = str(self._read_until("ready")["http"])
        # The log must be read, or the process would block.
        threading.Thread(target=self._discard_log, daemon=True).start()

    def set_clock(self, ahead_s: float) -> None:
        """Sets the clock of the process, in seconds ahead of the real one."""
        with tempfile.NamedTemporaryFile("w", dir=self._clock.parent, delete=False) as file:
            file.write(str(ahead_s))
        Path(file.name).rename(self._clock)

    def disconnect(self) -> None:
        """Takes the process off the network: datagrams from it and to it are dropped."""
        self._off.touch()

    def connect(self) -> None:
        """Connects the process to the network again."""
        self._off.unlink()

    def stop(self) -> None:
        """Stops the process, as a phone that sleeps."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Lets a stopped process continue."""
        self._process.send_signal(signal.SIGCONT)

    def memory_mb_max(self) -> float:
        """The largest resident memory so far."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def terminate(self) -> None:
        """Ends the process."""
        self.go_on()
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read_until(self, event: str) -> dict[str, Any]:
        assert self._process.stderr is not None
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            entry = json.loads(line) if line.startswith("{") else {}
            if entry.get("event") == event:
                return dict(entry)
        raise RuntimeError(f"the node did not start: {''.join(lines)}")

    def _discard_log(self) -> None:
        assert self._process.stderr is not None
        for _ in self._process.stderr:
            pass
