"""Guests: who they are, what they may do, and how they come in.

An invitation is a token in a link. It becomes a session: a cookie whose digest is stored. The
invitation of the code to scan is for everybody until the host changes it; a personal invitation
works once. Entry point: `Guests`.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from hashlib import sha256

import msgspec

from thyme.gallery.settings import RIGHTS, GallerySettings
from thyme.gallery.summary import NAME_CHARS_MAX, clean_text
from thyme.gallery.web.database import GalleryDatabase
from thyme.gallery.web.responses import RefusedError

HOST_ID = "host"
_TOKEN_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that look alike
_TOKEN_CHARS = 10
_WRONG_TRIES_MAX = 10
_WRONG_TRIES_S = 60.0
VISITORS_MAX = 200
"""How many guests of another gallery are let in."""


class Guest(msgspec.Struct, frozen=True, kw_only=True):
    """A person who uses the gallery."""

    id: str
    name: str
    rights: str
    """The highest right: look, publish, approve, or host."""
    blocked: bool = False

    def may(self, right: str) -> bool:
        """Whether the guest has a right; each right includes those before it."""
        order = (*RIGHTS, HOST_ID)
        return not self.blocked and order.index(self.rights) >= order.index(right)


class Guests:
    """The guests of a gallery, their sessions and invitations."""

    def __init__(self, database: GalleryDatabase, settings: GallerySettings) -> None:
        self._database = database
        self._settings = settings
        self._wrong_tries: dict[str, deque[float]] = {}
        if self.find(HOST_ID) is None:
            self._add(HOST_ID, settings.host_name, HOST_ID)

    def find(self, guest_id: str) -> Guest | None:
        """The guest with an id."""
        row = self._database.row(
            "SELECT id, name, rights, blocked FROM guests WHERE id = ?", guest_id
        )
        return None if row is None else _guest(row)

    @property
    def host(self) -> Guest:
        """The person at this machine."""
        host = self.find(HOST_ID)
        assert host is not None
        return host

    def all(self) -> list[Guest]:
        """All guests, in the order of their arrival."""
        rows = self._database.rows("SELECT id, name, rights, blocked FROM guests ORDER BY joined_s")
        return [_guest(row) for row in rows]

    # Invitations

    def invitation(self) -> str:
        """The token of the invitation for everybody."""
        row = self._database.row("SELECT token FROM invitations WHERE once = 0")
        return self.renew_invitation() if row is None else str(row[0])

    def renew_invitation(self) -> str:
        """Replaces the invitation for everybody: the old one no longer works."""
        self._database.execute("DELETE FROM invitations WHERE once = 0")
        return self._add_invitation(self._settings.guest_rights, once=False)

    def invite(self, rights: str) -> str:
        """Makes an invitation that works once."""
        if rights not in RIGHTS:
            raise RefusedError(400, "bad_rights", f"rights are one of {', '.join(RIGHTS)}")
        return self._add_invitation(rights, once=True)

    def _add_invitation(self, rights: str, *, once: bool) -> str:
        token = "".join(secrets.choice(_TOKEN_LETTERS) for _ in range(_TOKEN_CHARS))
        self._database.execute(
            "INSERT INTO invitations VALUES (?, ?, ?, 0)", token, rights, int(once)
        )
        return token

    def join(self, token: str, name: str, address: str, old_secret: str = "") -> tuple[Guest, str]:
        """Takes in a guest with an invitation; returns the guest and the session's secret.

        A visitor from another gallery, known by the session, becomes a guest of this one.
        """
        self.check_tries(address)
        shown = clean_text(name, NAME_CHARS_MAX)
        if not shown:
            raise RefusedError(400, "no_name", "a name is needed, so that others know who you are")
        row = self._database.row(
            "SELECT rights, once, used FROM invitations WHERE token = ?", token
        )
        if row is None:
            self.count_wrong_try(address)
            raise RefusedError(403, "bad_invitation", "this invitation is not valid: scan again")
        rights, once, used = row
        if once and used:
            raise RefusedError(403, "used_invitation", "this invitation was used: get a new one")
        self._database.execute("UPDATE invitations SET used = used + 1 WHERE token = ?", token)
        visitor = self._find_visitor(old_secret)
        if visitor is None:
            guest = self._add(secrets.token_hex(8), shown, rights)
        else:
            self._database.execute("DELETE FROM visitors WHERE guest = ?", visitor.id)
            self.change(visitor.id, rights=rights, blocked=None)
            guest = self.find(visitor.id) or visitor
        return guest, self._open_session(guest)

    def count_wrong_try(self, address: str) -> None:
        """Counts a wrong invitation or pass from an address."""
        self._wrong_tries.setdefault(address, deque(maxlen=100)).append(time.time())

    def check_tries(self, address: str) -> None:
        """Refuses an address with many wrong invitations in the last minute."""
        tries = self._wrong_tries.get(address, deque())
        while tries and tries[0] < time.time() - _WRONG_TRIES_S:
            tries.popleft()
        if len(tries) >= _WRONG_TRIES_MAX:
            raise RefusedError(429, "too_many_tries", "too many wrong invitations: wait a minute")

    def _add(self, guest_id: str, name: str, rights: str) -> Guest:
        guest = Guest(id=guest_id, name=name, rights=rights)
        self._database.execute(
            "INSERT INTO guests VALUES (?, ?, ?, 0, ?)", guest_id, name, rights, time.time()
        )
        return guest

    # Visitors: guests of other galleries

    def visit(self, issuer: bytes, visitor: str, name: str, rights: str) -> tuple[Guest, str]:
        """Takes in a guest of another gallery, each as one guest with one session here."""
        row = self._database.row(
            "SELECT guest FROM visitors WHERE issuer = ? AND visitor = ?", issuer, visitor
        )
        guest = None if row is None else self.find(row[0])
        if guest is None:
            count = self._database.row("SELECT count(*) FROM visitors WHERE issuer = ?", issuer)
            if count is not None and count[0] >= VISITORS_MAX:
                raise RefusedError(429, "too_many", "too many guests of that gallery are here")
            guest = self._add(secrets.token_hex(8), clean_text(name, NAME_CHARS_MAX), rights)
            self._database.execute(
                "INSERT INTO visitors VALUES (?, ?, ?)", issuer, visitor, guest.id
            )
        if guest.blocked:
            raise RefusedError(403, "blocked", "the host has blocked you in this gallery")
        self._database.execute("DELETE FROM sessions WHERE guest = ?", guest.id)
        return guest, self._open_session(guest)

    def issuer_of(self, guest_id: str) -> bytes | None:
        """The key of the gallery from which a visitor came; None for other guests."""
        row = self._database.row("SELECT issuer FROM visitors WHERE guest = ?", guest_id)
        return None if row is None else bytes(row[0])

    def is_visitor(self, guest_id: str) -> bool:
        """Whether a guest came with a pass of another gallery."""
        return self.issuer_of(guest_id) is not None

    def _find_visitor(self, secret: str) -> Guest | None:
        try:
            guest = self.find_session(secret)
        except RefusedError:
            return None
        return guest if self.is_visitor(guest.id) and not guest.blocked else None

    # Sessions

    def _open_session(self, guest: Guest) -> str:
        secret = secrets.token_urlsafe(24)
        expires_s = time.time() + self._settings.session_s
        self._database.execute(
            "INSERT INTO sessions VALUES (?, ?, ?)", _digest(secret), guest.id, expires_s
        )
        return secret

    def find_session(self, secret: str) -> Guest:
        """The guest of a session; raises `RefusedError` if it has expired or does not exist."""
        row = self._database.row(
            "SELECT guest, expires_s FROM sessions WHERE digest = ?", _digest(secret)
        )
        if row is None or row[1] < time.time():
            raise RefusedError(401, "session_expired", "your visit has expired: scan again")
        guest = self.find(row[0])
        assert guest is not None
        return guest

    def is_present(self, guest_id: str) -> bool:
        """Whether a guest has a session that has not expired; the host needs none."""
        row = self._database.row("SELECT MAX(expires_s) FROM sessions WHERE guest = ?", guest_id)
        return guest_id == HOST_ID or bool(row and row[0] and row[0] >= time.time())

    def close_session(self, secret: str) -> None:
        """Ends a session."""
        self._database.execute("DELETE FROM sessions WHERE digest = ?", _digest(secret))

    # Changes

    def rename(self, guest: Guest, name: str) -> None:
        """Changes the name of a guest; photos published before keep the old one."""
        shown = clean_text(name, NAME_CHARS_MAX)
        if not shown:
            raise RefusedError(400, "no_name", "a name has at least one character")
        self._database.execute("UPDATE guests SET name = ? WHERE id = ?", shown, guest.id)

    def change(self, guest_id: str, *, rights: str | None, blocked: bool | None) -> None:
        """Changes the rights of a guest, or blocks the guest."""
        if guest_id == HOST_ID or self.find(guest_id) is None:
            raise RefusedError(404, "no_guest", "there is no such guest")
        if rights is not None:
            if rights not in RIGHTS:
                raise RefusedError(400, "bad_rights", f"rights are one of {', '.join(RIGHTS)}")
            self._database.execute("UPDATE guests SET rights = ? WHERE id = ?", rights, guest_id)
        if blocked is not None:
            self._database.execute(
                "UPDATE guests SET blocked = ? WHERE id = ?", int(blocked), guest_id
            )


def _guest(row: tuple[object, ...]) -> Guest:
    guest_id, name, rights, blocked = row
    return Guest(id=str(guest_id), name=str(name), rights=str(rights), blocked=bool(blocked))


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
