"""Message authentication: signs the records in sent messages and verifies those in received ones.

Entry points: `MessageAuthenticator.sign_message` and `verify_message`. Every signed record
(`thyme.model.signed_records`) in a received message is verified. Invalid records are removed; a
message that consists of one invalid record is dropped. All other code trusts verified records.
A message type declares its records and its author (`messages.traits`).
Clauses: B5, D15, D16, D20.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast, get_args

import msgspec

from thyme.model.errors import ThymeError
from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.signed_records import (
    DeleteRecord,
    LocationRecord,
    RecordSigner,
    UnsubscribeRecord,
    verify_subscription,
)
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.protocol.answer_auth import AnswerAuthenticator, PairKeys
from thyme.protocol.messages.cell_records import (
    CellId,
    CellSubscription,
    IndexedMetadata,
    MatchedObject,
    SignedInstant,
    SignedLocation,
    TombstoneRecord,
)
from thyme.protocol.messages.common import (
    MESSAGE_TYPES,
    Authenticated,
    Flooded,
    Message,
    SignedMessage,
)
from thyme.protocol.messages.traits import (
    BaseMessage,
    LocationMessage,
    RecordKind,
    StatementMessage,
)
from thyme.protocol.node import Action, Broadcast, Send

M = TypeVar("M", bound=BaseMessage)

_INVALID_MAX = 8
"""Number of invalid records in a list after which the rest of it is dropped."""


def _contained_messages(kind: type[BaseMessage]) -> Iterator[str]:
    return (name for name, record_kind in kind.records if record_kind is RecordKind.MESSAGE)


_SIGNED_VARIANTS: tuple[type[BaseMessage], ...] = get_args(SignedMessage)
_SIGNABLE = frozenset(
    kind
    for kind in MESSAGE_TYPES
    if kind not in _SIGNED_VARIANTS
    and (issubclass(kind, StatementMessage | LocationMessage) or any(_contained_messages(kind)))
)
"""The types of messages that have a signed variant, or contain a message that may have one."""
_VERIFIABLE = frozenset(
    kind
    for kind in MESSAGE_TYPES
    if kind.records or issubclass(kind, StatementMessage | LocationMessage)
)
"""The types of messages that contain signed records, or are statements of their author."""


class MessageAuthenticator:
    """Signs and verifies the messages of one node."""

    def __init__(
        self,
        node_id: NodeId,
        signer: RecordSigner,
        *,
        check_locations: bool = False,
        pair_keys: PairKeys | None = None,
    ) -> None:
        """`check_locations`: whether subscriptions need a signed location. With `pair_keys`,
        answers of other nodes need a code."""
        self._node_id = node_id
        self.signer = signer
        self._check_locations = check_locations
        self.dropped: Counter[str] = Counter()
        """The number of invalid records, by kind."""
        self.answers = None if pair_keys is None else AnswerAuthenticator(pair_keys, self.dropped)

    # Signing

    def sign_message(self, message: M, now_us: int, cell: CellId | None = None) -> M:
        """Returns the signed variant of a message; most messages are returned unchanged."""
        if type(message) not in _SIGNABLE or message.author(self._node_id) != self._node_id:
            return message
        signed: BaseMessage = message
        match message:
            case StatementMessage():
                signed = message.with_proof(self.signer.sign(message.statement()))
            case LocationMessage():
                if cell is not None:
                    signed = message.with_location(self._sign_location(cell, now_us))
            case _:
                for name in _contained_messages(type(message)):
                    inner = getattr(message, name)
                    signed_inner = self.sign_message(inner, now_us)
                    if signed_inner is not inner:
                        signed = msgspec.structs.replace(signed, **{name: signed_inner})
        return cast("M", signed)

    def sign_actions(self, actions: list[Action], now_us: int) -> list[Action]:
        """Replaces the messages in a list of actions by their signed variants, in place."""
        for index, action in enumerate(actions):
            if isinstance(action, Send):
                message = self.seal_message(action.to, self.sign_message(action.message, now_us))
                if message is not action.message:
                    actions[index] = Send(action.to, message)
            elif isinstance(action, Broadcast) and type(action.message) in _SIGNABLE:
                signed = self.sign_message(action.message, now_us)
                actions[index] = Broadcast(self._introduce_flooded(signed))
        return actions

    def _introduce_flooded(self, message: Message) -> Message:
        """Adds the key of this node to a query that it floods, so that owners can answer it."""
        if self.answers is None or not isinstance(message, Flooded):
            return message
        inner = message.message
        if message.origin != self._node_id or not inner.reads_only:
            return message
        return msgspec.structs.replace(message, message=self.answers.introduce(inner))

    def open_flooded(self, origin: NodeId, message: Message) -> Message | None:
        """The content of a flooded message; None if the key in it is not that of its origin."""
        if self.answers is None or not isinstance(message, Authenticated):
            return message
        opened = self.answers.open(origin, message)
        return None if opened is None else self.verify_message(origin, opened)

    def seal_message(self, to: NodeId, message: Message) -> Message:
        """Returns a message to one node with what shows it who sent it, if it needs that."""
        if self.answers is None or to == self._node_id:
            return message
        return self.answers.seal(to, message)

    def _sign_location(self, cell: CellId, now_us: int) -> SignedLocation:
        proof = self.signer.sign(LocationRecord(self._node_id, cell, now_us))
        return SignedLocation(cell, SignedInstant(now_us, proof))

    # Verifying messages

    def verify_received(self, origin: NodeId, message: Message) -> Message | None:
        """Returns a received message without its invalid records; None if nothing remains, or if
        it is an answer that is not shown to be from `origin`."""
        opened: Message | None = message
        if self.answers is not None and origin != self._node_id:
            opened = self.answers.open(origin, message)
        return None if opened is None else self.verify_message(origin, opened)

    def verify_message(self, origin: NodeId, message: M) -> M | None:
        """Returns a message, or one inside another, without its invalid records; None if nothing
        remains."""
        if type(message) not in _VERIFIABLE:
            return message
        author = message.author(origin)
        changed: dict[str, object] = {}
        for name, kind in message.records:
            value = getattr(message, name)
            verified = self._verify_value(author, kind, value)
            if verified is None and value is not None:
                return None
            if verified is not value:
                changed[name] = verified
        if isinstance(message, StatementMessage) and not self._is_valid_statement(message):
            return None
        if (
            isinstance(message, LocationMessage)
            and (message.location_required or self._check_locations)
            and not self._is_valid_location(author, message.location)
        ):
            return None
        return msgspec.structs.replace(message, **changed) if changed else message

    def _verify_value(self, author: NodeId, kind: RecordKind, value: Any) -> object:
        """Returns a field's value without invalid records; None if nothing remains."""
        if value is None:
            return None
        if kind is RecordKind.MESSAGE:
            return self.verify_message(author, value)
        is_valid = _CHECKS[kind]
        if isinstance(value, tuple):
            return self._filter_valid(kind, value)
        return value if is_valid(self, value) else None

    def _filter_valid(self, kind: RecordKind, records: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the valid records, the same tuple if all are valid. After a few invalid ones the
        rest is not verified: it costs more than it can be worth."""
        is_valid = _CHECKS[kind]
        valid: list[Any] = []
        invalid = 0
        for index, record in enumerate(records):
            if is_valid(self, record):
                valid.append(record)
            elif (invalid := invalid + 1) == _INVALID_MAX:
                self.dropped["not genuine: rest"] += len(records) - index - 1
                break
        return tuple(valid) if invalid else records

    # Verifying records

    def is_valid_metadata(self, metadata: Metadata) -> bool:
        """Whether the owner of an object signed its metadata; counts it if not."""
        return self._count_invalid("object", self.signer.verify(metadata, metadata.proof))

    def is_valid_indexed(self, indexed: IndexedMetadata) -> bool:
        """Whether the owner of an indexed object signed its metadata."""
        return self.is_valid_metadata(indexed.metadata)

    def is_valid_match(self, matched: MatchedObject) -> bool:
        """Whether the owner of a matched object signed its metadata."""
        return self.is_valid_metadata(matched.indexed.metadata)

    def is_valid_subscription(self, subscription: SubscriptionRecord) -> bool:
        """Whether its subscriber signed a subscription."""
        return self._count_invalid("subscription", verify_subscription(subscription, self.signer))

    def is_valid_cell_subscription(self, record: CellSubscription) -> bool:
        """Whether its subscriber signed a subscription and its location."""
        if not self.is_valid_subscription(record.subscription):
            return False
        located = record.located
        location = (
            SignedLocation(record.cell, located) if isinstance(located, SignedInstant) else None
        )
        return self._is_valid_location(record.subscription.key.subscriber, location)

    def _is_valid_location(self, node: NodeId, location: SignedLocation | None) -> bool:
        valid = location is not None and self.signer.verify(
            LocationRecord(node, location.cell, location.since.at_us), location.since.proof
        )
        return self._count_invalid("location", valid)

    def _is_valid_statement(self, message: StatementMessage) -> bool:
        return self._is_proven(message.statement(), message.proof)

    def _is_proven(self, record: DeleteRecord | UnsubscribeRecord, proof: bytes) -> bool:
        kind = "delete" if isinstance(record, DeleteRecord) else "unsubscribe"
        return self._count_invalid(kind, self.signer.verify(record, proof))

    def is_valid_object_tombstone(self, tombstone: TombstoneRecord) -> bool:
        """Only a delete is signed; an expiry follows from the object's own metadata."""
        if not isinstance(tombstone.removed, SignedInstant):
            return (
                self._count_invalid("delete", valid=False)
                if tombstone.reason == "deleted"
                else False
            )
        key = _parse_key(tombstone)
        return key is not None and self._is_proven(DeleteRecord(key), tombstone.removed.proof)

    def is_valid_subscription_tombstone(self, tombstone: TombstoneRecord) -> bool:
        """Whether its subscriber signed the end of a subscription."""
        key = _parse_key(tombstone)
        if key is None or not isinstance(tombstone.removed, SignedInstant):
            return self._count_invalid("unsubscribe", valid=False)
        sub_key = SubscriptionKey(SubscriptionId(key.oid), key.owner)
        return self._is_proven(UnsubscribeRecord(sub_key), tombstone.removed.proof)

    def _count_invalid(self, kind: str, valid: bool) -> bool:
        if not valid:
            self.dropped[f"not genuine: {kind}"] += 1
        return valid


_CHECKS: dict[RecordKind, Callable[[MessageAuthenticator, Any], bool]] = {
    RecordKind.METADATA: MessageAuthenticator.is_valid_metadata,
    RecordKind.INDEXED_METADATA: MessageAuthenticator.is_valid_indexed,
    RecordKind.MATCHED_OBJECT: MessageAuthenticator.is_valid_match,
    RecordKind.SUBSCRIPTION: MessageAuthenticator.is_valid_subscription,
    RecordKind.CELL_SUBSCRIPTION: MessageAuthenticator.is_valid_cell_subscription,
    RecordKind.OBJECT_TOMBSTONE: MessageAuthenticator.is_valid_object_tombstone,
    RecordKind.SUBSCRIPTION_TOMBSTONE: MessageAuthenticator.is_valid_subscription_tombstone,
}
"""The check of every kind of record."""


def verify_incoming(
    authenticator: MessageAuthenticator | None, origin: NodeId, message: Message
) -> Message | None:
    """Verifies a message; without an authenticator (no node keys), returns it unchanged."""
    return message if authenticator is None else authenticator.verify_received(origin, message)


def _parse_key(tombstone: TombstoneRecord) -> Key | None:
    try:
        return Key.parse(tombstone.key)
    except ThymeError:
        return None
