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
from thyme.daemon import json_schemas
from thyme.daemon.responses import ErrorBody
from thyme.live.status import (
    AddressShare,
    AuthorShare,
    EventsStatus,
    NeighbourStatus,
    NodeStatus,
    SharesStatus,
    StorageStatus,
    UnknownVersionStatus,
    WorldStatus,
)

_SCHEMAS: dict[type[msgspec.Struct], str] = {
    json_schemas.ObjectBody: "Object",
    json_schemas.NotificationBody: "Note",
    json_schemas.InsertedBody: "Inserted",
    json_schemas.SearchBody: "Matches",
    json_schemas.LookupBody: "Known",
    json_schemas.SubscribeBody: "Interest",
    json_schemas.SubscribedBody: "Standing",
    json_schemas.SubscriptionBody: "HeldSubscription",
    json_schemas.MoreBody: "MoreBatch",
    json_schemas.MoreDeliveredBody: "MoreTold",
    json_schemas.PositionBody: "Position",
    ErrorBody: "Problem",
    NodeStatus: "Status",
    WorldStatus: "World",
    NeighbourStatus: "Neighbour",
    UnknownVersionStatus: "UnknownVersion",
    StorageStatus: "Storage",
    EventsStatus: "Events",
    SharesStatus: "Shares",
    AddressShare: "AddressShare",
    AuthorShare: "AuthorShare",
}
"""The bodies, and what the description calls them: a renamed class keeps its name there."""
JsonObject = dict[str, Any]
NAME_PATTERN = "^[A-Za-z0-9._~-]{1,64}$"
"""Pattern of the ids that nodes generate, and more; other ids must be percent-encoded."""
KEY_PATTERN = "^[A-Za-z0-9._~-]{1,64}@([0-9a-f]{2}){1,32}$"

_REQUEST_FAILURES = [400, 409, 410, 504]
"""HTTP status of any failed request: invalid, too many at once, node stopped, or timeout."""
_TEXT = {"type": "string", "minLength": 1}


@cache
def build_document() -> JsonObject:
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


def _schemas() -> JsonObject:
    """The schemas of the bodies under their names here; msgspec knows them by their classes'."""
    names = {kind.__name__: name for kind, name in _SCHEMAS.items()}
    _, found = msgspec.json.schema_components(tuple(_SCHEMAS), ref_template="{name}")
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


def _paths() -> JsonObject:
    return _node_paths() | _object_paths() | _subscription_paths()


def _node_paths() -> JsonObject:
    return {
        "/v1/status": {"get": _operation("How the node is", _json_response("Status"))},
        "/v1/peers": {
            "get": _operation("What neighbours and authors cost it", _json_response("Shares"))
        },
        "/v1/worlds": {
            "get": _operation("The worlds that this node discovered", _list_response("World"))
        },
        "/v1/position": {
            "put": _operation(
                "The device is at another place", _empty_response(), body="Position", failures=[400]
            )
        },
        "/map": {"get": _operation("The live map, for a browser", _raw_response("text/html"))},
        "/map/{name}": {
            "parameters": [_path_parameter("name", "a file of the map's page", NAME_PATTERN)],
            "get": _operation(
                "Program and style of the map", _raw_response("text/javascript"), failures=[404]
            ),
        },
        "/map/events": {
            "get": _operation(
                "The events of the map, as server-sent events: the lines of a recording",
                _raw_response("text/event-stream"),
            )
        },
        "/metrics": {"get": _operation("Metrics for Prometheus", _raw_response("text/plain"))},
        "/openapi.json": {"get": _operation("This description", _raw_response("application/json"))},
    }


def _object_paths() -> JsonObject:
    key = _path_parameter(
        "key", "an object's key: oid@owner, the owner in hexadecimal", KEY_PATTERN
    )
    return {
        "/v1/objects": {"get": _search_operation(), "post": _insert_operation()},
        "/v1/objects/{key}": {
            "parameters": [key],
            "get": _operation(
                "The bytes of a notified object, verified (M19); with the header `Range`, one "
                "range of them, and 206 instead of 200",
                _raw_response("application/octet-stream", 200, 206),
                failures=[400, 404, 409, 410, 416, 502, 504],
            ),
            "delete": _operation(
                "Remove an object of one's own (M14)",
                _empty_response(),
                failures=[400, 403, 404, 409, 410, 504],
            ),
        },
        "/v1/objects/{key}/metadata": {
            "parameters": [key],
            "get": _operation(
                "What is known of a key (M32)", _json_response("Known"), failures=_REQUEST_FAILURES
            ),
        },
        "/v1/objects/{key}/versions": {
            "parameters": [key],
            "get": _operation(
                "The versions of an object, the latest first (B9)",
                _list_response("Object"),
                parameters=[_query_parameter("limit", "default: 20", {"type": "integer"})],
                failures=[400, 404, 409, 410, 504],
            ),
        },
    }


