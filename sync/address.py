"""The address of a server as a user types it: made one form, and refused where a token would travel in the open."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from prosa.events.errors import UsageError

HOST = re.compile(r"[a-z0-9._-]{1,253}", re.IGNORECASE)
PORTS = {"https": 443, "http": 80}


def server_address(text: str, *, insecure: bool = False) -> str:
    """`https://host[:port][/path]`, without a slash at the end; http for this machine, or with `insecure`.

    Raises UsageError, with what was wrong about it.
    """
    typed = text.strip()
    if not typed.isprintable():  # urlsplit takes newlines and tabs out
        raise _refused(typed, "it has characters in it that cannot be seen")
    full = typed if "://" in typed else f"{_scheme(typed)}://{typed}"
    try:
        parts = urlsplit(full)
        host, port = _host(parts), parts.port
    except ValueError as bad:
        raise _refused(typed, str(bad)) from None
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise _refused(typed, f"{scheme}:// is neither https:// nor http://")
    if parts.username is not None or parts.password is not None:
        raise _refused(_without_user(parts), "it has a user name or password in it")
    if parts.query or parts.fragment:
        raise _refused(typed, "it goes on after a ? or #")
    if not parts.path.isascii() or " " in parts.path:
        raise _refused(typed, f"its path is {parts.path!r}")
    if scheme == "http" and not insecure and not is_loopback(host):
        raise UsageError(
            f"{typed} is not encrypted: everybody on the way could read your transcripts and the token.",
            "Nothing was sent.",
            f"Use https://{host}, or --insecure-http if the network is yours (a VPN).",
        )
    shown = f"[{host}]" if ":" in host else host
    number = "" if port in (None, PORTS[scheme]) else f":{port}"
    return f"{scheme}://{shown}{number}{parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, whatever any name server says."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _scheme(typed: str) -> str:
    """Of an address without one: https, but for this machine."""
    try:
        host = urlsplit(f"//{typed}").hostname or ""
    except ValueError:
        return "https"
    return "http" if is_loopback(host) else "https"


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").rstrip(".")
    if ":" in host and "%" not in host:
        return str(ipaddress.IPv6Address(host))
    if not host.isascii():
        host = host.encode("idna").decode("ascii")
    if not HOST.fullmatch(host):
        raise ValueError(f"its host is {host!r}" if host else "it names no host")
    return host


def _without_user(parts: SplitResult) -> str:
    """What may be printed of it: a password in an address is one that is used elsewhere too."""
    return parts._replace(netloc=f"…@{parts.netloc.rpartition('@')[2]}").geturl()


def _refused(typed: str, why: str) -> UsageError:
    return UsageError(
        f"{typed!r} is no address of a server: {why}.", "Nothing was sent.", "Like this: https://prosa.example.org"
    )
