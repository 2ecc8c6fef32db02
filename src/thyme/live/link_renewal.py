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
from thyme.transport.link import Link

POLL_S = 1.0
LINK_S_MAX = 900.0
"""The longest use of one identifier, even if there are always neighbours."""


async def renew_links(host: Host, link: Link, renew: Callable[[], Link]) -> None:
    """Replaces the link of a host after each encounter, until the host is closed."""
    loop = asyncio.get_running_loop()
    since, met = loop.time(), False
    while not host.closed:
        await asyncio.sleep(POLL_S)
        met = met or bool(link.neighbours)
        over = met and not link.neighbours
        if (over or loop.time() - since > LINK_S_MAX) and not link.has_pending and not host.closed:
            link = renew()
            host.replace_link(link)
            since, met = loop.time(), False
