"""Examination: runs all checks of a machine, its network and its node.

Entry point: `examine`.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
from msgspec.structs import replace

from thyme.api.remote import NodeUnreachableError
from thyme.doctor import machine, network, running_node
from thyme.doctor.check_results import CheckResult
from thyme.live.interfaces import interface_name
from thyme.live.sockets import NetworkConfig


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What is examined."""

    data: Path
    http: tuple[str, int]
    node_url: str
    network: NetworkConfig
    seconds: float
    """How long to listen for other nodes."""


async def examine(subject: Subject) -> list[CheckResult]:
    """Runs all checks."""
    status = await running_node.fetch(subject.node_url)
    networks = [replace(subject.network, interfaces=(it,)) for it in subject.network.interfaces]
    received = await asyncio.gather(*(network.listen(each, subject.seconds) for each in networks))
    hosts = {host: count for each in received for host, count in each.hosts.items()}
    peers = [host for host, _ in subject.network.peers]
    reach = await network.probe_hosts([*hosts, *peers])
    now_us = time.time_ns() // 1_000
    answers = not isinstance(status, NodeUnreachableError)
    return [
        *(
            finding
            for config, one_received in zip(networks, received, strict=True)
            for finding in (
                network.check_interface(interface_name(config.interfaces[0]), config.interfaces[0]),
                *network.check_multicast(config, one_received),
            )
        ),
        *network.check_devices(hosts, peers, reach),
        machine.check_clock(now_us, [us for each in received for us in each.clocks_ahead_us]),
        machine.check_http_port(*subject.http, node_answers=answers),
        machine.check_disk(subject.data),
        machine.check_permissions(subject.data),
        running_node.check_node(subject.node_url, status),
    ]
