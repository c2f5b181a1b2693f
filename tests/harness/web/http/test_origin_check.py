"""Which Host and Origin headers the origin check accepts, and which near misses it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from harness.web.http.errors import HttpFailure
from harness.web.http.origin_check import HEADERS_MAX, OriginCheck, public_origin
from workspaces.errors import Refused

LOCAL = ("127.0.0.1", 8642)

OWN_HOSTS = [
    "localhost:8642",
    "LOCALHOST:8642",
    "127.0.0.1:8642",
    "[::1]:8642",
    "[0:0:0:0:0:0:0:1]:8642",
    "[0000:0000:0000:0000:0000:0000:0000:0001]:8642",
    "localhost:08642",
    "box.lan:8642",
    "Box.Lan:8642",
    "memory.example.com",
    "memory.example.com:443",
    "MEMORY.example.com",
    "other.example.com:8443",
]

FOREIGN_HOSTS = [
    "",
    " ",
    "evil.com",
    "evil.com:8642",
    "localhost",  # port 80
    "localhost:",
    "localhost:80",
    "localhost:8643",
    "localhost:86420",
    "localhost:-8642",
    "localhost:+8642",
    "localhost:8642 ",
    " localhost:8642",
    "localhost:8642:8642",
    "localhost:8642/",
    "localhost:8642@evil.com",
    "localhost@evil.com:8642",
    "evil.com@localhost:8642",
    "localhost.:8642",
    "localhost.evil.com:8642",
    "evil.localhost:8642",
    "localhost.localdomain:8642",
    "xlocalhost:8642",
    "127.0.0.1",
    "127.0.0.1:evil.com",
    "127.0.0.1:8642.evil.com",
    "127.0.0.1.evil.com:8642",
    "127.0.0.1.nip.io:8642",
    "127.0.0.1 evil.com:8642",
    "127.1:8642",
    "127.0.0.2:8642",
    "127.000.000.001:8642",
    "0x7f000001:8642",
    "0x7f.0.0.1:8642",
    "2130706433:8642",
    "017700000001:8642",
    "0.0.0.0:8642",
    "0:8642",
    "::1:8642",
    "[::1]",
    "[::1]8642",
    "[::1].evil.com:8642",
    "[::1]evil.com:8642",
    "[::2]:8642",
    "[::ffff:127.0.0.1]:8642",
    "[::1%25lo]:8642",
    "[::1%lo]:8642",
    "[localhost]:8642",
    "[127.0.0.1]:8642",
    "[]:8642",
    "[::1:8642",
    "::1]:8642",
    "memory.example.com:80",
    "memory.example.com:8642",
    "memory.example.com.evil.com",
    "memory.example.com.",
    "other.example.com",
    "http://localhost:8642",
    "localhost:8642, evil.com",
    "localhost:8642\x00",
    "localhost:٨٦٤٢",
    "ｌocalhost:8642",
]

OWN_ORIGINS = [
    "http://localhost:8642",
    "http://127.0.0.1:8642",
    "http://[::1]:8642",
    "http://box.lan:8642",
    "https://memory.example.com",
    "https://memory.example.com:443",
    "https://other.example.com:8443",
]

FOREIGN_ORIGINS = [
    "",
    "null",
    "*",
    "localhost:8642",
    "//localhost:8642",
    "http://localhost",
    "http://localhost:3000",
    "http://localhost:8642/",
    "http://localhost:8642/page",
    "http://localhost:8642?x",
    "http://localhost:8642#x",
    "https://localhost:8642",
    "HTTP://localhost:8642",
    "http:localhost:8642",
    "http:///localhost:8642",
    "http://evil.com",
    "http://evil.com:8642",
    "http://127.0.0.1:8642.evil.com",
    "http://evil.com#http://localhost:8642",
    "http://user@localhost:8642",
    "http://[::1].evil.com:8642",
    "http://memory.example.com",
    "https://memory.example.com:8642",
    "https://evil.memory.example.com",
    "file://",
    "chrome-extension://localhost:8642",
    "http://localhost:8642 http://evil.com",
]


def guard() -> OriginCheck:
    urls = ["https://memory.example.com", "https://other.example.com:8443/"]
    return OriginCheck(names=["box.lan"], public_urls=urls)


def scope(*headers: tuple[str, str], server: Any = LOCAL, scheme: str = "http") -> dict[str, Any]:
    raw = [(name.encode(), value.encode("utf-8")) for name, value in headers]
    return {"type": "http", "scheme": scheme, "server": server, "headers": raw}


def refusal(*headers: tuple[str, str], **more: Any) -> HttpFailure | None:
    try:
        guard().check(scope(*headers, **more))
    except HttpFailure as failure:
        return failure
    return None


@pytest.mark.parametrize("host", OWN_HOSTS)
def test_a_host_header_that_names_this_server_is_accepted(host: str) -> None:
    assert refusal(("host", host)) is None


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_host_header_that_nearly_names_this_server_is_421(host: str) -> None:
    failure = refusal(("host", host))
    assert failure is not None
    assert (failure.status, failure.field) == (421, "Host")


@pytest.mark.parametrize("origin", OWN_ORIGINS)
def test_an_origin_header_of_this_server_is_accepted(origin: str) -> None:
    assert refusal(("host", "localhost:8642"), ("origin", origin)) is None


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_an_origin_header_of_another_site_is_403(origin: str) -> None:
    failure = refusal(("host", "localhost:8642"), ("origin", origin))
    assert failure is not None
    assert (failure.status, failure.field) == (403, "Origin")


def test_a_request_without_exactly_one_host_header_is_400() -> None:
    for headers in ([], [("host", "localhost:8642"), ("host", "localhost:8642")]):
        failure = refusal(*headers)
        assert failure is not None
        assert failure.status == 400


def test_two_origin_headers_are_403() -> None:
    own = ("origin", "http://localhost:8642")
    failure = refusal(("host", "localhost:8642"), own, own)
    assert failure is not None
    assert failure.status == 403


def test_the_local_address_of_the_connection_is_an_accepted_host() -> None:
    reached = ("192.0.2.7", 8642)
    assert refusal(("host", "192.0.2.7:8642"), server=reached) is None
    assert refusal(("host", "192.0.2.8:8642"), server=reached) is not None
    assert refusal(("host", "[2001:db8::7]:1"), server=("2001:db8:0::7", 1)) is None


def test_a_host_without_a_port_means_the_default_port_of_the_scheme() -> None:
    assert refusal(("host", "localhost"), server=("127.0.0.1", 80)) is None
    assert refusal(("host", "localhost"), server=("127.0.0.1", 443), scheme="https") is None
    assert refusal(("host", "localhost"), server=("127.0.0.1", 443)) is not None


def test_a_wildcard_bind_address_is_not_an_accepted_host() -> None:
    for name, host in (("0.0.0.0", "0.0.0.0:8642"), ("::", "[::]:8642")):
        with pytest.raises(HttpFailure):
            OriginCheck(names=[name]).check(scope(("host", host)))


def test_behind_a_unix_socket_only_the_public_url_is_an_accepted_host() -> None:
    assert refusal(("host", "localhost"), server=("/run/x.sock", None)) is not None
    assert refusal(("host", "memory.example.com"), server=("/run/x.sock", None)) is None


def test_more_headers_than_the_maximum_are_431() -> None:
    many = [(f"x-{number}", "x") for number in range(HEADERS_MAX)]
    failure = refusal(("host", "localhost:8642"), *many)
    assert failure is not None
    assert failure.status == 431


@pytest.mark.parametrize("url", ["memory.example.com", "ftp://x", "https://x/y", "https://", "x y"])
def test_a_public_url_that_is_not_an_origin_is_refused(url: str) -> None:
    with pytest.raises(Refused, match="public_url"):
        public_origin(url)
