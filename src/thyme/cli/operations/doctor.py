"""thyme doctor: checks what a live node needs on this machine and network."""

from __future__ import annotations

import os
from argparse import Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.cli.node import (
    DATA_DIR,
    HTTP_ADDRESS,
    add_network,
    coroutine_runner,
    network_config,
    parse_address,
    require_live,
)

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers

HELP = """\
Checks interface, multicast, firewall, client isolation of the access point, clock, ports, disk,
permissions, and the node that runs here, if any. The exit status is 1 if a check failed.

examples:
  thyme doctor
  thyme doctor --peer 192.168.1.7:8472       also try to reach this device
  thyme doctor --json
"""


def add_to(commands: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "doctor",
        help="find out why a node does not work, and what to do",
        description="Find out why a live node does not work here, and what to do.",
        epilog=HELP,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", metavar="DIR", type=Path, default=DATA_DIR,
        help=f"data folder of the node (default: {DATA_DIR})")  # fmt: skip
    parser.add_argument("--http", metavar="A:PORT", default=HTTP_ADDRESS,
        help=f"address of the node for applications (default: {HTTP_ADDRESS})")  # fmt: skip
    parser.add_argument("--node", metavar="URL", default=os.environ.get("THYME_NODE"),
        help="URL of the running node (default: $THYME_NODE or that of --http)")  # fmt: skip
    add_network(parser)
    parser.add_argument("--port", metavar="N", type=int, default=0,
        help="UDP port that a node would use (default: any)")  # fmt: skip
    parser.add_argument("--seconds", metavar="S", type=float, default=2.5,
        help="how long to listen for nodes (default: 2.5)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.set_defaults(run=doctor_command)


def doctor_command(args: Namespace) -> int:
    """thyme doctor"""
    require_live()
    import msgspec

    from thyme.doctor.check_results import is_healthy
    from thyme.doctor.examine import Subject, examine

    host, port = parse_address(args.http, "--http")
    subject = Subject(
        data=args.data,
        http=(host, port),
        node_url=args.node or f"http://{host}:{port}",
        network=network_config(args),
        seconds=args.seconds,
    )
    findings = coroutine_runner()(examine(subject))
    if args.json:
        print(msgspec.json.encode(findings).decode())
    else:
        for finding in findings:
            print(f"{finding.verdict:<8} {finding.check:<12} {finding.text}")
            if finding.advice is not None:
                print(f"{'':<21} -> {finding.advice}")
    return 0 if is_healthy(findings) else 1
