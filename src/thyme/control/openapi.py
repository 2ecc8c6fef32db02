"""OpenAPI: builds the OpenAPI document of a node's HTTP API.

The schemas are derived from the types in `json_schemas`, `responses` and `thyme.live.status`: their
class names and class docstrings appear in the document. The operations are listed in `_paths`.
Entry point: `build_document`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

import thyme
from thyme.control import bodies
from thyme.control.answers import Problem
from thyme.live.status import Neighbour, Status, Storage, World

_BODIES: dict[type[msgspec.Struct], str] = {
    bodies.Object: "Object",
    bodies.Note: "Note",
    bodies.Inserted: "Inserted",
    bodies.Matches: "Matches",
    bodies.Known: "Known",
    bodies.Interest: "Interest",
    bodies.Standing: "Standing",
    bodies.HeldSubscription: "HeldSubscription",
    bodies.MoreBatch: "MoreBatch",
    bodies.MoreTold: "MoreTold",
    bodies.Position: "Position",
    Problem: "Problem",
    Status: "Status",
    World: "World",
    Neighbour: "Neighbour",
    Storage: "Storage",
}
"""The bodies, and what the description calls them: a renamed class keeps its name there."""
Parts = dict[str, Any]
NAME_PATTERN = "^[A-Za-z0-9._~-]{1,64}$"
"""Pattern of the ids that nodes generate, and more; other ids must be percent-encoded."""
KEY_PATTERN = "^[A-Za-z0-9._~-]{1,64}@([0-9a-f]{2}){1,32}$"

_ASKED = [400, 409, 410, 504]
"""HTTP status of any failed request: invalid, too many at once, node stopped, or timeout."""
_WORDS = {"type": "string", "minLength": 1}


@cache
def document() -> Parts:
    """The OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "A node of Thyme",
            "version": thyme.__version__,
            "description": "Time-aware reactive storage: insert, subscribe, retrieve. "
            "Instants are microseconds since 1970. Failures are JSON with a code and words.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": _paths(),
        "components": {"schemas": _schemas()},
    }


def _schemas() -> Parts:
    """The schemas of the bodies under their names here; msgspec knows them by their classes'."""
    names = {kind.__name__: name for kind, name in _BODIES.items()}
    _, found = msgspec.json.schema_components(tuple(_BODIES), ref_template="{name}")
    return {
        names[title]: _with_names(schema, names) | {"title": names[title]}
        for title, schema in found.items()
    }


def _with_names(part: Any, names: dict[str, str]) -> Any:
    """A part of a schema, with references to the names here."""
    match part:
        case {"$ref": str(title)}:
            return _ref(names[title])
        case dict():
            return {key: _with_names(value, names) for key, value in part.items()}
        case list():
            return [_with_names(each, names) for each in part]
    return part


def _paths() -> Parts:
    key = _in_path("key", "an object's key: oid@owner, the owner in hexadecimal", KEY_PATTERN)
    sid = _in_path("sid", "a subscription's identifier", NAME_PATTERN)
    return {
        "/v1/status": {"get": _page("How the node is", _answer("Status"))},
        "/v1/worlds": {"get": _page("The worlds that were heard of", _list("World"))},
        "/v1/position": {
            "put": _page("The device is at another place", _empty(), body="Position", fails=[400])
        },
        "/metrics": {"get": _page("Metrics for Prometheus", _raw("text/plain"))},
        "/openapi.json": {"get": _page("This description", _raw("application/json"))},
        "/v1/objects": {"get": _search(), "post": _insert()},
        "/v1/objects/{key}": {
            "parameters": [key],
            "get": _page(
                "An object's bytes, verified (M19)",
                _raw("application/octet-stream"),
                fails=[400, 404, 409, 410, 502, 504],
            ),
            "delete": _page(
                "Remove an object of one's own (M14)",
                _empty(),
                fails=[400, 403, 404, 409, 410, 504],
            ),
        },
        "/v1/objects/{key}/metadata": {
            "parameters": [key],
            "get": _page("What is known of a key (M32)", _answer("Known"), fails=_ASKED),
        },
        "/v1/subscriptions": {
            "get": _page("The subscriptions of this node", _list("HeldSubscription"), fails=[410]),
            "post": _page(
                "Be told of what matches, from the past and from now on (M15)",
                _answer("Standing", 201),
                body="Interest",
                fails=[400, 409, 410, 429, 504],
            ),
        },
        "/v1/subscriptions/{sid}": {
            "parameters": [sid],
            "delete": _page("End a subscription (M18)", _empty(), fails=[404, *_ASKED]),
        },
        "/v1/subscriptions/{sid}/more": {
            "parameters": [sid],
            "post": _page(
                "The next of the past (M17); they come as events",
                _answer("MoreTold"),
                body="MoreBatch",
                fails=[404, *_ASKED],
            ),
        },
        "/v1/subscriptions/{sid}/events": {
            "parameters": [sid],
            "get": _page(
                "News as server-sent events: `note` with a Note, `caught_up` when the first batch "
                "has come, `over` when nothing more will",
                _raw("text/event-stream"),
                fails=[400, 404, 409, 410],
            ),
        },
    }


