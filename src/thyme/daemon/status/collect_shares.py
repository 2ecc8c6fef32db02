"""Share collection: what each neighbour and each author of records costs a node.

Entry point: `collect_shares`, for `thyme status --peers`. The records are in `thyme.live.status`.
Clauses: B5. Decision: docs/decisions/0050-fair-shares.md.
"""

from __future__ import annotations

from thyme.live.node_factory import SubstrateNode, unwrap_node
from thyme.live.open_node import LiveNode
from thyme.live.sockets import format_address
from thyme.live.status import AddressShare, AuthorShare, SharesStatus
from thyme.model.ids import NodeId
from thyme.substrates.common.quotas import PeerUsage, UsageTable
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.encounters.node import EncounterNode
from thyme.transport.link_config import Address
from thyme.transport.neighbour_table import NeighbourState

_SHARES_MAX = 200


def collect_shares(live_node: LiveNode, now_us: int) -> SharesStatus:
    """Collects the shares of the addresses and authors with most bytes."""
    shares, full = live_node.link.shares, live_node.link.full_senders
    neighbours: dict[Address, list[tuple[NodeId, NeighbourState]]] = {}
    for node_id, state in live_node.link.describe_neighbours():
        neighbours.setdefault(state.address, []).append((node_id, state))
    addresses = [
        AddressShare(
            address=format_address(address),
            nodes=tuple(node_id.hex() for node_id, _ in neighbours.get(address, ())),
            datagrams=account.datagrams,
            bytes=account.bytes,
            dropped=account.dropped,
            inbox_full=any(node_id in full for node_id, _ in neighbours.get(address, ())),
            reassembly_bytes=sum(
                state.reassembler.stored_bytes for _, state in neighbours.get(address, ())
            ),
            bans=account.bans,
            banned_us=max(0, account.banned_until_us - now_us),
        )
        for address, account in shares.accounts()
    ]
    addresses.sort(key=lambda share: (-share.bytes, share.address))
    return SharesStatus(
        addresses=tuple(addresses[:_SHARES_MAX]),
        authors=tuple(_author_shares(live_node)[:_SHARES_MAX]),
        bans=shares.bans,
        stranger_share=shares.stranger_share,
    )


def _author_shares(live_node: LiveNode) -> list[AuthorShare]:
    signer = live_node.signer
    verifications = {} if signer is None else dict(signer.verifications)
    rejections = {} if signer is None else dict(signer.rejections)
    objects, subscriptions = _usages(unwrap_node(live_node.node))
    authors = dict.fromkeys((*objects, *subscriptions, *verifications, *rejections))
    found = [
        AuthorShare(
            node=author.hex(),
            verifications=verifications.get(author, 0),
            rejected=rejections.get(author, 0),
            objects=objects.get(author, PeerUsage(author)).count,
            bytes=objects.get(author, PeerUsage(author)).bytes,
            subscriptions=subscriptions.get(author, PeerUsage(author)).count,
        )
        for author in authors
    ]
    return sorted(found, key=lambda share: (-share.bytes, -share.verifications, share.node))


def _usages(
    inner: SubstrateNode,
) -> tuple[dict[NodeId, PeerUsage], dict[NodeId, PeerUsage]]:
    """What this node stores for others, by owner and by subscriber."""
    if isinstance(inner, EncounterNode):
        return {}, {}
    if isinstance(inner, DcsNode):
        return _by_peer(inner.replicas.usage), _by_peer(inner.index.broker.usage)
    if inner.broker is None:
        return {}, {}
    return _by_peer(inner.broker.catalogue.usage), _by_peer(inner.broker.usage)


def _by_peer(table: UsageTable) -> dict[NodeId, PeerUsage]:
    return {usage.peer: usage for usage in table.usages()}
