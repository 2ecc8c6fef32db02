"""Link renewal: a device of an encounter world has another identifier in each encounter (U2).

Entry point: `renew_links`. The link of such a device has a random key, made for it alone. When the
device has met others and is alone again, or after a maximum time, it continues with a new link.
Events keep the signature of their publisher; the exchange does not tell who carries them.
Clause: U2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from thyme.live.host import Host
from thyme.model.ids import NodeId
from thyme.transport.link import Link

POLL_S = 1.0
LINK_S_MAX = 900.0
"""The longest use of one identifier, even if there are always neighbours."""


LinkWithId = tuple[Link, NodeId]
"""A link and the node id that it uses."""


async def renew_links(host: Host, first: LinkWithId, renew: Callable[[], LinkWithId]) -> None:
    """Replaces the link of a host after each encounter, until the host is closed."""
    loop = asyncio.get_running_loop()
    link, own_id = first
    last_id = own_id
    since, met = loop.time(), False
    while not host.closed:
        await asyncio.sleep(POLL_S)
        # A datagram of this device's last link may return to it as if from a neighbour.
        others = [neighbour for neighbour in link.neighbours if neighbour != last_id]
        met = met or bool(others)
        over = met and not others
        if (over or loop.time() - since > LINK_S_MAX) and not link.has_pending and not host.closed:
            last_id = own_id
            link, own_id = renew()
            host.replace_link(link)
            since, met = loop.time(), False