def _search() -> Parts:
    instant = {"type": "integer", "minimum": -(2**62), "maximum": 2**62}
    count = {"type": "integer", "minimum": 0, "maximum": 100_000}
    return _page(
        "The most recent stored objects that match (M20)",
        _answer("Matches"),
        parameters=[
            _option("query", "a formula over tags", _WORDS, required=True),
            _option("start_us", "published then or later", instant),
            _option("end_us", "published then or earlier; default: now", instant),
            _option("limit", "how many at most; default: 20", count),
        ],
        fails=_ASKED,
    )


def _insert() -> Parts:
    binary: Parts = {"type": "string", "contentMediaType": "application/octet-stream"}
    form = {
        "type": "object",
        "properties": {"data": binary, "summary": binary},
        "required": ["data"],
    }
    return _page(
        "Store an object (M13): its bytes as the body, or as the field `data` of a form",
        _answer("Inserted", 201),
        parameters=[
            _option("tags", "with commas between them", _WORDS, required=True),
            _option("summary", "text; as the form's field `summary` also bytes"),
            _option("oid", "its name among one's own; default: drawn", _WORDS),
            _option("life_s", "when to expire (M29)", {"type": "number", "exclusiveMinimum": 0}),
            _option("copies", "a guarantee (M30)", {"type": "integer", "minimum": 1}),
            _option("durable", "a guarantee (M30)", {"type": "boolean"}),
        ],
        content={
            "application/octet-stream": {"schema": {}},
            "multipart/form-data": {"schema": form},
        },
        fails=[400, 409, 410, 413, 422, 429, 504],
    )


def _page(
    summary: str,
    answer: Parts,
    *,
    body: str | None = None,
    content: Parts | None = None,
    parameters: list[Parts] | None = None,
    fails: list[int] | None = None,
) -> Parts:
    problem = {"application/json": {"schema": _ref("Problem")}}
    page: Parts = {"summary": summary, "responses": dict(answer)}
    for status in [*(fails or []), 403, 500, 507]:
        page["responses"][str(status)] = {"description": "not done", "content": problem}
    if body is not None:
        content = {"application/json": {"schema": _ref(body)}}
    if content is not None:
        page["requestBody"] = {"required": True, "content": content}
    if parameters:
        page["parameters"] = parameters
    return page


def _answer(name: str, status: int = 200) -> Parts:
    content = {"application/json": {"schema": _ref(name)}}
    return {str(status): {"description": "done", "content": content}}


def _list(name: str) -> Parts:
    content = {"application/json": {"schema": {"type": "array", "items": _ref(name)}}}
    return {"200": {"description": "done", "content": content}}


def _raw(kind: str) -> Parts:
    return {"200": {"description": "done", "content": {kind: {}}}}


def _empty() -> Parts:
    return {"204": {"description": "done"}}


def _ref(name: str) -> Parts:
    return {"$ref": f"#/components/schemas/{name}"}


def _in_path(name: str, words: str, pattern: str) -> Parts:
    schema = {"type": "string", "pattern": pattern}
    return {"name": name, "in": "path", "required": True, "description": words, "schema": schema}


def _option(name: str, words: str, schema: Parts | None = None, *, required: bool = False) -> Parts:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": words,
        "schema": schema or {"type": "string"},
    }
