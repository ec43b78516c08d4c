"""/v1/openapi.json, made from the list of endpoints and the types they ask and answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from prosa import __version__
from prosa.events.messages import MSGPACK, Problem
from prosa.server.endpoints import STATUS, Endpoint

REF: Final = "#/components/schemas/{name}"
PLACE: Final = re.compile(r"\{(\w+)(?::(\w+))?\}")
"""A parameter of a path as Starlette writes it."""
NUMBERS: Final = ("int",)
TYPES: Final[dict[type, str]] = {str: "string", int: "integer", bool: "boolean", float: "number"}
PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
UPLOAD: Final = "PUT"
"""The endpoints whose body is bytes."""


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """As OpenAPI 3.1."""
    types = [kind for endpoint in endpoints for kind in (endpoint.answer, endpoint.question) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, Problem], ref_template=REF)
    by_type = dict(zip(map(repr, [*types, Problem]), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = PLACE.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "prosa", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.method} {endpoint.path}",
        "summary": endpoint.summary,
        "x-access": endpoint.access,
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": {"200": _answer(endpoint, schemas)},
    }
    if endpoint.access != "public":
        operation["security"] = [{"token": []}]
    if endpoint.question is not None:
        operation["requestBody"] = {"required": True, "content": _content(schemas[repr(endpoint.question)])}
    elif endpoint.method == UPLOAD:
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    for status in sorted({str(status) for status in STATUS.values()}):
        operation["responses"][status] = {"description": "Not done, and why.", "content": _content(PROBLEM)}
    return operation


def _answer(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    if endpoint.answer is None:
        return {"description": endpoint.summary}
    return {"description": endpoint.summary, "content": _content(schemas[repr(endpoint.answer)])}


def _content(schema: Any) -> dict[str, Any]:
    """msgpack has the same shape; bytes are bytes in it, and base64 in JSON."""
    return {"application/json": {"schema": schema}, MSGPACK: {"schema": schema}}


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "integer" if form in NUMBERS else "string"}}
        for name, form in PLACE.findall(endpoint.path)
    ]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "description": text, "schema": {"type": TYPES.get(kind, "string")}}
        for name, kind, text in endpoint.parameters
    ]
