"""Gallery state: what each guest sees of the worlds of a gallery, and how it changes.

Entry point: `GalleryState`, which all routes share.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from thyme.gallery.settings import HOST_NAME, GallerySettings
from thyme.gallery.web.catalogue import Card, Position
from thyme.gallery.web.database import GalleryDatabase
from thyme.gallery.web.feed import Feed, FeedEvent
from thyme.gallery.web.gallery_world import GalleryWorld, Interest
from thyme.gallery.web.guests import Guest, Guests
from thyme.gallery.web.peers.announcement import Announcement
from thyme.gallery.web.peers.copier import PhotoCopier
from thyme.gallery.web.peers.passes import PassSigner
from thyme.gallery.web.responses import RefusedError

VIEWS = ("available", "downloads", "publications", "hidden", "wall")
MARKS = ("", "downloaded", "discarded", "near")
"""What a guest decided about a photo: nothing yet, keep, no, or download it when it is near."""
SUBSCRIPTIONS_MAX = 50
_SUBSCRIPTION_FIELDS = "id, guest, world, query, start_us, end_us"


class GuestSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription of a guest."""

    id: str
    guest: str
    world: str
    interest: Interest


class ItemView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A photo as one guest sees it."""

    card: msgspec.Raw
    mine: bool = False
    here: bool = False
    """Whether this node published it, so that it can be shown at once."""
    mark: str = ""
    wanted: bool = False
    """Whether it matches a subscription of the guest."""
    hidden: bool = False


class GalleryState:
    """The worlds, guests and marks of a gallery server."""

    def __init__(self, settings: GallerySettings) -> None:
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings.folder.chmod(0o700)  # it has invitations and a key
        self.settings = settings
        self.database = GalleryDatabase(settings.folder / "gallery.sqlite")
        self.feed = Feed()
        self.guests = Guests(self.database, settings)
        self.worlds = {
            name: GalleryWorld(name, url, self.database, self.feed, settings.folder)
            for name, url in settings.nodes
        }
        self.signer = PassSigner(self.database)
        self.copiers = {
            name: PhotoCopier(world, settings.copies_bytes_max, self.is_hidden)
            for name, world in self.worlds.items()
        }
        rows = self.database.rows("SELECT world, what FROM hidden")
        self._hidden: set[tuple[str, str]] = {(world, what) for world, what in rows}
        self._posts: dict[tuple[str, str], str] = {
            (world, key): guest
            for world, key, guest in self.database.rows("SELECT world, key, guest FROM posts")
        }
        self._subscriptions: dict[str, GuestSubscription] = {}
        for row in self.database.rows(f"SELECT {_SUBSCRIPTION_FIELDS} FROM subscriptions"):
            sid, guest, world, *interest = row
            if world in self.worlds:
                found = Interest(*interest)
                self._remember(GuestSubscription(id=sid, guest=guest, world=world, interest=found))
        for guest_record in self.guests.all():
            self.subscribe_newcomer(guest_record.id)

    def world(self, name: str) -> GalleryWorld:
        """A world by its name."""
        if name not in self.worlds:
            raise RefusedError(404, "no_gallery", "there is no such gallery here")
        return self.worlds[name]

    # Other galleries

    def announce(self, lan_url: str | None) -> None:
        """Announces the address for guests in all worlds."""
        if lan_url is None:
            return
        name = self.guests.host.name
        announcement = Announcement(
            url=lan_url,
            name="" if name == HOST_NAME else name,
            key=self.signer.public_key,
        )
        for world in self.worlds.values():
            world.directory.set_own(announcement)

    def origin(self, guest: str) -> str | None:
        """The node from whose gallery a visitor came."""
        issuer = self.guests.issuer_of(guest)
        if issuer is None:
            return None
        found = (world.directory.find_by_key(issuer) for world in self.worlds.values())
        return next((peer.owner for peer in found if peer is not None), "")

    # Photos as guests see them

    def view_of(self, guest: Guest, world: GalleryWorld, card: Card, mark: str) -> ItemView | None:
        """A photo as a guest sees it; None if it is hidden from the guest."""
        hidden = self.is_hidden(world.name, card)
        if hidden and not guest.may("approve"):
            return None
        return ItemView(
            card=world.catalogue.encoded(card.key),
            mine=self.author(world.name, card.key) == guest.id,
            here=card.owner == world.node_id,
            mark=mark,
            wanted=any(sub.interest.wants(card) for sub in self.subscriptions(guest, world.name)),
            hidden=hidden,
        )

    def items(
        self,
        guest: Guest,
        world: GalleryWorld,
        view: str,
        *,
        interest: Interest | None = None,
        by: str | None = None,
        before: Position | None = None,
        limit: int = 100,
    ) -> tuple[list[ItemView], str | None]:
        """Photos of a view, newest first, and the position where the next page begins."""
        marks = self.marks(guest, world.name)
        found: list[ItemView] = []
        for card in world.catalogue.newest_first(before):
            if interest is not None and not interest.wants(card):
                continue
            if by is not None and by not in (card.owner, card.by):
                continue
            seen = self.view_of(guest, world, card, marks.get(card.key, ""))
            if seen is not None and _belongs(seen, view):
                found.append(seen)
                if len(found) == limit:
                    return found, f"{card.published_us}.{card.key}"
        return found, None

    def render(self, event: FeedEvent, guest: Guest) -> dict[str, Any] | None:
        """The facts of an event for a guest; None if it is not for the guest."""
        if event.guest not in (None, guest.id):
            return None
        facts: dict[str, Any] = {"world": event.world, **event.facts}
        if event.kind == "approval" and not guest.may("approve"):
            return None
        if event.key:
            facts["key"] = event.key
        if event.kind == "item":
            world = self.worlds[event.world]
            card = world.catalogue.get(event.key)
            if card is None:
                return None
            seen = self.view_of(guest, world, card, self.mark(guest, event.world, event.key))
            if seen is None:
                return None
            facts["item"] = seen
        return facts

    # Authors

    def author(self, world: str, key: str) -> str | None:
        """The guest of this gallery who published a photo; None if nobody did."""
        return self._posts.get((world, key))

    def add_post(self, world: str, key: str, guest: str, digest: bytes, size: int) -> None:
        """Remembers who published a photo."""
        self._posts[world, key] = guest
        self.database.execute(
            "INSERT OR REPLACE INTO posts VALUES (?, ?, ?, ?, ?)", world, key, guest, digest, size
        )

    def drop_post(self, world: str, key: str) -> None:
        """Forgets a photo that was deleted or not published after all."""
        self._posts.pop((world, key), None)
        self.database.execute("DELETE FROM posts WHERE world = ? AND key = ?", world, key)

    def find_post(self, world: str, digest: bytes) -> str | None:
        """The key of a photo with this content that was published here."""
        row = self.database.row(
            "SELECT key FROM posts WHERE world = ? AND digest = ?", world, digest
        )
        return None if row is None else str(row[0])

    def usage(self, guest: str) -> tuple[int, int]:
        """Number and bytes of the photos that a guest published, or that wait for approval."""
        row = self.database.row(
            "SELECT count(*), total(bytes) FROM (SELECT bytes FROM posts WHERE guest = ? "
            "UNION ALL SELECT bytes FROM pending WHERE guest = ?)",
            *(guest, guest),
        )
        assert row is not None
        return int(row[0]), int(row[1])

    # Marks

    def marks(self, guest: Guest, world: str) -> dict[str, str]:
        """The marks of a guest, by key."""
        statement = "SELECT key, mark FROM marks WHERE guest = ? AND world = ?"
        return dict(self.database.rows(statement, guest.id, world))

    def mark(self, guest: Guest, world: str, key: str) -> str:
        """The mark of a guest on a photo."""
        statement = "SELECT mark FROM marks WHERE guest = ? AND world = ? AND key = ?"
        row = self.database.row(statement, guest.id, world, key)
        return "" if row is None else str(row[0])

    def set_mark(self, guest: str, world: str, key: str, mark: str) -> None:
        """Marks a photo for a guest and updates the guest's pages."""
        if mark not in MARKS:
            raise RefusedError(400, "bad_mark", "a mark is downloaded, discarded, near or empty")
        if mark:
            self.database.execute(
                "INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)", guest, world, key, mark
            )
        else:
            self.database.execute(
                "DELETE FROM marks WHERE guest = ? AND world = ? AND key = ?", guest, world, key
            )
        self.feed.emit("item", world=world, key=key, guest=guest)

    def waiting_downloads(self) -> list[tuple[str, str, str]]:
        """Guest, world and key of each download that waits until the photo is near."""
        rows = self.database.rows("SELECT guest, world, key FROM marks WHERE mark = 'near'")
        return [(guest, world, key) for guest, world, key in rows if world in self.worlds]

    # Hiding

    def is_hidden(self, world: str, card: Card) -> bool:
        """Whether a photo, its node or its author here is hidden in this gallery."""
        if not self._hidden:
            return False
        author = self.author(world, card.key)
        return any(
            (world, what) in self._hidden for what in (card.key, card.owner, f"guest:{author}")
        )

    def is_node_hidden(self, world: str, owner: str) -> bool:
        """Whether all photos of a node are hidden in this gallery."""
        return (world, owner) in self._hidden

    def set_hidden(self, world: str, what: str, *, hidden: bool) -> None:
        """Hides a photo by its key, the photos of a node by its id, or those of a guest."""
        if hidden:
            self._hidden.add((world, what))
            self.database.execute("INSERT OR IGNORE INTO hidden VALUES (?, ?)", world, what)
        else:
            self._hidden.discard((world, what))
            self.database.execute("DELETE FROM hidden WHERE world = ? AND what = ?", world, what)
        self.feed.emit("reset", world=world)

    def hidden(self, world: str) -> list[str]:
        """Everything that is hidden in a world."""
        return sorted(what for name, what in self._hidden if name == world)

    # Subscriptions

    def subscriptions(self, guest: Guest, world: str) -> Iterator[GuestSubscription]:
        """The subscriptions of a guest in a world."""
        wanted = guest.id, world
        return (sub for sub in self._subscriptions.values() if (sub.guest, sub.world) == wanted)

    def subscribe_newcomer(self, guest: str) -> None:
        """Subscribes a new guest to everything, once in each world."""
        for world in self.worlds:
            fact = f"welcomed {guest} {world}"
            if self.database.execute("INSERT OR IGNORE INTO facts VALUES (?, '')", fact) == 1:
                self.subscribe(guest, world, Interest())

    def subscribe(self, guest: str, world: str, interest: Interest) -> GuestSubscription:
        """Adds a subscription of a guest."""
        own = [sub for sub in self._subscriptions.values() if sub.guest == guest]
        for sub in own:
            if (sub.world, sub.interest) == (world, interest):
                return sub
        if len(own) >= SUBSCRIPTIONS_MAX:
            raise RefusedError(429, "too_many", f"at most {SUBSCRIPTIONS_MAX} subscriptions")
        made = GuestSubscription(
            id=secrets.token_hex(6), guest=guest, world=world, interest=interest
        )
        self.database.execute(
            "INSERT INTO subscriptions VALUES (?, ?, ?, ?, ?, ?)",
            *(made.id, guest, world, interest.query, interest.start_us, interest.end_us),
        )
        self._remember(made)
        return made

    def unsubscribe(self, guest: Guest, sid: str) -> None:
        """Ends a subscription of a guest."""
        sub = self._subscriptions.get(sid)
        if sub is None or sub.guest != guest.id:
            raise RefusedError(404, "not_found", "there is no such subscription")
        del self._subscriptions[sid]
        self.database.execute("DELETE FROM subscriptions WHERE id = ?", sid)
        others = self._subscriptions.values()
        if not any((sub.world, sub.interest) == (o.world, o.interest) for o in others):
            self.worlds[sub.world].drop_interest(sub.interest)

    def _remember(self, subscription: GuestSubscription) -> None:
        self._subscriptions[subscription.id] = subscription
        self.worlds[subscription.world].add_interest(subscription.interest)


def _belongs(seen: ItemView, view: str) -> bool:
    """Whether a photo is part of a view."""
    match view:
        case "available":
            return seen.wanted and not seen.mine and not seen.hidden and seen.mark in ("", "near")
        case "downloads":
            return seen.mark == "downloaded" and not seen.hidden
        case "publications":
            return seen.mine
        case "hidden":
            return seen.hidden or seen.mark == "discarded"
        case _:
            return not seen.hidden
