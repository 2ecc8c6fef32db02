"""Passes: a gallery signs for its guest that another gallery of the world may let the guest in.

A pass names the gallery that signed it, the one gallery that it is for, the guest, and its end. A
pass that is used again opens the visit of the same guest. Entry points: `GuestPass`, `PassSigner`,
`open_pass`.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error

import msgspec
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from thyme.gallery.web.database import GalleryDatabase

PASS_CHARS_MAX = 1_000
_SIGNATURE_BYTES = 64
_CONTEXT = b"thyme gallery pass 1\n"
_SEED_FACT = "pass key"


class GuestPass(msgspec.Struct, frozen=True, array_like=True):
    """What a gallery says of its guest."""

    issuer: bytes
    """Public key of the gallery that signed it."""
    audience: bytes
    """Public key of the gallery that it is for."""
    guest: str
    name: str
    expires_s: int


class PassSigner:
    """Signs the passes of one gallery."""

    def __init__(self, database: GalleryDatabase) -> None:
        row = database.row("SELECT value FROM facts WHERE name = ?", _SEED_FACT)
        key = SigningKey.generate() if row is None else SigningKey(bytes.fromhex(row[0]))
        if row is None:
            database.execute("INSERT INTO facts VALUES (?, ?)", _SEED_FACT, bytes(key).hex())
        self._key = key
        self.public_key = bytes(key.verify_key)

    def sign(self, audience: bytes, guest: str, name: str, expires_s: int) -> str:
        """A pass as text for a link."""
        data = msgspec.msgpack.encode(GuestPass(self.public_key, audience, guest, name, expires_s))
        signature = self._key.sign(_CONTEXT + data).signature
        return urlsafe_b64encode(signature + data).rstrip(b"=").decode()


def open_pass(text: str) -> GuestPass | None:
    """The content of a pass that its issuer has signed; None if it is none."""
    if not text.isascii() or len(text) > PASS_CHARS_MAX:
        return None
    try:
        packed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        found = msgspec.msgpack.decode(packed[_SIGNATURE_BYTES:], type=GuestPass)
        signed = _CONTEXT + packed[_SIGNATURE_BYTES:]
        VerifyKey(found.issuer).verify(signed, packed[:_SIGNATURE_BYTES])
    except (Base64Error, ValueError, TypeError, msgspec.MsgspecError, BadSignatureError):
        return None
    return found
