"""Message handlers: names the component that handles each message a Thyme-DCS node accepts.

Entry point: `MessageHandlers.find`; the messages of cell routing are not among them.
Clauses: D11–D18, D21–D24, B1–B3, B6, M37.
"""

from __future__ import annotations

from typing import Any

from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import chunks as chunk_wire
from thyme.protocol.messages import common as wire
from thyme.routing.cells import Delivery
from thyme.substrates.dcs.composition import NodeParts
from thyme.substrates.dcs.dispatch import Handler, HandlerTable


class MessageHandlers:
    """The handlers of the messages that are delivered to one node."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts
        self.table = HandlerTable()
        self._add_requests()
        self._add_notifications()
        self._add_replicas()
        self._add_membership()
        if parts.extension is not None:
            parts.extension.add_handlers(self.table, parts.service)

    def find(self, delivery: Delivery) -> Handler[Any] | None:
        """Returns the handler of a delivered message; None if it is not accepted."""
        return self.table.find(delivery, self._parts.routing.cell)

    def _add_requests(self) -> None:
        """Requests to the cell and the replies to this node's own (D11–D18)."""
        table, service, requests = self.table, self._parts.service, self._parts.requests
        answering, read_object = service.answering, service.answering(service.read_object)
        table.add(cell_wire.IndexObject, to_cell=answering(service.index_object))
        table.add(wire.DeleteObject, to_cell=answering(service.delete_object))
        table.add(wire.StartSubscription, to_cell=answering(service.start_subscription))
        table.add(wire.StopSubscription, to_cell=answering(service.stop_subscription))
        table.add(wire.FetchPage, to_cell=answering(service.read_page))
        read_missed = answering(service.read_missed)
        table.add(wire.FetchMissed, to_cell=read_missed, to_node=read_missed)
        table.add(wire.FetchStatus, to_cell=answering(service.read_status))
        table.add(wire.FetchObject, to_cell=read_object, to_node=read_object)
        table.add(wire.ReplyFromCell, to_node=self._on_cell_reply)
        table.add(wire.ObjectData, to_node=requests.on_node_reply)
        table.add(wire.Refused, to_node=self._on_refused)
        table.add(wire.MissedPage, to_node=requests.on_node_reply)
        table.add(wire.Done, to_node=requests.on_node_reply)

    def _add_notifications(self) -> None:
        """Notifications of subscribers, and their acknowledgements (D17, B3)."""
        table, receiver = self.table, self._parts.client.notifications
        table.add(cell_wire.CellNotify, to_node=receiver.on_notify)
        table.add(cell_wire.CellNotifyBatch, to_node=receiver.on_notify_batch)
        table.add(wire.Missed, to_node=receiver.on_missed)
        delivery = self._parts.service.notification_delivery
        table.add(cell_wire.NotifyAck, to_node=delivery.on_ack)

    def _add_replicas(self) -> None:
        """Replicas of objects (D11–D14, B6), whole and in chunks (M37)."""
        table, service, large = self.table, self._parts.service, self._parts.large_replicas
        table.add(
            cell_wire.StoreReplica, to_cell=self._on_store_replica, to_node=self._on_store_replica
        )
        confirm_replica = service.answering(self._parts.replica_confirmer.confirm_replica)
        table.add(cell_wire.ConfirmReplica, to_node=confirm_replica)
        table.add(cell_wire.AnnounceReplica, to_cell=service.on_announce_replica)
        table.add(cell_wire.AnnounceReplicas, to_cell=service.on_announce_replicas)
        list_cell_nodes = service.answering(large.list_cell_nodes)
        table.add(chunk_wire.FetchChunkList, to_cell=list_cell_nodes, to_node=large.on_request)
        table.add(chunk_wire.FetchChunk, to_node=large.on_request)
        table.add(chunk_wire.StoredChunks, to_node=large.on_reply)
        table.add(chunk_wire.ChunkData, to_node=large.on_reply)

    def _add_membership(self) -> None:
        """Cells whose nodes move, fail or return, and the state of the own cell (D21–D24, B1,
        B2)."""
        table, membership = self.table, self._parts.membership
        table.add(cell_wire.LocationUpdate, to_cell=membership.on_location_update)
        table.add(cell_wire.ReindexObjects, to_cell=membership.on_reindex_objects)
        table.add(cell_wire.TransferState, to_cell=membership.on_transfer_state)
        if membership.backups is not None:
            table.add(cell_wire.BackupState, to_cell=membership.backups.on_backup_state)
        table.add(cell_wire.StateTransferred, from_peer=membership.on_state_transferred)
        table.add(cell_wire.SuspectSubscriber, from_peer=membership.on_suspect_subscriber)
        table.add(cell_wire.FetchCellState, to_node=self._parts.joining.on_state_request)
        table.add(cell_wire.CellState, to_node=self._on_cell_state)
        anti_entropy = self._parts.anti_entropy
        if anti_entropy is not None:
            table.add(cell_wire.CellDigest, to_node=anti_entropy.on_digest)
            table.add(cell_wire.CellRecordHashes, to_node=anti_entropy.on_record_hashes)

    def _on_cell_reply(self, delivery: Delivery, message: wire.ReplyFromCell, now_us: int) -> None:
        reply = message.message
        if isinstance(reply, wire.CellReply):
            self._parts.requests.on_cell_reply(message.cell, reply, now_us)
        else:
            self._parts.dropped["not for a node"] += 1

    def _on_refused(self, delivery: Delivery, message: wire.Refused, now_us: int) -> None:
        if not self._parts.large_replicas.fetcher.on_reply(delivery.origin, message, now_us):
            self._parts.requests.on_node_reply(delivery, message, now_us)

    def _on_store_replica(
        self, delivery: Delivery, message: cell_wire.StoreReplica, now_us: int
    ) -> None:
        self._parts.client.tag_popularity.add_tags(message.metadata.tags)
        if message.holders:
            self._parts.replica_upkeep.on_store_replica(delivery, message, now_us)
        else:
            self._parts.service.on_store_replica(delivery, message, now_us)

    def _on_cell_state(self, delivery: Delivery, message: cell_wire.CellState, now_us: int) -> None:
        parts = self._parts
        if parts.anti_entropy is not None and parts.routing.serving:
            parts.anti_entropy.on_state(delivery, message, now_us)
        else:
            parts.joining.on_state(delivery.origin, message, now_us)
