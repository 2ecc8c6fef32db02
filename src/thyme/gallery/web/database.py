"""Database of a gallery: guests, invitations, marks on photos and the cache of thumbnails.

Everything here is local to this gallery; photos are in the world. Losing the file loses names and
marks, no photo. Entry point: `GalleryDatabase`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SCHEMA = """
CREATE TABLE IF NOT EXISTS guests (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, rights TEXT NOT NULL,
    blocked INTEGER NOT NULL DEFAULT 0, joined_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (
    digest BLOB PRIMARY KEY, guest TEXT NOT NULL, expires_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS invitations (
    token TEXT PRIMARY KEY, rights TEXT NOT NULL, once INTEGER NOT NULL, used INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS items (
    world TEXT NOT NULL, key TEXT NOT NULL, published_us INTEGER NOT NULL,
    metadata BLOB NOT NULL, card BLOB NOT NULL, thumbnail BLOB NOT NULL,
    PRIMARY KEY (world, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS posts (
    world TEXT NOT NULL, key TEXT NOT NULL, guest TEXT NOT NULL, digest BLOB NOT NULL,
    bytes INTEGER NOT NULL, PRIMARY KEY (world, key));
CREATE INDEX IF NOT EXISTS posts_by_digest ON posts (world, digest);
CREATE TABLE IF NOT EXISTS marks (
    guest TEXT NOT NULL, world TEXT NOT NULL, key TEXT NOT NULL, mark TEXT NOT NULL,
    PRIMARY KEY (guest, world, key));
CREATE TABLE IF NOT EXISTS hidden (
    world TEXT NOT NULL, what TEXT NOT NULL, PRIMARY KEY (world, what));
CREATE TABLE IF NOT EXISTS subscriptions (
    id TEXT PRIMARY KEY, guest TEXT NOT NULL, world TEXT NOT NULL, query TEXT NOT NULL,
    start_us INTEGER, end_us INTEGER);
CREATE TABLE IF NOT EXISTS pending (
    id TEXT PRIMARY KEY, world TEXT NOT NULL, guest TEXT NOT NULL, bytes INTEGER NOT NULL,
    entry BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS peers (
    world TEXT NOT NULL, owner TEXT NOT NULL, entry BLOB NOT NULL, PRIMARY KEY (world, owner));
CREATE TABLE IF NOT EXISTS visitors (
    issuer BLOB NOT NULL, visitor TEXT NOT NULL, guest TEXT NOT NULL,
    PRIMARY KEY (issuer, visitor));
CREATE TABLE IF NOT EXISTS copies (
    world TEXT NOT NULL, key TEXT NOT NULL, bytes INTEGER NOT NULL,
    wanted INTEGER NOT NULL, PRIMARY KEY (world, key));
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class GalleryDatabase:
    """The SQLite file of a gallery."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.executescript(_SCHEMA)

    def execute(self, statement: str, *values: Any) -> int:
        """Executes a statement; returns the number of rows that it changed."""
        return self._connection.execute(statement, values).rowcount

    def rows(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The rows that a statement selects."""
        return self._connection.execute(statement, values)

    def row(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row that a statement selects."""
        found: tuple[Any, ...] | None = self._connection.execute(statement, values).fetchone()
        return found

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()
