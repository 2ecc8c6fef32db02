"""Client composition: creates the components of a node that carry out the application's requests.

Entry point: `ClientParts`, which `NodeParts` creates.
Clauses: D11–D18, B10, D28, M34, M37.
"""

from __future__ import annotations

from collections import Counter

from thyme.model.tags import Tag
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.substrates.chunks.large_objects import LargeObjects
from thyme.substrates.common.client import Client
from thyme.substrates.common.client_interfaces import BrokerClient, ObjectClient
from thyme.substrates.common.gap_reader import GapReader
from thyme.substrates.common.subscriber import Subscriber
from thyme.substrates.dcs.client.cell_requests import missed_pages_from_cells
from thyme.substrates.dcs.client.key_cell_brokers import KeyCellBrokers
from thyme.substrates.dcs.client.key_choice import KeyChooser
from thyme.substrates.dcs.client.large_replicas import ReplicaLocator
from thyme.substrates.dcs.client.notification_receiver import NotificationReceiver
from thyme.substrates.dcs.client.objects import DcsObjectClient
from thyme.substrates.dcs.client.replica_announcements import PromptAnnouncer, SparingAnnouncer
from thyme.substrates.dcs.client.replica_locations import ReplicaLocations
from thyme.substrates.dcs.client.tag_popularity import TagPopularity
from thyme.substrates.dcs.config import KeyChoice
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.extension import NodeExtension


class ClientParts:
    """The components of one node that carry out the application's requests."""

    def __init__(
        self,
        context: NodeContext,
        authenticator: MessageAuthenticator | None,
        extension: NodeExtension | None,
        dropped: Counter[str],
    ) -> None:
        config = context.config
        self._context = context
        self._routing = context.routing
        self._signer = None if authenticator is None else authenticator.signer
        self.subscriber = Subscriber(
            context.node_id, context.outbox, context.store, config.subscriber, self._signer
        )
        self._replica_locations = ReplicaLocations()
        self.tag_popularity = TagPopularity()
        self._key_choice = config.key_choice
        self.key_chooser = KeyChooser(
            context.store,
            context.rng,
            config.key_choice,
            context.routing.cell_of_key,
            self._key_cost,
        )
        self.announcer: SparingAnnouncer | None = None
        # Stations count downloads by announcements (I5): their nodes announce every replica.
        if config.replication.announcements is not None and extension is None:
            self.announcer = SparingAnnouncer(
                context, self._replica_locations, config.replication.announcements
            )
        objects = DcsObjectClient(
            context,
            self.key_chooser,
            self._replica_locations,
            self.announcer or PromptAnnouncer(context.routing),
        )
        self.insert_pacer = objects.insert_pacer
        self.gap_reader = GapReader(
            self.subscriber,
            context.outbox,
            context.requests.next_id,
            missed_pages_from_cells(context.requests),
        )
        self.client = self._make_client(objects, extension)
        self.notifications = NotificationReceiver(
            context.routing,
            context.outbox,
            self.client,
            self.subscriber,
            self._replica_locations,
            dropped,
            config.notification_delivery.ack_delay_us,
        )

    def _make_client(self, dcs_objects: DcsObjectClient, extension: NodeExtension | None) -> Client:
        context = self._context
        objects: ObjectClient = dcs_objects
        checks = context.config.record_checks
        brokers: BrokerClient = KeyCellBrokers(
            context.requests,
            self.key_chooser,
            self._replica_locations,
            self.subscriber,
            0 if checks is None else checks.second_opinions,
            compare_counts=checks is not None and checks.compare_counts,
        )
        if extension is not None:
            objects, brokers = extension.extend_client(
                context, objects, brokers, self._replica_locations
            )
        return Client(
            context.node_id,
            objects,
            brokers,
            context.outbox,
            self.subscriber,
            context.rng,
            context.config.limits,
            dcs_objects.guarantees,
            self.gap_reader,
            self._signer,
            self._make_large_objects(dcs_objects) if context.config.in_chunks else None,
        )

    def _make_large_objects(self, objects: DcsObjectClient) -> LargeObjects:
        """Creates the component for objects in chunks (M37)."""
        context, large = self._context, self._context.large_replicas
        locator = ReplicaLocator(
            context.routing,
            context.requests,
            self._replica_locations,
            large.fetcher,
            objects.insert,
        )
        return LargeObjects(large.cache, large.fetcher, locator, context.config.limits)

    def _key_cost(self, tag: Tag) -> tuple[float, ...]:
        """The cost of a literal as the key of a conjunction: lower is preferred (B10)."""
        if self._key_choice is KeyChoice.FIRST:
            return ()
        key_cell = self._routing.cell_of_key(tag)
        distance = self._routing.distance(self._routing.cell, key_cell)
        if self._key_choice is KeyChoice.NEAREST:
            return (distance,)
        return (self.tag_popularity.count_of(tag), distance)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        self.subscriber.check()
        self.gap_reader.check()
        if self.announcer is not None:
            self.announcer.check()
        if self.insert_pacer is not None:
            self.insert_pacer.check()
