"""Feed routes: HTTP handlers for live events, subscriptions, tags, the time line and the status.

Entry point: `FeedRoutes`.
Clauses: M5–M11, M15, M18.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
from aiohttp import web

from thyme import Query, TimeFrame
from thyme.gallery.web.feed import FeedEvent
from thyme.gallery.web.gallery_world import GalleryWorld, Interest
from thyme.gallery.web.guests import Guest
from thyme.gallery.web.responses import RefusedError, json_response, read_json
from thyme.gallery.web.security import GUEST, GalleryRoute
from thyme.gallery.web.state import GalleryState, GuestSubscription

HEARTBEAT_S = 15.0
STREAMS_PER_GUEST_MAX = 20
TAGS_MAX = 60
BUCKETS = 48


class InterestBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A formula and a time frame; an end that is left out is open."""

    query: str
    start_us: int | None = None
    end_us: int | None = None


class FeedRoutes:
    """HTTP handlers of events and subscriptions."""

    def __init__(self, state: GalleryState) -> None:
        self._state = state
        self._streams: dict[str, int] = {}

    @property
    def routes(self) -> list[GalleryRoute]:
        """The routes of events and subscriptions."""
        return [
            GalleryRoute("GET", "/api/events", "look", self.stream_events),
            GalleryRoute("GET", "/api/w/{world}/subscriptions", "look", self.list_subscriptions),
            GalleryRoute("POST", "/api/w/{world}/subscriptions", "look", self.subscribe),
            GalleryRoute("DELETE", "/api/w/{world}/subscriptions/{sid}", "look", self.unsubscribe),
            GalleryRoute("GET", "/api/w/{world}/explanation", "look", self.explain),
            GalleryRoute("GET", "/api/w/{world}/tags", "look", self.list_tags),
            GalleryRoute("GET", "/api/w/{world}/timeline", "look", self.show_timeline),
            GalleryRoute("GET", "/api/w/{world}/status", "look", self.show_status),
        ]

    def _world(self, request: web.Request) -> GalleryWorld:
        return self._state.world(request.match_info["world"])

    # Events

    async def stream_events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: one stream for everything that a page shows."""
        guest = request[GUEST]
        if self._streams.get(guest.id, 0) >= STREAMS_PER_GUEST_MAX:
            raise RefusedError(429, "too_many", "too many open pages: close some")
        feed = self._state.feed
        wanted = request.headers.get("Last-Event-ID") or request.query.get("since")
        number = feed.number_of(wanted)
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        response.headers["Cache-Control"] = "no-store"
        await response.prepare(request)
        self._streams[guest.id] = self._streams.get(guest.id, 0) + 1
        try:
            if number is None:  # what a page has read before the stream began may be old
                number = feed.last
                await response.write(_encode("reset", feed.event_id(number)))
            with suppress(ConnectionError):
                await self._write_events(response, guest, number)
        finally:
            self._streams[guest.id] -= 1
        return response

    async def _write_events(self, response: web.StreamResponse, guest: Guest, number: int) -> None:
        feed = self._state.feed
        while True:
            current = self._state.guests.find(guest.id)
            if current is None or current.blocked or not self._state.guests.is_present(guest.id):
                return
            events = feed.since(number)
            if events is None:
                number = feed.last
                await response.write(_encode("reset", feed.event_id(number)))
            elif events:
                number = events[-1].number
                await response.write(b"".join(self._render(event, current) for event in events))
            else:
                await feed.wait(number, HEARTBEAT_S)
                if feed.last == number:
                    await response.write(b": still here\n\n")

    def _render(self, event: FeedEvent, guest: Guest) -> bytes:
        facts = self._state.render(event, guest)
        if facts is None:
            return b""
        return _encode(event.kind, self._state.feed.event_id(event.number), facts)

    # Subscriptions

    async def list_subscriptions(self, request: web.Request) -> web.StreamResponse:
        found = self._state.subscriptions(request[GUEST], self._world(request).name)
        return json_response([_describe(sub) for sub in found])

    async def subscribe(self, request: web.Request) -> web.StreamResponse:
        world = self._world(request)
        body = await read_json(request, InterestBody)
        query = Query(_read_words(body.query))
        TimeFrame(body.start_us, body.end_us)
        interest = Interest(str(query), body.start_us, body.end_us)
        made = self._state.subscribe(request[GUEST].id, world.name, interest)
        self._state.feed.emit("reset", world=world.name, guest=request[GUEST].id)
        return json_response(_describe(made), 201)

    async def unsubscribe(self, request: web.Request) -> web.StreamResponse:
        world = self._world(request)
        self._state.unsubscribe(request[GUEST], request.match_info["sid"])
        self._state.feed.emit("reset", world=world.name, guest=request[GUEST].id)
        return web.Response(status=204)

    async def explain(self, request: web.Request) -> web.StreamResponse:
        """Explains a formula while it is typed: its normal form and how many photos match."""
        world = self._world(request)
        query = Query(_read_words(request.query.get("query", "")))
        interest = Interest(str(query))
        guest = request[GUEST]
        matching = sum(
            interest.wants(card) and not self._state.is_hidden(world.name, card)
            for card in world.catalogue.newest_first()
        )
        return json_response(
            {
                "canonical": str(query),
                "conjunctions": query.conjunctions,
                "matching": matching,
                "total": len(world.catalogue),
                "guest": guest.id,
            }
        )

    async def list_tags(self, request: web.Request) -> web.StreamResponse:
        common = self._world(request).catalogue.tags.most_common(TAGS_MAX)
        return json_response([{"tag": tag, "count": count} for tag, count in common])

    async def show_timeline(self, request: web.Request) -> web.StreamResponse:
        """When photos that match a formula were published."""
        world = self._world(request)
        text = request.query.get("query", "")
        interest = Interest(str(Query(_read_words(text)))) if text else None
        first_us, last_us, counts = world.catalogue.histogram(
            BUCKETS,
            lambda card: (
                (interest is None or interest.wants(card))
                and not self._state.is_hidden(world.name, card)
            ),
        )
        return json_response({"first_us": first_us, "last_us": last_us, "counts": counts})

    async def show_status(self, request: web.Request) -> web.StreamResponse:
        """The node, the other nodes of the world, and what is stored for whom."""
        world = self._world(request)
        status = await world.status()
        own = sum(card.owner == world.node_id for card in world.catalogue.newest_first())
        nodes: dict[str, int] = {}
        for card in world.catalogue.newest_first():
            nodes[card.owner] = nodes.get(card.owner, 0) + 1
        kept = await world.kept_for_others()
        return json_response(
            {
                "kept": {node: {"photos": n, "bytes": size} for node, (n, size) in kept.items()},
                "connected": world.is_connected and status is not None,
                "node": world.node_id,
                "photos": len(world.catalogue),
                "own": own,
                "publishers": nodes,
                "neighbours": [] if status is None else [n["node"] for n in status["neighbours"]],
                "station": None if status is None else status["base_station"],
                "substrate": None if status is None else status["world"]["substrate"],
                "closed": status is not None and status["world"]["closed"],
                "storage": None if status is None else status["storage"],
                "hint": None if status is None else status["hint"],
            }
        )


def _describe(sub: GuestSubscription) -> dict[str, object]:
    interest = sub.interest
    return {
        "id": sub.id,
        "query": interest.query,
        "start_us": interest.start_us,
        "end_us": interest.end_us,
    }


def _read_words(text: str) -> str:
    """A formula as people type it: a comma joins further conditions with `and`."""
    parts = [part.strip() for part in text.split(",")]
    return " & ".join(f"({part})" for part in parts if part) if len(parts) > 1 else text


def _encode(kind: str, event_id: str, facts: object = None) -> bytes:
    data = msgspec.json.encode({} if facts is None else facts)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (event_id.encode(), kind.encode(), data)
