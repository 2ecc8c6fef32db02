"""Encryption: encrypts, authenticates and replay-protects the datagrams of a closed world.

Every incarnation of a node draws a random stream id, from which its key is derived, and counts its
datagrams, so that no key is used with the same nonce twice. Replayed datagrams are rejected: within
a stream by a window of counters; and a stream is accepted only from where its sender has answered a
challenge of this node: what was recorded before this incarnation has lower counters, or no answer.
Without the secret, an observer sees the world's digest, the stream ids, and the sizes and times of
datagrams.
Pure: bytes in, bytes out. Entry point: `DatagramCipher`. Reasons: docs/decisions/0014-trust.md.
Clauses: B5.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b, scrypt

import msgspec
from nacl.bindings import (
    crypto_aead_chacha20poly1305_ietf_ABYTES as TAG_BYTES,
)
from nacl.bindings import (
    crypto_aead_chacha20poly1305_ietf_decrypt,
    crypto_aead_chacha20poly1305_ietf_encrypt,
)
from nacl.exceptions import CryptoError

from thyme.model.errors import DecodeError, OptionError
from thyme.model.worlds import WorldInfo
from thyme.transport.datagrams import (
    DATAGRAM_BYTES_MAX,
    ENCRYPTED_MAGIC,
    HELLO_TAG,
    WORLD_DIGEST_BYTES,
    digest_world,
    read_header,
)

SECRET_CHARS_MIN = 8
STREAM_ID_BYTES = 16
COUNTER_BYTES = 8
CHALLENGE_BYTES = 16
KEY_BYTES = 32
REPLAY_WINDOW = 4_096
"""How far behind the highest counter of its stream a datagram is still accepted."""
STREAMS_MAX = 4_096
REJECTED_MIN = 3
_PREFIX_BYTES = len(ENCRYPTED_MAGIC) + WORLD_DIGEST_BYTES
_HEADER_BYTES = _PREFIX_BYTES + STREAM_ID_BYTES + COUNTER_BYTES
_COUNTER = slice(_HEADER_BYTES - COUNTER_BYTES, _HEADER_BYTES)
_WINDOW_MASK = (1 << REPLAY_WINDOW) - 1
_DATAGRAM, _CHALLENGE = b"\x00", b"\x01"


def check_secret(secret: str) -> None:
    """Raises `OptionError` if a secret is too short."""
    if len(secret) < SECRET_CHARS_MIN:
        raise OptionError(f"a world's secret needs at least {SECRET_CHARS_MIN} characters")


def derive_world_key(secret: str, world: WorldInfo) -> bytes:
    """Derives the key of a world from its secret; slow on purpose, against guessing."""
    salt = b"thyme world " + world.world_id.encode()
    return scrypt(secret.encode(), salt=salt, n=2**14, r=8, p=1, dklen=KEY_BYTES)


class Decrypted(msgspec.Struct, frozen=True):
    """Result of decrypting a datagram: the accepted plaintexts and the reply to send, if any."""

    datagrams: tuple[bytes, ...] = ()
    reply: bytes | None = None


class ReplayWindow:
    """The counters received in one stream."""

    __slots__ = ("_bits", "_highest")

    def __init__(self) -> None:
        self._highest = -1
        self._bits = 0

    def accept(self, counter: int) -> bool:
        """Records a counter; returns False if it is a repetition or too old."""
        ahead = counter - self._highest
        if ahead > 0:
            kept = self._bits << ahead if ahead < REPLAY_WINDOW else 0
            self._bits = (kept | 1) & _WINDOW_MASK
            self._highest = counter
            return True
        if -ahead >= REPLAY_WINDOW or self._bits >> -ahead & 1:
            return False
        self._bits |= 1 << -ahead
        return True

    def close_below(self, counter: int) -> None:
        """Refuses all counters below this one from now on."""
        kept = self._highest - counter
        self._bits |= _WINDOW_MASK >> kept << kept


class _SenderStream:
    """The stream of one incarnation of a neighbour."""

    __slots__ = ("key", "pending", "verified", "window")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.window = ReplayWindow()
        self.verified = False
        """Whether the sender has answered a challenge of this node."""
        self.pending: bytes | None = None
        """The hello received before the challenge was answered. It may be recorded, but says the
        same as any other hello of this incarnation."""


class _ChallengeMessage(msgspec.Struct, frozen=True, array_like=True):
    """A challenge to the receiver, the response to its challenge, or both."""

    challenge: bytes = b""
    """Random bytes that the receiver must send back; empty if none are needed."""
    response: bytes = b""
    """The challenge received from the receiver; empty if this is no response."""


_challenge_decoder = msgspec.msgpack.Decoder(_ChallengeMessage)


class DatagramCipher:
    """Encrypts the datagrams of one incarnation of a node and decrypts those it receives."""

    def __init__(self, key: bytes, world: WorldInfo, random_bytes: Callable[[int], bytes]) -> None:
        """`key` comes from `derive_world_key`; `random_bytes` is a cryptographic random source."""
        self._key = key
        self._prefix = ENCRYPTED_MAGIC + digest_world(world)
        self._random_bytes = random_bytes
        self._stream_id = random_bytes(STREAM_ID_BYTES)
        self._stream_key = self._derive_stream_key(self._stream_id)
        self._challenge = random_bytes(CHALLENGE_BYTES)
        self._counter = 0
        self._streams: dict[bytes, _SenderStream] = {}
        """Streams by stream id, the most recently received last."""
        self.decrypted = 0
        self.rejected = 0
        """Number of datagrams of this world with another secret, or modified on the way."""

    def encrypt(self, datagram: bytes) -> bytes:
        """Encrypts a datagram."""
        return self._encrypt(_DATAGRAM + datagram)

    def decrypt(self, encrypted: bytes) -> Decrypted:
        """Decrypts a datagram; raises only `DecodeError`."""
        if len(encrypted) > DATAGRAM_BYTES_MAX:
            raise DecodeError("oversized", f"{len(encrypted)} bytes")
        if not encrypted.startswith(self._prefix):
            raise DecodeError("another world", "encrypted for another world")
        if len(encrypted) <= _HEADER_BYTES + TAG_BYTES:
            raise DecodeError("malformed", "truncated")
        stream_id = encrypted[_PREFIX_BYTES : _PREFIX_BYTES + STREAM_ID_BYTES]
        if stream_id == self._stream_id:
            return Decrypted()  # our own datagram, looped back
        stream = self._streams.get(stream_id) or _SenderStream(self._derive_stream_key(stream_id))
        plaintext = self._decrypt(encrypted, stream)
        self._touch_stream(stream_id, stream)
        counter = int.from_bytes(encrypted[_COUNTER])
        if not stream.window.accept(counter):
            raise DecodeError("replayed", "received before, or too old to tell")
        if plaintext.startswith(_CHALLENGE):
            return self._on_challenge(stream, counter, plaintext[1:])
        return self._on_datagram(stream, plaintext[1:])

    @property
    def decryption_warning(self) -> str | None:
        """Advice for the user if no datagram of this world can be decrypted."""
        if self.decrypted or self.rejected < REJECTED_MIN:
            return None
        return (
            "devices of this world are in range, but none of their datagrams can be decrypted: "
            "is the secret the right one?"
        )

    def _on_datagram(self, stream: _SenderStream, datagram: bytes) -> Decrypted:
        if stream.verified:
            return Decrypted((datagram,))
        if _is_hello(datagram):
            stream.pending = datagram
        return Decrypted(
            reply=self._encrypt_challenge(_ChallengeMessage(challenge=self._challenge))
        )

    def _on_challenge(self, stream: _SenderStream, counter: int, data: bytes) -> Decrypted:
        try:
            message = _challenge_decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DecodeError("malformed", str(error)) from None
        released: tuple[bytes, ...] = ()
        if message.response == self._challenge and not stream.verified:
            stream.verified = True
            stream.window.close_below(counter)  # an earlier incarnation may have received those
            if stream.pending is not None:
                released, stream.pending = (stream.pending,), None
        if not message.challenge:
            return Decrypted(released)
        challenge = b"" if stream.verified else self._challenge
        return Decrypted(
            released, self._encrypt_challenge(_ChallengeMessage(challenge, message.challenge))
        )

    def _encrypt_challenge(self, message: _ChallengeMessage) -> bytes:
        return self._encrypt(_CHALLENGE + msgspec.msgpack.encode(message))

    def _encrypt(self, plaintext: bytes) -> bytes:
        counter = self._counter.to_bytes(COUNTER_BYTES)
        self._counter += 1
        header = self._prefix + self._stream_id + counter
        return header + crypto_aead_chacha20poly1305_ietf_encrypt(
            plaintext, header, _make_nonce(counter), self._stream_key
        )

    def _decrypt(self, encrypted: bytes, stream: _SenderStream) -> bytes:
        header = encrypted[:_HEADER_BYTES]
        try:
            plaintext = crypto_aead_chacha20poly1305_ietf_decrypt(
                encrypted[_HEADER_BYTES:], header, _make_nonce(encrypted[_COUNTER]), stream.key
            )
        except CryptoError:
            self.rejected += 1
            raise DecodeError("wrong secret", "another secret, or modified on the way") from None
        self.decrypted += 1
        return plaintext

    def _touch_stream(self, stream_id: bytes, stream: _SenderStream) -> None:
        """Moves a stream to the end; if there are too many, removes the one silent for longest."""
        self._streams.pop(stream_id, None)
        self._streams[stream_id] = stream
        if len(self._streams) > STREAMS_MAX:
            unproven = (other for other, known in self._streams.items() if not known.verified)
            oldest = next(unproven, stream_id)
            if oldest == stream_id:
                # Its replay window is lost: the old response must not be accepted again.
                oldest = next(iter(self._streams))
                self._challenge = self._random_bytes(CHALLENGE_BYTES)
            del self._streams[oldest]

    def _derive_stream_key(self, stream_id: bytes) -> bytes:
        return blake2b(self._prefix + stream_id, digest_size=KEY_BYTES, key=self._key).digest()


def _make_nonce(counter: bytes) -> bytes:
    return bytes(12 - COUNTER_BYTES) + counter


def _is_hello(datagram: bytes) -> bool:
    try:
        return read_header(datagram)[3] == HELLO_TAG
    except DecodeError:
        return False
