"""Checks of the machine: permissions and free space of the data folder, ports, and the clock.

Entry points: `check_permissions`, `check_disk`, `check_http_port`, `check_clock`.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

from thyme.doctor.check_results import CheckResult, failed, ok, skipped, warning
from thyme.live.keys.identity import KEY_FILE, SEED_BYTES
from thyme.live.node_factory import CLOCK_SKEW_US
from thyme.model.time_frames import format_instant
from thyme.storage.sqlite.disk_reserve import RESERVE_BYTES

LOW_SPACE_BYTES = 512 * 2**20
EARLIEST_CLOCK_US = 1_767_225_600_000_000
"""The start of 2026: a clock before it was never set."""


def check_permissions(data: Path) -> CheckResult:
    """Whether a node can read and write its data folder, and nobody else its key."""
    folder = next(path for path in (data, *data.parents) if path.exists())
    if not folder.is_dir():
        return failed("permissions", f"{folder} is not a folder", "choose another with --data")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return failed(
            "permissions",
            f"cannot write to {folder}: {error.strerror}",
            "change its owner or its permissions, or choose another folder with --data",
        )
    if folder != data:
        return ok("permissions", f"{data} does not exist yet and can be created")
    return _check_files(data)


def _check_files(data: Path) -> CheckResult:
    for file in sorted(data.iterdir()):
        if file.is_file() and not os.access(file, os.R_OK | os.W_OK):
            return failed(
                "permissions",
                f"{file} belongs to another user",
                f"run the node as the user who owns it, or: chown -R $USER {data}",
            )
    key = data / KEY_FILE
    if key.exists():
        status = key.stat()
        if status.st_mode & 0o077:
            return failed("permissions", f"others can read {key}", f"chmod 600 {key}")
        if status.st_size != SEED_BYTES:
            return failed(
                "permissions",
                f"{key} is damaged",
                "restore it from a copy, or remove it to start with a new node id",
            )
    return ok("permissions", f"{data} can be read and written")


def check_disk(data: Path) -> CheckResult:
    """Whether the disk of the data folder has space for objects."""
    folder = next(path for path in (data, *data.parents) if path.is_dir())
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**20:,.0f} MiB free at {folder}"
    if free <= RESERVE_BYTES:
        return failed(
            "disk",
            f"{text}: a node keeps {RESERVE_BYTES // 2**20} MiB free and refuses objects",
            "free some space, choose another --data, or limit the node with --retention",
        )
    if free < LOW_SPACE_BYTES:
        return warning("disk", text, "limit what the node stores: --retention bytes=100M")
    return ok("disk", text)


def check_http_port(host: str, port: int, *, node_answers: bool) -> CheckResult:
    """Whether the port for applications is free, or used by a node."""
    if node_answers:
        return ok("ports", f"TCP {port} on {host} is used by the running node")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return failed(
                "ports",
                f"TCP {port} on {host} cannot be used: {error.strerror}",
                f"choose another port: thyme node --http {host}:PORT",
            )
    return ok("ports", f"TCP {port} on {host} is free")


def check_clock(now_us: int, clocks_ahead_us: Sequence[int]) -> CheckResult:
    """Whether the clock agrees with those of the nodes in range (M12, M36)."""
    if now_us < EARLIEST_CLOCK_US:
        return failed(
            "clock", f"the clock says {format_instant(now_us)}", "set the clock, or start NTP"
        )
    if not clocks_ahead_us:
        return skipped("clock", "no node in range to compare with: an NTP client is enough")
    ahead_us = sorted(clocks_ahead_us)[len(clocks_ahead_us) // 2]
    if abs(ahead_us) > CLOCK_SKEW_US:
        side = "behind" if ahead_us > 0 else "ahead of"
        return failed(
            "clock",
            f"this clock is {abs(ahead_us) / 1e6:.1f} s {side} those of the nodes in range",
            f"set the clock: {CLOCK_SKEW_US / 1e6:.0f} s are tolerated",
        )
    return ok("clock", f"{abs(ahead_us) / 1e6:.1f} s from the nodes in range")
