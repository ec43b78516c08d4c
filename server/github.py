"""Signing in with GitHub: where the browser is sent, and which verified e-mails the one who comes back has.

The addresses are settings: GitHub Enterprise has the same routes under names of its own.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final
from urllib.parse import urlencode

import msgspec

from prosa.server.endpoints import Refused
from prosa.server.settings import Settings

CALLBACK: Final = "/oauth/github/callback"
TIMEOUT_S: Final = 10.0


class _Token(msgspec.Struct):
    access_token: str = ""


class _Email(msgspec.Struct):
    email: str
    verified: bool = False


def is_set_up(settings: Settings) -> bool:
    return bool(settings.github_id and settings.github_secret)


def sign_in_url(settings: Settings, state: str, verifier: str) -> str:
    """GitHub's page that asks the user."""
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    asked = {
        "client_id": settings.github_id,
        "redirect_uri": f"{settings.public_url}{CALLBACK}",
        "scope": "user:email",
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    return f"{settings.github_url}/login/oauth/authorize?{urlencode(asked)}"


async def verified_emails(settings: Settings, code: str, verifier: str) -> list[str]:
    """Of the user whose browser brought the code, in lower case. Raises Refused where GitHub does not say."""
    import httpx  # 120 ms, and only a sign-in needs it

    asked = {
        "client_id": settings.github_id,
        "client_secret": settings.github_secret,
        "code": code,
        "redirect_uri": f"{settings.public_url}{CALLBACK}",
        "code_verifier": verifier,
    }
    accept = {"Accept": "application/json"}
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S, headers=accept) as client:
            answer = await client.post(f"{settings.github_url}/login/oauth/access_token", data=asked)
            token = msgspec.json.decode(answer.raise_for_status().content, type=_Token).access_token
            if not token:  # GitHub answers 200 with an error in it
                raise Refused("forbidden", "GitHub did not take its own code.", "", "Sign in again.")
            bearer = {"Authorization": f"Bearer {token}"}
            answer = await client.get(f"{settings.github_api_url}/user/emails", headers=bearer)
            emails = msgspec.json.decode(answer.raise_for_status().content, type=list[_Email])
    except (httpx.HTTPError, msgspec.DecodeError):
        raise Refused("unavailable", "GitHub does not answer as it should.", "", "Try again.") from None
    return [found.email.lower() for found in emails if found.verified]
