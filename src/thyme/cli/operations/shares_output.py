"""Shares output: what neighbours and authors cost a node as tables, for `thyme status --peers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thyme.live.status import AddressShare, SharesStatus

_ROWS_MAX = 20
_ID_CHARS = 12


def shares_tables(shares: SharesStatus) -> Any:
    """Formats the shares of a node: neighbours above, authors of records below."""
    from rich.console import Group
    from rich.table import Table

    neighbours = Table(box=None, pad_edge=False)
    for title in ("address", "node"):
        neighbours.add_column(title)
    for title in ("datagrams", "bytes", "dropped", "incomplete", "bans"):
        neighbours.add_column(title, justify="right")
    neighbours.add_column("")
    for share in shares.addresses[:_ROWS_MAX]:
        counts = (share.datagrams, share.bytes, share.dropped, share.reassembly_bytes, share.bans)
        nodes = ", ".join(node[:_ID_CHARS] for node in share.nodes) or "stranger"
        neighbours.add_row(share.address, nodes, *(f"{n:,}" for n in counts), _remark(share))
    authors = Table(box=None, pad_edge=False)
    authors.add_column("author")
    for title in ("verified", "rejected", "objects", "bytes", "subscriptions"):
        authors.add_column(title, justify="right")
    for each in shares.authors[:_ROWS_MAX]:
        numbers = (
            each.verifications,
            each.rejected,
            each.objects,
            each.bytes,
            each.subscriptions,
        )
        authors.add_row(each.node[:_ID_CHARS], *(f"{n:,}" for n in numbers))
    total = f"{shares.bans} bans, {shares.stranger_share:.0%} of strangers' datagrams received"
    return Group(neighbours, "", authors, "", total)


def _remark(share: AddressShare) -> str:
    if share.banned_us:
        return f"banned for {share.banned_us / 1e6:.0f} s"
    return "too many messages wait" if share.inbox_full else ""
