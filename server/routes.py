"""Every endpoint of the API in one list: the app, /v1/openapi.json and the access test are made from it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from prosa.server import devices, login, pushing, raw_api, reading_api, stream, tokens
from prosa.server.endpoints import Call, Endpoint
from prosa.server.openapi import document


@cache
def _document() -> dict[str, Any]:
    return document(ENDPOINTS)


async def _openapi(_: Call) -> dict[str, Any]:
    return _document()


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *pushing.ENDPOINTS,
    *raw_api.ENDPOINTS,
    *reading_api.ENDPOINTS,
    *stream.ENDPOINTS,
    *devices.ENDPOINTS,
    *tokens.ENDPOINTS,
    *login.ENDPOINTS,
    Endpoint("GET", "/v1/openapi.json", "public", _openapi, "This document", dict[str, Any]),
)
