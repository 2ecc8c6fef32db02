"""Check of the running node: whether it answers, and what it says about itself.

Entry point: `check_node`.
"""

from __future__ import annotations

import aiohttp
from aiohttp import ClientSession

from thyme.api.remote import NodeUnreachableError, fetch_any_status, normalise_url
from thyme.distribution import VERSION
from thyme.doctor.check_results import CheckResult, failed, ok, skipped, warning
from thyme.live.status import NodeStatus, StationStatus

ANSWER_S = 3.0


async def fetch(url: str) -> NodeStatus | StationStatus | NodeUnreachableError:
    """The status of the node at a URL, or the reason why there is none."""
    try:
        async with ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S)) as session:
            return await fetch_any_status(session, normalise_url(url))
    except NodeUnreachableError as error:
        return error
    except TimeoutError:
        return NodeUnreachableError(f"the program at {url} does not answer")


def check_node(url: str, status: NodeStatus | StationStatus | NodeUnreachableError) -> CheckResult:
    """Whether the node answers and is well."""
    if isinstance(status, NodeUnreachableError):
        if status.not_listening:
            return skipped("node", f"no node runs at {url}", "start one: thyme node --world NAME")
        return failed(
            "node", str(status), "another program has this port, or the node hangs: restart it"
        )
    if isinstance(status, StationStatus):
        return ok("node", f"the base station {status.station} runs at {url}")
    if status.storage.full:
        return failed("node", "the node refuses objects: its disk is full", "free some space")
    if status.hint is not None:
        return failed("node", "the node needs attention", status.hint)
    if status.version != VERSION:
        return warning(
            "node",
            f"the node runs version {status.version}, this command is {VERSION}",
            "restart the node to upgrade it",
        )
    if not status.neighbours:
        return warning(
            "node",
            f"the node runs in the world {status.world.name!r} and has no neighbour",
            "start a node on another device; if there is one, see the other lines",
        )
    return ok("node", f"runs in {status.world.name!r} with {len(status.neighbours)} neighbours")
