"""Event recorder: turns the requests and events of applications into exported events.

Entry point: `EventRecorder`. Drivers call it beside the node: the live daemon for its node, the
simulator for all of its devices. It sees the traffic between applications and nodes only, so the
protocol is not aware of it. Encoded events go to a sink, in the order of their numbers.
Clauses: P9, S14.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from thyme.events.event import (
    CACHE,
    EVENT_VERSION,
    LOAD,
    NEIGHBOUR,
    NODE,
    NOTIFICATION,
    OPERATION,
    Event,
    encode_event,
)
from thyme.model.ids import Key, NodeId
from thyme.model.subscriptions import Conjunction
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    Delete,
    Failed,
    Finished,
    Insert,
    NotificationEvent,
    Retrieve,
    Search,
    Subscribe,
    SubscriptionStarted,
    Unsubscribe,
)

OPERATION_NAMES: dict[type[object], str] = {
    Insert: "insert",
    Delete: "delete",
    Subscribe: "subscribe",
    Unsubscribe: "unsubscribe",
    Retrieve: "retrieve",
    Search: "search",
}
PENDING_MAX = 100_000
"""Number of unanswered requests that are remembered; more are not recorded."""
LOCAL_CACHE = "node"
STATION_CACHES = ("local_popularity", "global", "prefetch")
"""The caches of a station in the order in which a download looks into them."""
_Recorded = Insert | Delete | Subscribe | Unsubscribe | Retrieve | Search


class EventRecorder:
    """Makes the events of the nodes of one world and numbers them."""

    def __init__(
        self,
        writer: str,
        world: str,
        sink: Callable[[bytes], None],
        stores_object: Callable[[NodeId, Key], bool],
    ) -> None:
        """`stores_object` tells whether a node stores the bytes of an object itself."""
        self._writer = writer
        self._world = world
        self._sink = sink
        self._stores_object = stores_object
        self._seq = 0
        self._pending: dict[tuple[NodeId, int], tuple[_Recorded, int]] = {}

    def on_request(self, node: NodeId, request: AppRequest, now_us: int) -> None:
        """Remembers a request until its reply; a retrieve is also a look into the local cache."""
        if not isinstance(request, _Recorded) or len(self._pending) >= PENDING_MAX:
            return
        self._pending[node, request.request_id] = request, now_us
        if isinstance(request, Retrieve):
            key = request.metadata.key
            code = "hit" if self._stores_object(node, key) else "miss"
            self._record(node, now_us, CACHE, cache=LOCAL_CACHE, code=code, key=str(key))

    def on_event(self, node: NodeId, event: AppEvent, now_us: int) -> None:
        """Records an operation that ended, or a notification."""
        match event:
            case Finished() | Failed():
                pending = self._pending.pop((node, event.request_id), None)
                if pending is not None:
                    code = event.code if isinstance(event, Failed) else "ok"
                    value = event.value if isinstance(event, Finished) else None
                    self._record_operation(node, *pending, code, value, now_us)
            case NotificationEvent():
                notification = event.notification
                metadata = notification.metadata
                self._record(
                    node,
                    now_us,
                    NOTIFICATION,
                    sid=notification.sid,
                    key=str(metadata.key),
                    tags=metadata.tags,
                    size=metadata.size,
                    published_us=metadata.published_us,
                    past=notification.from_history,
                )
            case _:
                pass

    def on_started(self, node: NodeId, now_us: int) -> None:
        """Records that a node has started."""
        self._record(node, now_us, NODE, code="started")

    def on_stopped(self, node: NodeId, now_us: int) -> None:
        """Records that a node has stopped; its unanswered operations failed with `down`."""
        for pending in [pending for pending in self._pending if pending[0] == node]:
            self._record_operation(node, *self._pending.pop(pending), "down", None, now_us)
        self._record(node, now_us, NODE, code="stopped")

    def on_neighbour(self, node: NodeId, peer: NodeId, *, came: bool, now_us: int) -> None:
        """Records that a neighbour came into range or left it."""
        self._record(node, now_us, NEIGHBOUR, peer=peer.hex(), code="came" if came else "gone")

    def on_neighbours(
        self, node: NodeId, before: Sequence[NodeId], now: Sequence[NodeId], now_us: int
    ) -> list[NodeId]:
        """Records which neighbours came and left since an earlier sample; returns the new one."""
        known, current = set(before), set(now)
        for peer in now:
            if peer not in known:
                self.on_neighbour(node, peer, came=True, now_us=now_us)
        for peer in before:
            if peer not in current:
                self.on_neighbour(node, peer, came=False, now_us=now_us)
        return list(now)

    def on_download(
        self, station: NodeId, world: str | None, key: Key, cache: str | None, now_us: int
    ) -> None:
        """Records which caches of a station had an object and which had not, in the order in which
        it looks into them; `cache` is the one that had it (I29)."""
        for name in STATION_CACHES:
            code = "hit" if name == cache else "miss"
            self._record(station, now_us, CACHE, world, cache=name, code=code, key=str(key))
            if name == cache:
                break

    def on_load(self, node: NodeId, now_us: int, **load: int | None) -> None:
        """Records the messages of a node since its previous load event, and its cell."""
        self._record(node, now_us, LOAD, None, **load)

    def _record_operation(
        self,
        node: NodeId,
        request: _Recorded,
        issued_us: int,
        code: str,
        value: object,
        now_us: int,
    ) -> None:
        self._record(
            node,
            issued_us,
            OPERATION,
            op=OPERATION_NAMES[type(request)],
            code=code,
            took_us=now_us - issued_us,
            **_describe(request, value),
        )

    def _record(
        self, node: NodeId, at_us: int, kind: str, world: str | None = None, **fields: Any
    ) -> None:
        self._seq += 1
        event = Event(
            v=EVENT_VERSION,
            writer=self._writer,
            seq=self._seq,
            at_us=at_us,
            node=node.hex(),
            world=self._world if world is None else world,
            kind=kind,
            **fields,
        )
        self._sink(encode_event(event))


def _describe(request: _Recorded, value: object) -> dict[str, Any]:
    """The fields of an operation that depend on its request and its reply."""
    match request:
        case Insert():
            key = str(value) if isinstance(value, Key) else None
            size, life_us = len(request.data), request.ttl_us
            return {"key": key, "tags": request.tags, "size": size, "life_us": life_us}
        case Delete():
            return {"key": str(request.key)}
        case Subscribe():
            sid = value.sid if isinstance(value, SubscriptionStarted) else None
            frame = request.frame
            query = format_query(request.conjunctions)
            return {"sid": sid, "query": query, "start_us": frame.start_us, "end_us": frame.end_us}
        case Unsubscribe():
            return {"sid": request.sid}
        case Retrieve():
            metadata = request.metadata
            return {"key": str(metadata.key), "tags": metadata.tags, "size": metadata.size}
        case Search():
            return {"query": format_query(request.conjunctions)}


def format_query(conjunctions: tuple[Conjunction, ...]) -> str:
    """A query as text, from its conjunctions: `goal & !replay | eder`."""
    return " | ".join(map(str, conjunctions))
