"""Encryption: encrypts, authenticates and replay-protects the datagrams of a closed world.

Every incarnation of a node draws a random stream id, from which its key is derived, and counts its
datagrams, so that no key is used with the same nonce twice. Replayed datagrams are rejected: within
a stream by a window of counters; and a stream is accepted only after its sender has answered a
challenge of this node, which a recording from before this incarnation cannot do. Without the
secret, an observer sees the world's digest, the stream ids, and the sizes and times of datagrams.
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

from thyme.live.datagrams import DATAGRAM_BYTES_MAX, SEALED_MAGIC, WORLD_TAG_BYTES, tag_of
from thyme.model.errors import DecodeError, OptionError
from thyme.model.worlds import WorldInfo

SECRET_LETTERS_MIN = 8
STREAM_BYTES = 16
NUMBER_BYTES = 8
TOKEN_BYTES = 16
KEY_BYTES = 32
WINDOW = 4_096
"""How far behind the highest counter of its stream a datagram is still accepted."""
STREAMS_MAX = 4_096
REFUSED_MIN = 3
_PAPERS_BYTES = len(SEALED_MAGIC) + WORLD_TAG_BYTES
_HEAD_BYTES = _PAPERS_BYTES + STREAM_BYTES + NUMBER_BYTES
_NUMBER = slice(_HEAD_BYTES - NUMBER_BYTES, _HEAD_BYTES)
_ALL = (1 << WINDOW) - 1
_DATAGRAM, _HAIL = b"\x00", b"\x01"


def check_secret(secret: str) -> None:
    """Raises `OptionError` if a secret is too short."""
    if len(secret) < SECRET_LETTERS_MIN:
        raise OptionError(f"a world's secret needs at least {SECRET_LETTERS_MIN} characters")


def world_key(secret: str, world: WorldInfo) -> bytes:
    """Derives the key of a world from its secret; slow on purpose, against guessing."""
    salt = b"thyme world " + world.wid.encode()
    return scrypt(secret.encode(), salt=salt, n=2**14, r=8, p=1, dklen=KEY_BYTES)


class Opened(msgspec.Struct, frozen=True):
    """Result of decrypting a datagram: the accepted plaintexts and the reply to send, if any."""

    datagrams: tuple[bytes, ...] = ()
    reply: bytes | None = None


class Window:
    """The counters received in one stream."""

    __slots__ = ("_bits", "_highest")

    def __init__(self) -> None:
        self._highest = -1
        self._bits = 0

    def takes(self, number: int) -> bool:
        """Records a counter; returns False if it is a repetition or too old."""
        ahead = number - self._highest
        if ahead > 0:
            kept = self._bits << ahead if ahead < WINDOW else 0
            self._bits = (kept | 1) & _ALL
            self._highest = number
            return True
        if -ahead >= WINDOW or self._bits >> -ahead & 1:
            return False
        self._bits |= 1 << -ahead
        return True


class _Stream:
    """The stream of one incarnation of a neighbour."""

    __slots__ = ("held", "key", "proven", "window")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.window = Window()
        self.proven = False
        """Whether the sender has answered a challenge of this node."""
        self.held: bytes | None = None
        """The last datagram received before the challenge was answered."""


class _Hail(msgspec.Struct, frozen=True, array_like=True):
    """A challenge to the receiver, the response to its challenge, or both."""

    wanted: bytes = b""
    """Random bytes that the receiver must send back; empty if none are needed."""
    proof: bytes = b""
    """The challenge received from the receiver; empty if this is no response."""


_hails = msgspec.msgpack.Decoder(_Hail)


class Seal:
    """Encrypts the datagrams of one incarnation of a node and decrypts those it receives."""

    def __init__(self, key: bytes, world: WorldInfo, draw: Callable[[int], bytes]) -> None:
        """`key` comes from `derive_world_key`; `random_bytes` is a cryptographic random source."""
        self._key = key
        self._papers = SEALED_MAGIC + tag_of(world)
        self._draw = draw
        self._stream = draw(STREAM_BYTES)
        self._stream_key = self._key_of(self._stream)
        self._token = draw(TOKEN_BYTES)
        self._number = 0
        self._streams: dict[bytes, _Stream] = {}
        """Streams by stream id, the most recently received last."""
        self.opened = 0
        self.refused = 0
        """Number of datagrams of this world with another secret, or modified on the way."""

    def close(self, datagram: bytes) -> bytes:
        """Encrypts a datagram."""
        return self._close(_DATAGRAM + datagram)

    def open(self, sealed: bytes) -> Opened:
        """Decrypts a datagram; raises only `DecodeError`."""
        if len(sealed) > DATAGRAM_BYTES_MAX:
            raise DecodeError("oversized", f"{len(sealed)} bytes")
        if not sealed.startswith(self._papers):
            raise DecodeError("another world", "encrypted for another world")
        if len(sealed) <= _HEAD_BYTES + TAG_BYTES:
            raise DecodeError("malformed", "truncated")
        name = sealed[_PAPERS_BYTES : _PAPERS_BYTES + STREAM_BYTES]
        if name == self._stream:
            return Opened()  # our own datagram, looped back
        stream = self._streams.get(name) or _Stream(self._key_of(name))
        text = self._text(sealed, stream)
        self._keep(name, stream)
        if not stream.window.takes(int.from_bytes(sealed[_NUMBER])):
            raise DecodeError("replayed", "received before, or too old to tell")
        if text.startswith(_HAIL):
            return self._on_hail(stream, text[1:])
        return self._on_datagram(stream, text[1:])

    @property
    def hint(self) -> str | None:
        """Advice for the user if no datagram of this world can be decrypted."""
        if self.opened or self.refused < REFUSED_MIN:
            return None
        return (
            "devices of this world are in range, but none of their datagrams can be decrypted: "
            "is the secret the right one?"
        )

    def _on_datagram(self, stream: _Stream, datagram: bytes) -> Opened:
        if stream.proven:
            return Opened((datagram,))
        stream.held = datagram
        return Opened(reply=self._hail(_Hail(wanted=self._token)))

    def _on_hail(self, stream: _Stream, text: bytes) -> Opened:
        try:
            hail = _hails.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DecodeError("malformed", str(error)) from None
        released: tuple[bytes, ...] = ()
        if hail.proof == self._token:
            stream.proven = True
            if stream.held is not None:
                released, stream.held = (stream.held,), None
        if not hail.wanted:
            return Opened(released)
        wanted = b"" if stream.proven else self._token
        return Opened(released, self._hail(_Hail(wanted, hail.wanted)))

    def _hail(self, hail: _Hail) -> bytes:
        return self._close(_HAIL + msgspec.msgpack.encode(hail))

    def _close(self, text: bytes) -> bytes:
        number = self._number.to_bytes(NUMBER_BYTES)
        self._number += 1
        header = self._papers + self._stream + number
        return header + crypto_aead_chacha20poly1305_ietf_encrypt(
            text, header, _nonce(number), self._stream_key
        )

    def _text(self, sealed: bytes, stream: _Stream) -> bytes:
        header = sealed[:_HEAD_BYTES]
        try:
            text = crypto_aead_chacha20poly1305_ietf_decrypt(
                sealed[_HEAD_BYTES:], header, _nonce(sealed[_NUMBER]), stream.key
            )
        except CryptoError:
            self.refused += 1
            raise DecodeError("wrong secret", "another secret, or modified on the way") from None
        self.opened += 1
        return text

    def _keep(self, name: bytes, stream: _Stream) -> None:
        """Moves a stream to the end; if there are too many, removes the one silent for longest."""
        self._streams.pop(name, None)
        self._streams[name] = stream
        if len(self._streams) > STREAMS_MAX:
            unproven = (other for other, known in self._streams.items() if not known.proven)
            oldest = next(unproven, name)
            if oldest == name:
                # Its replay window is lost: the old response must not be accepted again.
                oldest = next(iter(self._streams))
                self._token = self._draw(TOKEN_BYTES)
            del self._streams[oldest]

    def _key_of(self, stream: bytes) -> bytes:
        return blake2b(self._papers + stream, digest_size=KEY_BYTES, key=self._key).digest()


def _nonce(number: bytes) -> bytes:
    return bytes(12 - NUMBER_BYTES) + number
