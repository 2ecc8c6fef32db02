"""Answer authentication: shows the receiver of an answer or receipt which node it is from.

Entry points: `AnswerAuthenticator.seal` for messages to a node, and `open` for those of one. An
answer carries a code that only its sender and its receiver can compute, so a node between them can
answer for neither. The public keys that this takes are exchanged on the way: a request carries the
key of its sender until an answer shows that the receiver knows it, and the answer to such a request
carries the key of the answering node. A node that lost a key answers without a code; that answer is
dropped, and the next try carries the key again. Signed records are up to `message_auth`.
Clauses: B5. Decision: docs/decisions/0056-authenticated-answers.md.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Authenticated, Message, ReliableMessage

_PEERS_MAX = 4_096
_FORGETFUL_REQUESTS = 32
"""How many requests carry the key after an answer without a code: a node that knows too many
others, perhaps invented ones, may forget the key again."""
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class PairKeys(Protocol):
    """Keys that this node shares with one other node each."""

    public_key: bytes
    """The public key of this node."""

    def learn(self, node: NodeId, public_key: bytes) -> bool:
        """Remembers the public key of a node; False if it is not the node's."""
        ...

    def compute_code(self, peer: NodeId, content: bytes, *, from_peer: bool) -> bytes | None:
        """The code of a message to or from a node; None if its public key is not known."""
        ...

    def is_code(self, peer: NodeId, content: bytes, code: bytes) -> bool:
        """Whether a node computed this code of a message to this node."""
        ...


class AnswerAuthenticator:
    """Adds codes to the answers of one node and requires them from others."""

    def __init__(self, keys: PairKeys, dropped: Counter[str]) -> None:
        self._keys = keys
        self._dropped = dropped
        self._confirmed: BoundedDict[NodeId, None] = BoundedDict(_PEERS_MAX)
        """Nodes that have shown that they know the key of this one."""
        self._forgetful: BoundedDict[NodeId, int] = BoundedDict(_PEERS_MAX)
        """Nodes that lost the key of this one, with the number of requests that still carry it."""
        self._asking: BoundedDict[NodeId, None] = BoundedDict(_PEERS_MAX)
        """Nodes whose last request carried their key, so they may lack the key of this one."""

    def is_confirmed(self, node: NodeId) -> bool:
        """Whether a node has sent an answer with a valid code."""
        return node in self._confirmed

    def seal(self, to: NodeId, message: Message) -> Message:
        """Returns a message as it is sent to a node: with code and key, if it needs them."""
        introduces = message.introduces and (
            to not in self._confirmed or (to in self._forgetful and self._count_request(to))
        )
        needs_code = _needs_code(message)
        if not (needs_code or introduces):
            return message
        content = _encode(message)
        key, code = b"", b""
        if introduces or to in self._asking:
            key = self._keys.public_key
        if needs_code:
            code = self._keys.compute_code(to, content, from_peer=False) or b""
        return Authenticated(key, code, content) if key or code else message

    def _count_request(self, to: NodeId) -> bool:
        """Counts a request to a node that lost the key before; True: it may have lost it again."""
        left = self._forgetful.pop(to) - 1
        if left > 0:
            self._forgetful[to] = left
        return True

    def introduce(self, message: Message) -> Message:
        """Returns a request to all nodes with the key of this one: any of them may answer."""
        return Authenticated(self._keys.public_key, b"", _encode(message))

    def open(self, sender: NodeId, message: Message) -> Message | None:
        """Returns the content of a received message; None if it is not shown to be the sender's."""
        if not isinstance(message, Authenticated):
            if _needs_code(message):
                self._reject(sender, "no code")
                return None
            if message.introduces:
                self._asking.pop(sender, None)
            return message
        if message.public_key:
            if not self._keys.learn(sender, message.public_key):
                self._reject(sender, "false key")
                return None
            self._asking[sender] = None
        is_proven = bool(message.code)
        if is_proven and not self._keys.is_code(sender, message.content, message.code):
            self._reject(sender, "false code")
            return None
        content = _decode(message.content)
        if content is None or isinstance(content, Authenticated):
            self._dropped["malformed content"] += 1
            return None
        if is_proven:
            self._confirmed[sender] = None
        elif _needs_code(content):
            self._reject(sender, "no code")
            return None
        return content

    def _reject(self, sender: NodeId, reason: str) -> None:
        self._dropped[f"not authenticated: {reason}"] += 1
        self._confirmed.pop(sender, None)
        self._forgetful[sender] = _FORGETFUL_REQUESTS


def _needs_code(message: Message) -> bool:
    """Whether a message is an answer, or an answer that is repeated until it is acknowledged."""
    if isinstance(message, ReliableMessage):
        return message.message.authenticated
    return message.authenticated


def _decode(content: bytes) -> Message | None:
    try:
        return _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
