"""Sender limits: what the host tells the link and the kernel about senders that cost too much.

Entry point: `SenderLimits`. The limits themselves are up to `fair_inbox`, `socket_filter` and
`thyme.transport.peer_shares`, memory to `freed_memory`.
Clauses: B5.
"""

from __future__ import annotations

from collections.abc import Callable

from thyme.live.limits.fair_inbox import FairInbox
from thyme.live.limits.freed_memory import FreedMemory
from thyme.protocol.node import Action, Input, Node, Received
from thyme.transport.link import Link
from thyme.transport.link_config import Address, HostLink

FilterSenders = Callable[[list[Address], list[Address], float], None]
"""Lets the kernel drop datagrams of banned addresses, and a share of those of unknown ones."""


class SenderLimits:
    """Connects the inbox of one node with its link, if the link keeps accounts of senders."""

    def __init__(
        self,
        inbox: FairInbox,
        filter_senders: FilterSenders | None,
        count_invalid: Callable[[], int] | None,
        count_refused: Callable[[], int],
    ) -> None:
        """`count_invalid` is the number of records with a false signature so far, `count_refused`
        that of floods beyond what their senders may send."""
        self._inbox = inbox
        self._filter_senders = filter_senders
        self._count_invalid = count_invalid
        self._count_refused = count_refused
        self._filter_revision = 0
        self._freed_memory = FreedMemory()
        self.link: Link | None = None

    def watch(self, link: HostLink | None) -> None:
        """Lets a link know which senders have too many messages waiting in the inbox."""
        self._filter_revision = 0
        self.link = link if isinstance(link, Link) else None
        if self.link is not None:
            self.link.full_senders = self._inbox.full_senders
            self.link.full_broadcasters = self._inbox.full_broadcasters

    @property
    def is_shared(self) -> bool:
        """Whether several neighbours use this node: it reads what they sent before it handles
        more, or a fast one would fill the receive buffer, where datagrams of all are lost."""
        return self.link is not None and self.link.neighbour_count > 1

    def update_filter(self) -> None:
        """Lets the kernel drop the datagrams of addresses that the link has banned."""
        link = self.link
        if link is not None and link.shares.revision != self._filter_revision:
            self._filter_revision = link.shares.revision
            if self._filter_senders is not None:
                shares = link.shares
                self._filter_senders(shares.banned(), shares.known(), shares.stranger_share)

    def on_alarm(self, now_us: int) -> None:
        """Does what is due with the timers of the node."""
        self.update_filter()
        if self.link is not None:
            self._freed_memory.update(self.link.incomplete_bytes, now_us)

    def handle(self, node: Node, event: Input, now_us: int) -> list[Action]:
        """Lets a node handle an input, and charges the invalid records of a message to the
        neighbour that wrote it: one that forwards the message of another cannot know. A refused
        flood is charged to whoever sent it."""
        if self._count_invalid is None or not isinstance(event, Received):
            return node.handle(event, now_us)
        before, refused_before = self._count_invalid(), self._count_refused()
        actions = node.handle(event, now_us)
        invalid = self._count_invalid() - before
        is_author = getattr(event.message, "origin", event.sender) == event.sender
        if self.link is not None:
            if invalid and is_author:
                self.link.charge(event.sender, "not genuine", now_us, invalid)
            if self._count_refused() != refused_before:
                self.link.charge(event.sender, "too many floods", now_us, 1)
        return actions
