"""Thyme-DCS node: composes the components of one node and dispatches inputs and messages to them.

Entry point: `DcsNode.handle`. Cell routing, below, delivers messages to this node or its cell and
sends its own messages. The node issues requests through its client (`client.objects`,
`client.key_cells`), serves requests for its cell (`service.cell_service`), and joins the cell
before it serves it (`membership.joining`).
Clauses: D11–D19, D23, M21, M24.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import Any, assert_never

from msgspec.structs import replace

from thyme.model.ids import NodeId
from thyme.model.tags import Tag
from thyme.protocol import cell_messages as cell_wire
from thyme.protocol import messages as wire
from thyme.protocol.cells import CellId, Matched
from thyme.protocol.node import (
    Action,
    Asked,
    Input,
    Leaving,
    Moved,
    Received,
    SendFailed,
    Started,
    TimerFired,
)
from thyme.protocol.outbox import Outbox
from thyme.protocol.requests import Insert, Together
from thyme.protocol.warden import Warden
from thyme.routing.cells import Arrival, NotThere, Sighting, To
from thyme.storage.store import Shelf, Store
from thyme.substrates.broker import SUBSCRIPTIONS
from thyme.substrates.catalogue import OBJECTS
from thyme.substrates.client import Client, Guarantees
from thyme.substrates.dcs.asks import AskTimer, CellAsks
from thyme.substrates.dcs.config import DcsConfig, KeyChoice
from thyme.substrates.dcs.copies import Copies, KeepUpTimer
from thyme.substrates.dcs.deletions import Deletions
from thyme.substrates.dcs.digest import SUM_BYTES
from thyme.substrates.dcs.dynamics import Dynamics
from thyme.substrates.dcs.floor import Floor
from thyme.substrates.dcs.ground import Ground, cells_named
from thyme.substrates.dcs.home import HOME, HomeCell, JoinDue
from thyme.substrates.dcs.index import LISTS, SUBSCRIBER_CELLS, CellIndex
from thyme.substrates.dcs.joining import Joining, JoinTimer, Phase
from thyme.substrates.dcs.keys import Keys
from thyme.substrates.dcs.known import is_known
from thyme.substrates.dcs.learning import Learnt
from thyme.substrates.dcs.objects import CellObjects
from thyme.substrates.dcs.popularity import Popularity
from thyme.substrates.dcs.repair import Repair, RepairTimer
from thyme.substrates.dcs.replicas import Replicas, Role
from thyme.substrates.dcs.returned import GatherTimer, ReturnedTimer
from thyme.substrates.dcs.service import CellDue, Service
from thyme.substrates.dcs.sources import KeyCells, Whereabouts
from thyme.substrates.dcs.wards import WARDS
from thyme.substrates.lifespan import LifeSpan, WorldOver
from thyme.substrates.quotas import SHARES
from thyme.substrates.subscriber import EndOfFrame, Subscriber

_STRAYS_MAX = 8


_CELL_SHELVES: tuple[Shelf[Any], ...] = (
    OBJECTS,
    SHARES,
    SUBSCRIPTIONS,
    LISTS,
    SUBSCRIBER_CELLS,
    WARDS,
)


class DcsNode:
    """One node of a Thyme-DCS world."""

    def __init__(
        self,
        node_id: NodeId,
        cell: CellId,
        ground: Ground,
        store: Store,
        rng: Random,
        config: DcsConfig,
        *,
        joins_us: int = 0,
        warden: Warden | None = None,
    ) -> None:
        """Until `join_at_us` the node receives beacons but does not join its cell."""
        self._node_id = node_id
        self._cell = cell
        self._ground = ground
        self._store = store
        self._warden = warden
        self._joins_us = joins_us
        self._settle_us = config.moving.settle_us
        self._started_us = 0
        self._outbox = outbox = Outbox()
        self._inbox: deque[Arrival | NotThere] = deque()
        self.routing = routing = ground.routing(outbox, self)
        self.asks = requests = CellAsks(routing, outbox, config.retries, rng, warden)
        self.replicas = Replicas(store, config.retention, config.burial, config.broker.quota)
        self._settle_in(store)
        # Stored records that have expired are removed at `Started`, which brings the time.
        self.index = CellIndex(store, config.broker, config.replication.passive_max)
        context = Floor(
            node_id=node_id,
            routing=routing,
            outbox=outbox,
            asks=requests,
            store=store,
            index=self.index,
            replicas=self.replicas,
            deletions=Deletions(store, requests, config.renewal),
            rng=rng,
            config=config,
        )
        self.service = Service(routing, outbox, self.index, self.replicas, config)
        self.joining = Joining(context, self._on_joined)
        self._life_span = LifeSpan(outbox, config.world_ends_us)
        self._compose_client(context)
        self.dynamics = Dynamics(
            context,
            self.joining,
            self.service,
            self._keys,
            self.subscriber,
            self._client.on_late_page,
            self._on_settled,
        )
        self.repair = Repair(context, self._on_learnt)
        self.copies = Copies(context)
        self.dropped: Counter[str] = Counter() if warden is None else warden.dropped

    def _compose_client(self, floor: Floor) -> None:
        """Creates the components that carry out the application's requests."""
        node_id, store, rng, config = floor.node_id, floor.store, floor.rng, floor.config
        signer = None if self._warden is None else self._warden.notary
        self.subscriber = Subscriber(node_id, floor.outbox, store, config.subscriber, signer)
        self._whereabouts = Whereabouts(config.replication.whereabouts_max)
        self._popularity = Popularity()
        self._key_choice = config.key_choice
        self._keys = Keys(
            store,
            rng,
            config.key_choice,
            config.keys_max,
            self.routing.cell_of_key,
            self._cost_of_key,
        )
        self._client = Client(
            node_id,
            CellObjects(floor, self._keys, self._whereabouts),
            KeyCells(self.asks, self._keys, self._whereabouts, self.subscriber),
            floor.outbox,
            self.subscriber,
            rng,
            config.limits,
            Guarantees(copies_max=1, durable=store.durable),
            signer,
        )

    def _settle_in(self, store: Store) -> None:
        """Drops stored state of another cell; own objects and passive replicas stay."""
        stored = dict(store.load(HOME)).get("here")
        if stored is not None and stored.cell != self._cell:
            for table in _CELL_SHELVES:
                for key, _ in list(store.load(table)):
                    store.remove(table, key)
            self.replicas.drop(Role.ACTIVE)
        store.put(HOME, "here", HomeCell(self._cell))
        self.replicas.settle(self._cell)

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    @property
    def broker_subscriptions(self) -> int:
        """The number of active subscriptions stored on this node."""
        return self.index.broker.subscriptions

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Processes one input at its instant; returns the actions to carry out, in order."""
        if isinstance(event, Received):
            if not self.routing.on_received(event.sender, event.message, now_us):
                self.dropped["not spoken here"] += 1
        else:
            self._dispatch(event, now_us)
        # Most inputs are messages to forward, which do not change this node's state.
        if self._inbox or not isinstance(event, Received | SendFailed):
            self._take_in(now_us)
            self.service.set_timer()
        return self._outbox.take()

    def _take_in(self, now_us: int) -> None:
        while self._inbox:
            queued = self._inbox.popleft()
            if isinstance(queued, Arrival):
                self._on_arrival(queued, now_us)
            else:
                self._on_not_there(queued, now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        parts = (self.subscriber, self.index, self.replicas, self.asks, self.service.returned)
        for part in (*parts, self.routing, self.dynamics, self.repair):
            part.check()
        assert not self._inbox

    def _dispatch(
        self, event: Started | Asked | TimerFired | SendFailed | Leaving | Moved, now_us: int
    ) -> None:
        match event:
            case Started():
                self.index.broker.expire(now_us)
                self.replicas.expire(now_us)
                self.subscriber.set_timers()
                self._life_span.set_timer()
                self.copies.start(now_us)
                self.routing.start(self._cell, now_us, serving=False)
                self.dynamics.start(self._cell)
                self._started_us = now_us
                if now_us < self._joins_us:
                    self._outbox.set_timer(JoinDue(), self._joins_us)
                else:
                    self.joining.start(now_us)
            case Asked():
                request = event.request
                inserts = request.inserts if isinstance(request, Together) else (request,)
                for insert in inserts:
                    if isinstance(insert, Insert):
                        self._popularity.note(insert.tags)
                if not self._life_span.refuses(event.request, now_us):
                    self._client.on_asked(event.request, now_us)
            case TimerFired():
                self._on_timer(event, now_us)
            case SendFailed():
                self.routing.on_send_failed(event.to, event.message, now_us)
            case Moved():
                self.dynamics.on_moved(self._ground.cell_at(event.place), now_us)
            case Leaving():
                self.dynamics.on_leaving(now_us)
            case _:
                assert_never(event)

    def _on_timer(self, event: TimerFired, now_us: int) -> None:
        match event.timer:
            case AskTimer():
                self.asks.on_timer(event.timer, now_us)
            case EndOfFrame():
                self.subscriber.on_end_of_frame(event.timer.sid, now_us)
            case CellDue():
                self.service.on_due(now_us)
            case ReturnedTimer():
                self.service.returned.on_timer(event.timer, now_us)
            case GatherTimer():
                self.service.returned.on_gathered(now_us)
            case KeepUpTimer():
                self.copies.on_timer(now_us)
            case RepairTimer():
                self.repair.on_timer(event.timer, now_us)
            case JoinDue():
                if not self.dynamics.moving.moving:
                    self.joining.start(now_us, now_us - self._started_us)
            case JoinTimer():
                self.joining.on_timer(now_us)
            case WorldOver():
                self.subscriber.end_all("the life span of its world is over")
            case _:
                if not self.dynamics.on_timer(event.timer, now_us):
                    self.routing.on_timer(event.timer, now_us)

    def _on_joined(self, now_us: int) -> None:
        """Starts to serve the cell after the join has finished."""
        self.routing.set_cell(self.routing.cell, now_us, serving=True)
        self.dynamics.on_joined(now_us)

    def _on_settled(self, moved: bool, now_us: int) -> None:
        """Joins the cell in which the device became stationary, possibly another one (D20)."""
        if moved:
            self._cell = self.routing.cell
            self._store.put(HOME, "here", HomeCell(self._cell))
            self.replicas.settle(self._cell)
        if now_us >= self._joins_us:
            self.joining.start(now_us, self._settle_us)

    # Callbacks of cell routing

    def arrived(self, arrival: Arrival, now_us: int) -> None:
        """Queues a delivered message; it is processed once the current input has been handled."""
        self._inbox.append(arrival)

    def not_there(self, failure: NotThere, now_us: int) -> None:
        """Queues the failure of a message to a node that was not in its cell."""
        self._inbox.append(failure)

    def sighted(self, sighting: Sighting, now_us: int) -> None:
        """Passes a neighbour's beacon to the components that use it."""
        if self.joining.phase is Phase.LISTENING:
            self.joining.on_sighted(sighting, now_us)
        self.dynamics.on_sighted(sighting, now_us)
        if sighting.cell == self.routing.cell or self.repair.doubts(sighting.node):
            self.repair.on_sighted(sighting, now_us)

    def payload(self, now_us: int) -> bytes:
        """The payload of the next beacon: the digest of this node's cell state, and the stamp of
        the latest topology change."""
        digest, stamp = self.repair.payload(now_us), self.dynamics.renewal.word
        if not (stamp and self.routing.serving):
            return digest
        return digest.ljust(SUM_BYTES, b"\0") + stamp

    def knows(self, origin: NodeId, origin_cell: CellId, message: wire.Message) -> bool:
        """Whether a message to the cell contains nothing new for this node."""
        return is_known(self.index, origin, origin_cell, message)

    def cares_for(self, payload: bytes) -> bool:
        """Whether a beacon's payload reports a topology change that is new to this node."""
        return len(payload) > SUM_BYTES and payload[SUM_BYTES:] != self.dynamics.renewal.word

    def _cost_of_key(self, tag: Tag) -> tuple[float, ...]:
        """The cost of a literal as the key of a conjunction: lower is preferred (B10)."""
        if self._key_choice is KeyChoice.FIRST:
            return ()
        key_cell = self.routing.cell_of_key(tag)
        distance = self.routing.distance(self.routing.cell, key_cell)
        if self._key_choice is KeyChoice.NEAREST:
            return (distance,)
        return (self._popularity.of(tag), distance)

    def _on_learnt(
        self, sender: NodeId, state: cell_wire.CellState, learnt: Learnt, now_us: int
    ) -> None:
        """Handles records that a cell peer had and this node lacked (B2)."""
        self.service.on_learnt(learnt, now_us)
        for metadata in state.held:
            if self.replicas.get(metadata.key) is None:
                self.joining.fetch(To(self.routing.cell, sender), metadata, now_us)

    def _on_not_there(self, failure: NotThere, now_us: int) -> None:
        if not (
            self.asks.on_not_there(failure, now_us)
            or self.service.returned.on_not_there(failure, now_us)
        ):
            self.dropped["answer to nobody"] += 1  # the requester retries

    def _on_arrival(self, arrival: Arrival, now_us: int) -> None:
        message = arrival.message
        if not all(cell in self._ground for cell in cells_named(message)):
            self.dropped["no such cell"] += 1
            return
        if self._warden is not None:
            verified = self._warden.admit(arrival.origin, message)
            if verified is None:
                return
            if verified is not message:
                arrival = replace(arrival, message=verified)
                message = verified
        if not arrival.personal:
            self.dynamics.before(arrival, now_us)
        match message:
            case wire.FetchObject():
                self.service.on_ask(arrival, message, now_us)
            case cell_wire.HoldObject():
                self._popularity.note(message.metadata.tags)
                if message.holders:
                    self.copies.on_hold(arrival, message, now_us)
                else:
                    self.service.on_hold(arrival, message, now_us)
            case _ if arrival.personal:
                self._on_personal(arrival, now_us)
            case _ if self.dynamics.on_message(arrival, now_us):
                pass
            case (
                cell_wire.IndexObject()
                | wire.DeleteObject()
                | wire.StartSubscription()
                | wire.StopSubscription()
                | wire.FetchPage()
                | wire.FetchStatus()
            ):
                self.service.on_ask(arrival, message, now_us)
            case cell_wire.AnnounceReplica():
                self.service.on_announce(arrival, message)
            case _:
                self.dropped["not for a cell"] += 1

    def _on_personal(self, arrival: Arrival, now_us: int) -> None:
        message = arrival.message
        match message:
            case wire.FromCell(cell=cell, message=reply) if isinstance(reply, wire.CellReply):
                self.asks.on_cell_reply(cell, reply, now_us)
            case wire.ObjectData() | wire.Refused():
                self.asks.on_reply(arrival.origin, message, now_us)
            case cell_wire.CellNotify(indexed=indexed, sids=sids):
                self._on_notify(arrival, Matched(indexed, sids), now_us)
            case cell_wire.CellNews():
                ack = cell_wire.NewsCame((arrival.number,))
                self.routing.send([To(arrival.origin_cell, arrival.origin)], ack, now_us)
                for matched in message.items:
                    self._on_notify(arrival, matched, now_us)
            case cell_wire.NewsCame():
                self.service.returned.on_came(arrival.origin, message)
            case cell_wire.FetchCellState():
                self.joining.on_request(arrival, message, now_us)
            case cell_wire.CellState() if self.routing.serving:
                self.repair.on_state(arrival, message, now_us)
            case cell_wire.CellState():
                self.joining.on_state(arrival.origin, message, now_us)
            case cell_wire.CellSums():
                self.repair.on_sums(arrival, message, now_us)
            case cell_wire.CellMarks():
                self.repair.on_marks(arrival, message, now_us)
            case _:
                self.dropped["not for a node"] += 1

    def _on_notify(self, arrival: Arrival, note: Matched, now_us: int) -> None:
        """Handles a notification for some subscriptions. If none of them is this node's and they
        are few, the client asks the sending cell to drop them."""
        metadata = note.indexed.metadata
        own = tuple(sid for sid in note.sids if self.subscriber.get(sid) is not None)
        if own:
            self._whereabouts.note(note.indexed)
        elif len(note.sids) <= _STRAYS_MAX:
            own = note.sids
        else:
            self.dropped["news for nobody here"] += 1
            return
        self._client.on_notify(arrival.origin_cell, wire.Notify(metadata, own), now_us)
