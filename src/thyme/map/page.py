"""Map page: the HTML page that draws a network, from live nodes or from a recording inside it.

Entry points: `live_page`, `recorded_page`, `read_asset`. The sources of program and style are in
`frontend/src/map`; the built files are in `assets`.
"""

from __future__ import annotations

import base64
import html
from functools import cache
from hashlib import sha256
from importlib.resources import files

PROGRAM, STYLE = "map.js", "map.css"
ASSET_TYPES = {PROGRAM: "text/javascript", STYLE: "text/css"}
LIVE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy of the page of live nodes."""
_HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
"""
_NOSCRIPT = "<noscript>This map needs JavaScript.</noscript>\n"


@cache
def read_asset(name: str) -> bytes:
    """A built file of the page."""
    return (files("thyme.map") / "assets" / name).read_bytes()


def live_page() -> bytes:
    """The page of live nodes; it reads their events from `map/events`."""
    return (
        f'{_HEAD}<title>Thyme map</title>\n<link rel="icon" href="data:,">\n'
        f'<link rel="stylesheet" href="/map/{STYLE}">\n'
        f'<script defer src="/map/{PROGRAM}"></script>\n</head>\n'
        f'<body data-events="/map/events">\n{_NOSCRIPT}</body>\n</html>\n'
    ).encode()


def recorded_page(title: str, data: str) -> bytes:
    """A page that contains program, style and the data of a recording, and needs nothing else."""
    style, program = read_asset(STYLE).decode(), read_asset(PROGRAM).decode()
    policy = f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(program)}"
    return (
        f'{_HEAD}<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{_NOSCRIPT}"
        f'<script type="text/plain" id="data">{data}</script>\n<script>{program}</script>\n'
        "</body>\n</html>\n"
    ).encode()


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"
