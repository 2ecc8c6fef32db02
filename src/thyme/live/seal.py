"""Seals: the datagrams of a closed world, which only those who know its secret can read or write.

Every node draws a stream for each of its lives and numbers what it seals, so that no key ever sees
a nonce twice. What was heard before is not heard again: within a stream a window of numbers says
so, and a stream is heard only once its sender has answered a token of ours, so that a recording
from before our life comes to nothing. Who has no secret sees the world's tag, sizes and times.
Pure: bytes in, bytes out. docs/decisions/0014-trust.md has the reasons.
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
"""How far behind the highest number of its stream a datagram may come."""
STREAMS_MAX = 4_096
REFUSED_MIN = 3
_PAPERS_BYTES = len(SEALED_MAGIC) + WORLD_TAG_BYTES
_HEAD_BYTES = _PAPERS_BYTES + STREAM_BYTES + NUMBER_BYTES
_NUMBER = slice(_HEAD_BYTES - NUMBER_BYTES, _HEAD_BYTES)
_ALL = (1 << WINDOW) - 1
_DATAGRAM, _HAIL = b"\x00", b"\x01"


def check_secret(secret: str) -> None:
    """Raises an error that says why a secret is none."""
    if len(secret) < SECRET_LETTERS_MIN:
        raise OptionError(f"a world's secret has at least {SECRET_LETTERS_MIN} letters")


def world_key(secret: str, world: WorldInfo) -> bytes:
    """The key of a world, from its secret; takes a moment, so that guessing takes long."""
    salt = b"thyme world " + world.wid.encode()
    return scrypt(secret.encode(), salt=salt, n=2**14, r=8, p=1, dklen=KEY_BYTES)


class Opened(msgspec.Struct, frozen=True):
    """What came of a sealed datagram: what can be believed now, and what is to be sent back."""

    datagrams: tuple[bytes, ...] = ()
    reply: bytes | None = None


class Window:
    """The numbers of a stream that have come."""

    __slots__ = ("_bits", "_highest")

    def __init__(self) -> None:
        self._highest = -1
        self._bits = 0

    def takes(self, number: int) -> bool:
        """Whether this number is new; if so, it is no more."""
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
    """A neighbour's stream."""

    __slots__ = ("held", "key", "proven", "window")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.window = Window()
        self.proven = False
        """Whether its sender lives now."""
        self.held: bytes | None = None
        """The last datagram that came before that was known."""


class _Hail(msgspec.Struct, frozen=True, array_like=True):
    """Asks whoever it goes to for proof that it lives now, or is that proof, or both."""

    wanted: bytes = b""
    """The sender's token, which the answer is to name."""
    proof: bytes = b""
    """The token of the one it goes to."""


_hails = msgspec.msgpack.Decoder(_Hail)


class Seal:
    """Seals what one node sends in one life, and opens what it hears."""

    def __init__(self, key: bytes, world: WorldInfo, draw: Callable[[int], bytes]) -> None:
        """`key` is that of `world_key`; `draw` gives so many random bytes, hard to guess."""
        self._key = key
        self._papers = SEALED_MAGIC + tag_of(world)
        self._draw = draw
        self._stream = draw(STREAM_BYTES)
        self._stream_key = self._key_of(self._stream)
        self._token = draw(TOKEN_BYTES)
        self._number = 0
        self._streams: dict[bytes, _Stream] = {}
        """In order of when they were last heard."""
        self.opened = 0
        self.refused = 0
        """Datagrams of this world that were sealed with another secret, or changed on the way."""

    def close(self, datagram: bytes) -> bytes:
        """The sealed form of a datagram."""
        return self._close(_DATAGRAM + datagram)

    def open(self, sealed: bytes) -> Opened:
        """What a sealed datagram brings; raises nothing but `DecodeError`."""
        if len(sealed) > DATAGRAM_BYTES_MAX:
            raise DecodeError("oversized", f"{len(sealed)} bytes")
        if not sealed.startswith(self._papers):
            raise DecodeError("another world", "sealed, and not of this world")
        if len(sealed) <= _HEAD_BYTES + TAG_BYTES:
            raise DecodeError("malformed", "cut off")
        name = sealed[_PAPERS_BYTES : _PAPERS_BYTES + STREAM_BYTES]
        if name == self._stream:
            return Opened()  # our own voice
        stream = self._streams.get(name) or _Stream(self._key_of(name))
        text = self._text(sealed, stream)
        self._keep(name, stream)
        if not stream.window.takes(int.from_bytes(sealed[_NUMBER])):
            raise DecodeError("replayed", "heard before, or too late to tell")
        if text.startswith(_HAIL):
            return self._on_hail(stream, text[1:])
        return self._on_datagram(stream, text[1:])

    @property
    def hint(self) -> str | None:
        """What the user should know, if nobody can be understood."""
        if self.opened or self.refused < REFUSED_MIN:
            return None
        return (
            "devices of this world are in reach, and none of them can be read: "
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
        head = self._papers + self._stream + number
        return head + crypto_aead_chacha20poly1305_ietf_encrypt(
            text, head, _nonce(number), self._stream_key
        )

    def _text(self, sealed: bytes, stream: _Stream) -> bytes:
        head = sealed[:_HEAD_BYTES]
        try:
            text = crypto_aead_chacha20poly1305_ietf_decrypt(
                sealed[_HEAD_BYTES:], head, _nonce(sealed[_NUMBER]), stream.key
            )
        except CryptoError:
            self.refused += 1
            raise DecodeError("wrong secret", "sealed with another secret, or changed") from None
        self.opened += 1
        return text

    def _keep(self, name: bytes, stream: _Stream) -> None:
        """Moves a stream to the end; where there are too many, the one longest silent goes."""
        self._streams.pop(name, None)
        self._streams[name] = stream
        if len(self._streams) > STREAMS_MAX:
            unproven = (other for other, it in self._streams.items() if not it.proven)
            oldest = next(unproven, name)
            if oldest == name:
                # Its window is lost: what proved it once must not prove it again.
                oldest = next(iter(self._streams))
                self._token = self._draw(TOKEN_BYTES)
            del self._streams[oldest]

    def _key_of(self, stream: bytes) -> bytes:
        return blake2b(self._papers + stream, digest_size=KEY_BYTES, key=self._key).digest()


def _nonce(number: bytes) -> bytes:
    return bytes(12 - NUMBER_BYTES) + number
