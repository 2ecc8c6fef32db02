"""Examination: runs all checks of a machine, its network and its node.

Entry point: `examine`.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from thyme.api.remote import NodeUnreachableError
from thyme.doctor import machine, network, running_node
from thyme.doctor.findings import Finding
from thyme.live.sockets import NetworkConfig


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What is examined."""

    data: Path
    http: tuple[str, int]
    node_url: str
    network: NetworkConfig
    interface: str | None
    """Name of the interface; None if an address or nothing was given."""
    seconds: float
    """How long to listen for other nodes."""


async def examine(subject: Subject) -> list[Finding]:
    """Runs all checks."""
    status = await running_node.fetch(subject.node_url)
    heard = await network.listen(subject.network, subject.seconds)
    peers = [host for host, _ in subject.network.peers]
    reach = await network.probe_hosts([*heard.hosts, *peers])
    now_us = time.time_ns() // 1_000
    answers = not isinstance(status, NodeUnreachableError)
    return [
        network.check_interface(subject.interface, subject.network.interface),
        *network.check_multicast(subject.network, heard),
        *network.check_devices(heard.hosts, peers, reach),
        machine.check_clock(now_us, heard.clocks_ahead_us),
        machine.check_http_port(*subject.http, node_answers=answers),
        machine.check_disk(subject.data),
        machine.check_permissions(subject.data),
        running_node.check_node(subject.node_url, status),
    ]
