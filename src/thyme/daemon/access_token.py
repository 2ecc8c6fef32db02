"""Access token: keeps other users of the same machine from the HTTP API of a node.

Entry points: `load_or_create_token`, `require_token`. The token is in a file that only its user can
read. Applications send it as a bearer token, or as the password in the URL of the node, which HTTP
clients turn into Basic authentication.
Clauses: B5.
"""

from __future__ import annotations

import secrets
from base64 import b64decode
from binascii import Error as Base64Error
from hmac import compare_digest
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from thyme.daemon.responses import problem_response
from thyme.model.errors import OptionError, StoreError
from thyme.storage.private_files import make_private_directory, make_private_file

TOKEN_CHARS_MIN = 16
_TOKEN_BYTES = 24


def load_or_create_token(path: Path) -> str:
    """Reads the token from a file, or writes a new one there."""
    try:
        make_private_directory(path.parent)
        make_private_file(path)
        token = path.read_text("utf-8").strip()
        if not token:
            token = secrets.token_urlsafe(_TOKEN_BYTES)
            path.write_text(token + "\n", "utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"cannot read or write the token file {path}: {error}") from error
    if len(token) < TOKEN_CHARS_MIN:
        raise OptionError(f"the token in {path} needs at least {TOKEN_CHARS_MIN} characters")
    return token


def require_token(token: str) -> Middleware:
    """Makes a middleware that rejects requests without the token."""

    @web.middleware
    async def check_token(request: web.Request, handler: Handler) -> web.StreamResponse:
        if _has_token(request.headers.get("Authorization", ""), token):
            return await handler(request)
        response = problem_response(
            "forbidden",
            "this node needs its token: use the URL http://:TOKEN@host:port, with the token from "
            "the file that --http-token names",
            401,
        )
        response.headers["WWW-Authenticate"] = 'Basic realm="thyme"'
        return response

    return check_token


def _has_token(authorization: str, token: str) -> bool:
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "basic":
        try:
            value = b64decode(value, validate=True).decode().partition(":")[2]
        except (Base64Error, ValueError):
            return False
    elif kind.lower() != "bearer":
        return False
    return compare_digest(value.encode(), token.encode())
