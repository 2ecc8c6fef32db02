"""Carried objects: the objects of a node's applications, in every world that the node enters (B7).

A node that changes its substrate leaves its objects behind: at a server, at the nodes of cells, or
in its own store. So it keeps a copy of each, inserts it again where it is missing, with the same
key and publication time, and repeats its deletes. Subscribers recognise an object by its key.
Entry point: `CarriedObjects`; it stands between the host and the listener of the application.
Objects in chunks are not carried (M37).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

import msgspec

from thyme.model.errors import (
    NotFoundError,
    OperationTimeoutError,
    RejectedError,
    ThymeError,
)
from thyme.model.ids import Key, NodeId, ObjectId, random_id
from thyme.model.object_chunks import is_large
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    Delete,
    Failed,
    Finished,
    Insert,
    InsertAt,
    InsertUploaded,
)
from thyme.protocol.port import NodeListener
from thyme.storage.store import RecordTable, Store

OBJECTS_MAX = 100_000
"""Maximum number of carried objects; beyond it, the oldest stay where they are."""
WINDOW = 64
"""Maximum number of own requests under way."""
FIRST_ID = -(2**40)
"""Ids of own requests, downwards: below those of the host."""


class CarriedObject(msgspec.Struct, frozen=True, array_like=True):
    """An own object, and the worlds that have it; deleted ones are removed from these."""

    insert: InsertAt
    worlds: frozenset[str] = frozenset()
    deleted: bool = False

    @property
    def oid(self) -> ObjectId:
        assert self.insert.oid is not None
        return self.insert.oid


CARRIED_OBJECTS = RecordTable("carried object", CarriedObject)


class CarriedObjects:
    """The own objects of a node, and the requests that carry them into another world."""

    def __init__(self, store: Store, node_id: NodeId, rng: Random, listener: NodeListener) -> None:
        self._store = store
        self._node_id = node_id
        self._rng = rng
        self._listener = listener
        self._objects = {record.oid: record for _, record in store.load(CARRIED_OBJECTS)}
        self._world_id = ""
        self._pending: dict[int, ObjectId] = {}
        """Inserts and deletes of the application, and own ones, by request id."""
        self._waiting: deque[ObjectId] = deque()
        """Objects to insert or to delete in this world."""
        self._next_id = FIRST_ID
        self.send: Callable[[AppRequest], None] = lambda request: None
        """Sends an own request to the node."""
        self.try_later: Callable[[ObjectId], None] = lambda oid: None
        """Called for an object that could not be carried; `carry` tries again."""

    def __len__(self) -> int:
        return len(self._objects)

    # Requests of the application

    def prepare(self, request: AppRequest, now_us: int) -> AppRequest | None:
        """Notes an insert or a delete; an insert gets its key and publication time here, so that it
        can be repeated in another world. Returns the request for the node; None if it failed."""
        if isinstance(request, Delete) and request.key.oid in self._objects:
            self._pending[request.request_id] = request.key.oid
        if isinstance(request, InsertUploaded | InsertAt) or not isinstance(request, Insert):
            return request
        if is_large(len(request.data)):
            return request
        fields = {name: getattr(request, name) for name in Insert.__struct_fields__}
        fields["oid"] = request.oid or ObjectId(random_id(self._rng))
        insert = InsertAt(**fields, published_us=now_us)
        if insert.oid in self._objects:  # also if this world does not have it yet
            detail = f"{insert.oid} is taken: an object never changes"
            self._listener.on_event(Failed(request.request_id, RejectedError.code, detail))
            return None
        self._put(CarriedObject(insert))
        self._pending[insert.request_id] = fields["oid"]
        return insert

    # Events of the node

    def on_event(self, event: AppEvent) -> None:
        """Notes how inserts and deletes end; passes the events of the application on."""
        if isinstance(event, Finished | Failed):
            oid = self._pending.pop(event.request_id, None)
            record = None if oid is None else self._objects.get(oid)
            if record is not None:
                event = self._on_result(record, event)
            if event.request_id <= FIRST_ID:
                self.carry()
                return
        self._listener.on_event(event)

    def on_node_failed(self, error: ThymeError) -> None:
        self._listener.on_node_failed(error)

    def _on_result(self, record: CarriedObject, event: Finished | Failed) -> Finished | Failed:
        oid, own = record.oid, event.request_id <= FIRST_ID
        if isinstance(event, Finished) and isinstance(event.value, Key):
            self._put(msgspec.structs.replace(record, worlds=record.worlds | {self._world_id}))
        elif isinstance(event, Finished) or event.code == NotFoundError.code:
            self._mark_deleted(record)
            return Finished(event.request_id, None)
        elif own and event.code == OperationTimeoutError.code:
            self.try_later(oid)
        elif own:  # "taken": this world has it, or it refuses the object for good
            self._put(msgspec.structs.replace(record, worlds=record.worlds | {self._world_id}))
        elif not record.worlds and not record.deleted:
            self._remove(oid)  # an insert that failed
        return event

    def _mark_deleted(self, record: CarriedObject) -> None:
        worlds = record.worlds - {self._world_id}
        if worlds:
            self._put(msgspec.structs.replace(record, worlds=worlds, deleted=True))
        else:
            self._remove(record.oid)

    # Another world

    def enter(self, world_id: str, now_us: int) -> None:
        """Starts to carry the objects into a world; the application's requests follow by
        themselves."""
        self._world_id = world_id
        self._pending = {
            request_id: oid for request_id, oid in self._pending.items() if request_id >= 0
        }
        under_way = set(self._pending.values())
        self._waiting.clear()
        for oid, record in list(self._objects.items()):
            ttl_us = record.insert.ttl_us
            if ttl_us is not None and record.insert.published_us + ttl_us <= now_us:
                self._remove(oid)
            elif oid not in under_way and record.deleted == (world_id in record.worlds):
                self._waiting.append(oid)
        self.carry()

    def carry(self, oid: ObjectId | None = None) -> None:
        """Sends the next own requests; an object given is carried first."""
        if oid is not None:
            self._waiting.appendleft(oid)
        under_way = sum(request_id < 0 for request_id in self._pending)
        while self._waiting and under_way < WINDOW:
            oid = self._waiting.popleft()
            record = self._objects.get(oid)
            if record is None or record.deleted != (self._world_id in record.worlds):
                continue  # deleted meanwhile, or done
            self._next_id -= 1
            under_way += 1
            self._pending[self._next_id] = oid
            self.send(self._make_request(self._next_id, record))

    def _make_request(self, request_id: int, record: CarriedObject) -> AppRequest:
        if record.deleted:
            key = Key(record.oid, self._node_id)
            return Delete(request_id=request_id, key=key)
        data = self._store.get_data(record.oid) or b""
        # The guarantees were for the first insert.
        return msgspec.structs.replace(
            record.insert,
            request_id=request_id,
            data=data,
            copies=1,
            durable=False,
            replicas=msgspec.UNSET,
        )

    # Records

    def _put(self, record: CarriedObject) -> None:
        oid = record.oid
        if record.insert.data:
            self._store.put_data(oid, record.insert.data)
            record = msgspec.structs.replace(
                record, insert=msgspec.structs.replace(record.insert, data=b"")
            )
        if oid not in self._objects and len(self._objects) >= OBJECTS_MAX:
            self._remove(next(iter(self._objects)))
        self._objects[oid] = record
        self._store.put(CARRIED_OBJECTS, oid, record)

    def _remove(self, oid: ObjectId) -> None:
        if self._objects.pop(oid, None) is not None:
            self._store.remove(CARRIED_OBJECTS, oid)
            self._store.remove_data(oid)
