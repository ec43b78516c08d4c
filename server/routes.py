"""Every endpoint of the API in one list: the app, /v1/openapi.json and the access test are made from it."""

from __future__ import annotations

from typing import Final

from prosa.server.endpoints import Endpoint

ENDPOINTS: Final[tuple[Endpoint, ...]] = ()