def _subscription_paths() -> JsonObject:
    sid = _path_parameter("sid", "a subscription's identifier", NAME_PATTERN)
    return {
        "/v1/subscriptions": {
            "get": _operation(
                "The subscriptions of this node", _list_response("HeldSubscription"), failures=[410]
            ),
            "post": _operation(
                "Subscribe to past and future matches (M15)",
                _json_response("Standing", 201),
                body="Interest",
                failures=[400, 409, 410, 429, 504],
            ),
        },
        "/v1/subscriptions/{sid}": {
            "parameters": [sid],
            "delete": _operation(
                "End a subscription (M18)", _empty_response(), failures=[404, *_REQUEST_FAILURES]
            ),
        },
        "/v1/subscriptions/{sid}/more": {
            "parameters": [sid],
            "post": _operation(
                "The next of the past (M17); they come as events",
                _json_response("MoreTold"),
                body="MoreBatch",
                failures=[404, *_REQUEST_FAILURES],
            ),
        },
        "/v1/subscriptions/{sid}/events": {
            "parameters": [sid],
            "get": _operation(
                "News as server-sent events: `note` with a Note, `caught_up` when the first batch "
                "has come, `lost` with the number of objects that retention removed before they "
                "could be notified, `over` when nothing more will come. A reader that reconnects "
                "with the header `Last-Event-ID` gets everything after that event",
                _raw_response("text/event-stream"),
                failures=[400, 404, 409, 410],
            ),
        },
    }


def _search_operation() -> JsonObject:
    instant = {"type": "integer", "minimum": -(2**62), "maximum": 2**62}
    count = {"type": "integer", "minimum": 0, "maximum": 100_000}
    return _operation(
        "The most recent stored objects that match (M20)",
        _json_response("Matches"),
        parameters=[
            _query_parameter("query", "a formula over tags", _TEXT, required=True),
            _query_parameter("start_us", "published then or later", instant),
            _query_parameter("end_us", "published then or earlier; default: now", instant),
            _query_parameter("limit", "how many at most; default: 20", count),
        ],
        failures=_REQUEST_FAILURES,
    )


def _insert_operation() -> JsonObject:
    binary: JsonObject = {"type": "string", "contentMediaType": "application/octet-stream"}
    form = {
        "type": "object",
        "properties": {"data": binary, "summary": binary},
        "required": ["data"],
    }
    return _operation(
        "Store an object (M13): its bytes as the body, or as the field `data` of a form",
        _json_response("Inserted", 201),
        parameters=[
            _query_parameter("tags", "with commas between them", _TEXT, required=True),
            _query_parameter("summary", "text; as the form's field `summary` also bytes"),
            _query_parameter("oid", "its name among one's own; default: drawn", _TEXT),
            _query_parameter(
                "life_s", "when to expire (M29)", {"type": "number", "exclusiveMinimum": 0}
            ),
            _query_parameter("copies", "a guarantee (M30)", {"type": "integer", "minimum": 1}),
            _query_parameter("durable", "a guarantee (M30)", {"type": "boolean"}),
            _query_parameter(
                "replicas",
                "how many nodes of the cell should store it, or all (D14); default: as the world "
                "does",
                {"anyOf": [{"const": "all"}, {"type": "integer", "minimum": 1}]},
            ),
            _query_parameter(
                "updates",
                "key of an object of one's own, of which this becomes the latest version (B9)",
                {"type": "string", "pattern": KEY_PATTERN},
            ),
        ],
        content={
            "application/octet-stream": {"schema": {}},
            "multipart/form-data": {"schema": form},
        },
        failures=[400, 403, 409, 410, 413, 422, 429, 504],
    )


def _operation(
    summary: str,
    response: JsonObject,
    *,
    body: str | None = None,
    content: JsonObject | None = None,
    parameters: list[JsonObject] | None = None,
    failures: list[int] | None = None,
) -> JsonObject:
    problem = {"application/json": {"schema": _ref("Problem")}}
    operation: JsonObject = {"summary": summary, "responses": dict(response)}
    for status in [*(failures or []), 403, 500, 507]:
        operation["responses"][str(status)] = {"description": "not done", "content": problem}
    if body is not None:
        content = {"application/json": {"schema": _ref(body)}}
    if content is not None:
        operation["requestBody"] = {"required": True, "content": content}
    if parameters:
        operation["parameters"] = parameters
    return operation


def _json_response(name: str, status: int = 200) -> JsonObject:
    content = {"application/json": {"schema": _ref(name)}}
    return {str(status): {"description": "done", "content": content}}


def _list_response(name: str) -> JsonObject:
    content = {"application/json": {"schema": {"type": "array", "items": _ref(name)}}}
    return {"200": {"description": "done", "content": content}}


def _raw_response(kind: str, *statuses: int) -> JsonObject:
    done = {"description": "done", "content": {kind: {}}}
    return {str(status): done for status in statuses or (200,)}


def _empty_response() -> JsonObject:
    return {"204": {"description": "done"}}


def _ref(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


def _path_parameter(name: str, description: str, pattern: str) -> JsonObject:
    schema = {"type": "string", "pattern": pattern}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema,
    }


def _query_parameter(
    name: str, description: str, schema: JsonObject | None = None, *, required: bool = False
) -> JsonObject:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": description,
        "schema": schema or {"type": "string"},
    }
