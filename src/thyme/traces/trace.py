"""The trace: a valid sequence of operations.

In a valid trace, a user deletes only its own existing objects and revokes only its own active
subscriptions, ids are unique, and instants do not decrease; `TraceValidator` checks this. Ids of
objects and subscriptions are unique in the whole trace, not only per user (M3), so that logs can be
joined by them.
Clauses: S10, M14, M18, M29.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import assert_never

import msgspec

from thyme.model.errors import InputError
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    Operation,
    SubscribeOperation,
    TraceError,
    UnsubscribeOperation,
)


class Trace(msgspec.Struct, frozen=True):
    """The operations of users 0, 1, 2 and so on, in the order of issue."""

    users: int
    operations: tuple[Operation, ...]

    def __post_init__(self) -> None:
        validator = TraceValidator(self.users)
        for number, operation in enumerate(self.operations):
            try:
                validator.check(operation)
            except TraceError as error:
                raise TraceError(f"operation {number}, {error.field}", error.problem) from error

    def __len__(self) -> int:
        return len(self.operations)

    def counts(self) -> dict[str, int]:
        """Number of operations by kind (C21)."""
        found = Counter(operation_kind(operation) for operation in self.operations)
        return {kind: found[kind] for kind in KINDS}

    def operations_of_user(self, user: int) -> tuple[Operation, ...]:
        """The operations of one user."""
        return tuple(operation for operation in self.operations if operation.user == user)


KINDS = {
    "insert": InsertOperation,
    "delete": DeleteOperation,
    "subscribe": SubscribeOperation,
    "unsubscribe": UnsubscribeOperation,
}
"""Kinds of operations, by their name in tables."""
_NAMES = {kind: name for name, kind in KINDS.items()}


def operation_kind(operation: Operation) -> str:
    """The name of the kind of an operation."""
    return _NAMES[type(operation)]


def merge_users(users: int, operations: Iterable[Operation]) -> Trace:
    """Merges the operations of users into a trace; those of each user are given in order.

    At the same instant, lower user numbers come first.
    """
    return Trace(users, tuple(sorted(operations, key=lambda each: (each.at_us, each.user))))


def truncate_at_crashes(trace: Trace, crashes_us: Mapping[int, int]) -> Trace:
    """Removes the operations of each user from the instant of its crash on (S7).

    Instants count from the start of the operations. Earlier operations keep their effect: a perfect
    execution loses nothing.
    """
    return Trace(
        trace.users,
        tuple(
            operation
            for operation in trace.operations
            if operation.user not in crashes_us or operation.at_us < crashes_us[operation.user]
        ),
    )


class TraceValidator:
    """Validates the operations of a trace one by one."""

    def __init__(self, users: int | None = None) -> None:
        if users is not None and users < 1:
            raise InputError(f"a trace has at least one user, not {users}")
        self._users = users
        self._now_us = 0
        self._inserts: dict[str, InsertOperation] = {}
        self._deleted: set[str] = set()
        self._subscribes: dict[str, SubscribeOperation] = {}
        self._cancelled: set[str] = set()

    def check(self, operation: Operation) -> None:
        """Checks and records the next operation; raises `TraceError` if it is invalid."""
        if self._users is not None and operation.user >= self._users:
            raise TraceError(
                "user", f"unknown: {operation.user}; users are numbered 0 to {self._users - 1}"
            )
        if operation.at_us < self._now_us:
            raise TraceError("at_us", f"time goes back from {self._now_us} to {operation.at_us} µs")
        self._now_us = operation.at_us
        match operation:
            case InsertOperation():
                self._check_insert(operation)
            case DeleteOperation():
                self._check_delete(operation)
            case SubscribeOperation():
                self._check_subscribe(operation)
            case UnsubscribeOperation():
                self._check_unsubscribe(operation)
            case _:
                assert_never(operation)

    def _check_insert(self, insert: InsertOperation) -> None:
        if (other := self._inserts.get(insert.oid)) is not None:
            raise TraceError("oid", f"{insert.oid} was already inserted by user {other.user}")
        self._inserts[insert.oid] = insert

    def _check_delete(self, delete: DeleteOperation) -> None:
        oid = delete.oid
        insert = self._inserts.get(oid)
        if insert is None:
            raise TraceError("oid", f"{oid} is deleted but was not inserted before")
        if insert.user != delete.user:
            raise TraceError(
                "user", f"{oid} belongs to user {insert.user}: {delete.user} may not delete it"
            )
        if oid in self._deleted:
            raise TraceError("oid", f"{oid} is deleted twice")
        if insert.has_expired(delete.at_us):
            raise TraceError("oid", f"{oid} is deleted after it expired")
        self._deleted.add(oid)

    def _check_subscribe(self, subscribe: SubscribeOperation) -> None:
        if (other := self._subscribes.get(subscribe.sid)) is not None:
            raise TraceError("sid", f"{subscribe.sid} was already used by user {other.user}")
        self._subscribes[subscribe.sid] = subscribe

    def _check_unsubscribe(self, unsubscribe: UnsubscribeOperation) -> None:
        sid = unsubscribe.sid
        subscribe = self._subscribes.get(sid)
        if subscribe is None:
            raise TraceError("sid", f"{sid} is revoked but there was no such subscription before")
        if subscribe.user != unsubscribe.user:
            raise TraceError(
                "user",
                f"{sid} belongs to user {subscribe.user}: {unsubscribe.user} may not revoke it",
            )
        if sid in self._cancelled:
            raise TraceError("sid", f"{sid} is revoked twice")
        if subscribe.frame.has_ended(unsubscribe.at_us):
            raise TraceError("sid", f"{sid} is revoked after its frame was over")
        self._cancelled.add(sid)
