"""Station session: an authenticated and encrypted connection between two stations.

Both sides send a hello with their public key and a new Diffie-Hellman key, then a proof: their
signature over both hellos. The keys of the session are derived from the Diffie-Hellman secret, so
a recorded session can neither be replayed nor decrypted later. Every frame has its number as nonce;
a missing, repeated or modified frame ends the session.
Pure: bytes in, bytes out. Entry points: `Handshake`, `StationSession`. Connections are up to
`thyme.live.station.wires`. Reasons: docs/decisions/0023-live-stations.md.
Clauses: I17, I20, B5, B8.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

import msgspec
from nacl.bindings import (
    crypto_aead_chacha20poly1305_ietf_ABYTES as TAG_BYTES,
)
from nacl.bindings import (
    crypto_aead_chacha20poly1305_ietf_decrypt,
    crypto_aead_chacha20poly1305_ietf_encrypt,
    crypto_scalarmult,
    crypto_scalarmult_base,
)
from nacl.exceptions import CryptoError

from thyme.model.errors import DecodeError
from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message
from thyme.wire import codec

VERSION = 1
EPHEMERAL_KEY_BYTES = 32
LENGTH_BYTES = 4
"""Each frame begins with its length."""
HANDSHAKE_FRAME_BYTES_MAX = 2_048
FRAME_BYTES_MAX = 300 * 2**20
"""An object of the maximum size, with its metadata."""
_KEY_BYTES = 32
_COUNTER_BYTES = 12
_PROOF_PURPOSE = b"thyme station session 1"


class StationFacts(msgspec.Struct, frozen=True, array_like=True):
    """What a station says about itself at the start of a session: the settings that all stations
    must agree on, and its clock."""

    name: str
    now_us: int
    reply_window_us: int
    """The length of a time slot (I20)."""
    stations: bytes
    """A digest of the ids of all stations (I20)."""


class SessionKey(Protocol):
    """The signing key of a station, and the verification of other stations' signatures."""

    public_key: bytes

    def make_signature(self, data: bytes) -> bytes:
        """Signs some bytes."""
        ...

    def verify(self, public_key: bytes, signature: bytes, data: bytes) -> bool:
        """Whether the owner of a public key signed some bytes."""
        ...

    def derive_id(self, public_key: bytes) -> NodeId:
        """The node id that belongs to a public key."""
        ...


class _SessionHello(msgspec.Struct, frozen=True, array_like=True):
    version: int
    public_key: bytes
    ephemeral_key: bytes


class _SessionProof(msgspec.Struct, frozen=True, array_like=True):
    signature: bytes
    facts: StationFacts


_decode_hello = msgspec.msgpack.Decoder(_SessionHello).decode
_decode_proof = msgspec.msgpack.Decoder(_SessionProof).decode


class Handshake:
    """The start of a session, as one of its two sides sees it."""

    def __init__(
        self, key: SessionKey, ephemeral_key: bytes, facts: StationFacts, *, is_initiator: bool
    ) -> None:
        """`ephemeral_key` is 32 random bytes, used for this session only."""
        self._key = key
        self._ephemeral_key = ephemeral_key
        self._facts = facts
        self._is_initiator = is_initiator
        own = _SessionHello(VERSION, key.public_key, crypto_scalarmult_base(ephemeral_key))
        self.hello = msgspec.msgpack.encode(own)
        """The first frame."""
        self._peer_key = b""
        self._transcript = b""
        self._session: StationSession | None = None

    def read_hello(self, hello: bytes) -> NodeId:
        """Reads the hello of the other side; returns the id that it claims."""
        try:
            peer = _decode_hello(hello)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DecodeError("malformed", str(error)) from None
        if peer.version != VERSION:
            raise DecodeError("version", f"a session of version {peer.version}")
        hellos = (self.hello, hello) if self._is_initiator else (hello, self.hello)
        self._transcript = _digest(b"transcript", *hellos)
        try:
            secret = crypto_scalarmult(self._ephemeral_key, peer.ephemeral_key)
        except (CryptoError, RuntimeError, TypeError, ValueError):
            raise DecodeError("malformed", "not a usable Diffie-Hellman key") from None
        keys = [_digest(role, secret, self._transcript) for role in (b"initiator", b"responder")]
        send, receive = keys if self._is_initiator else reversed(keys)
        self._peer_key = peer.public_key
        claimed = self._key.derive_id(peer.public_key)
        self._session = StationSession(claimed, send, receive)
        return claimed

    def make_proof(self) -> bytes:
        """The second frame: the proof of the own identity, encrypted."""
        assert self._session is not None, "read the other hello first"
        signed = self._signed_bytes(is_initiator=self._is_initiator)
        proof = _SessionProof(self._key.make_signature(signed), self._facts)
        return self._session.seal(msgspec.msgpack.encode(proof))

    def finish(self, proof: bytes) -> tuple[StationSession, StationFacts]:
        """Verifies the proof of the other side; returns the session."""
        assert self._session is not None, "read the other hello first"
        try:
            peer = _decode_proof(self._session.open(proof))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DecodeError("malformed", str(error)) from None
        signed = self._signed_bytes(is_initiator=not self._is_initiator)
        if not self._key.verify(self._peer_key, peer.signature, signed):
            raise DecodeError("forged", "wrong key or invalid signature")
        return self._session, peer.facts

    def _signed_bytes(self, *, is_initiator: bool) -> bytes:
        role = b"initiator" if is_initiator else b"responder"
        return _PROOF_PURPOSE + role + self._transcript


class StationSession:
    """The frames of one connection after the handshake."""

    def __init__(self, peer: NodeId, send_key: bytes, receive_key: bytes) -> None:
        self.peer = peer
        """The station at the other end."""
        self._send_key = send_key
        self._receive_key = receive_key
        self._sent = 0
        self._received = 0

    def seal(self, payload: bytes) -> bytes:
        """Encrypts the next frame; an empty payload only shows that the station is alive."""
        nonce = self._sent.to_bytes(_COUNTER_BYTES)
        self._sent += 1
        return crypto_aead_chacha20poly1305_ietf_encrypt(payload, None, nonce, self._send_key)

    def open(self, frame: bytes) -> bytes:
        """Decrypts the next frame; raises `DecodeError` if it is not the next one, unmodified."""
        if len(frame) < TAG_BYTES:
            raise DecodeError("malformed", "truncated")
        nonce = self._received.to_bytes(_COUNTER_BYTES)
        try:
            payload = crypto_aead_chacha20poly1305_ietf_decrypt(
                frame, None, nonce, self._receive_key
            )
        except CryptoError:
            raise DecodeError("forged", "modified, repeated or lost on the way") from None
        self._received += 1
        return payload


def encode_message(message: Message) -> bytes:
    """The payload of a frame with a message."""
    return codec.encode(message)


def decode_message(payload: bytes) -> Message:
    """The message in a payload; raises only `DecodeError`."""
    return codec.decode(payload)


def add_length(frame: bytes) -> bytes:
    """A frame with its length before it, as it is sent."""
    return len(frame).to_bytes(LENGTH_BYTES) + frame


def _digest(purpose: bytes, *parts: bytes) -> bytes:
    state = blake2b(digest_size=_KEY_BYTES, person=b"thyme session")
    for part in (purpose, *parts):
        state.update(len(part).to_bytes(4) + part)
    return state.digest()
