"""The address of a server: one form for each, and refused where the token would travel in the open."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prosa.events.errors import UsageError
from prosa.sync.address import is_loopback, server_address


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("https://prosa.example.org", "https://prosa.example.org"),
        ("  HTTPS://Prosa.Example.ORG:443// ", "https://prosa.example.org"),
        ("prosa.example.org", "https://prosa.example.org"),
        ("prosa.example.org:8443/work/", "https://prosa.example.org:8443/work"),
        ("https://prosa.example.org.", "https://prosa.example.org"),
        ("http://127.0.0.1:7070/", "http://127.0.0.1:7070"),
        ("127.0.0.1:7070", "http://127.0.0.1:7070"),
        ("localhost:7070", "http://localhost:7070"),
        ("http://[::1]:7070", "http://[::1]:7070"),
        ("https://[2001:DB8::1]", "https://[2001:db8::1]"),
        ("http://prosa.localhost:80", "http://prosa.localhost"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
    ],
)
def test_an_address_has_one_form(typed: str, address: str) -> None:
    assert server_address(typed) == address
    assert server_address(address) == address


@pytest.mark.parametrize(
    "typed",
    [
        "", " ", "https://", "ftp://x", "file:///etc/passwd", "https://x:99999", "https://x:y", "https://a b",
        "https://x/?a=1", "https://x#f", "https://[::1", "https://[fe80::1%eth0]", "javascript://x/%0aalert(1)",
        "https://x\n.example", "https://x/a b", "https://x/\x1b[2J", "//x", "https:///x", "https://x_\0",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(typed: str) -> None:
    with pytest.raises(UsageError, match="no address of a server"):
        server_address(typed)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as refused:
        server_address("https://dev:hunter2@prosa.example.org/x")
    assert "hunter2" not in str(refused.value)
    assert "prosa.example.org" in str(refused.value)


@pytest.mark.parametrize(
    "typed",
    ["http://prosa.example.org", "http://10.0.0.5:7070", "http://127.0.0.1.example.org", "http://localhost.example"],
)
def test_a_token_does_not_travel_in_the_open_unless_that_is_said(typed: str) -> None:
    with pytest.raises(UsageError, match="not encrypted"):
        server_address(typed)
    assert server_address(typed, insecure=True) == typed


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "a.localhost"])
def test_this_machine_is_known_by_its_name(host: str) -> None:
    assert is_loopback(host)


@given(st.text(max_size=40))
def test_whatever_is_typed_is_an_address_or_a_usage_error(text: str) -> None:
    try:
        address = server_address(text)
    except UsageError:
        return
    assert address.startswith(("http://", "https://"))
    assert server_address(address) == address
    assert not address.endswith("/")
    assert address.isascii() and address.isprintable()
