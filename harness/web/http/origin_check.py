"""Who this server answers: requests that name it, from pages that are its own.

A page of any site can make a browser send requests to 127.0.0.1, and can make a name of its own lead
there (DNS rebinding). So every request must name this server in `Host`: as `localhost`, as the very
address it came in on, by a name it was bound to, always with the port it came in on; or exactly as one
of the public URLs that the settings state. And where a browser says which page a request comes from
(`LineSource`), that page must be of this server too. Names are parsed and compared whole, ports as numbers:
`127.0.0.1:evil.com`, `localhost.evil.com` and `[::1].evil.com` are none of ours.

An address as `Host` is safe although it may be any of the machine's: no name leads there by rebinding.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from starlette.types import Scope

from harness.web.http.errors import Malformed, TooManyHeaders, WrongHost, WrongOrigin
from workspaces.errors import Refused

HEADERS_MAX = 100
"""Browsers send about twenty."""

_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_ANY_ADDRESS = {"0.0.0.0", "[::]"}  # noqa: S104 - what is bound to all addresses has none of these names
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PORT_MAX = 65_535

_AUTHORITY = re.compile(
    r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?)"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class Authority:
    """A name and a port, such that two that mean the same are equal."""

    name: str
    port: int


@dataclass(frozen=True, slots=True)
class Origin:
    scheme: str
    authority: Authority


class OriginCheck:
    def __init__(self, *, names: Sequence[str] = (), public_urls: Iterable[str] = ()) -> None:
        """`names`: what the server was bound to. `public_urls`: by which it is reached through a
        proxy, as in `https://memory.example.com`."""
        self._names = {*_LOCAL, *(_name(name) for name in names)} - _ANY_ADDRESS
        self._public = [public_origin(url) for url in public_urls]

    def check(self, scope: Scope) -> Origin:
        """As what this server was called; refuses a request that is not for it, or from a page that is
        not of it."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(headers) > HEADERS_MAX:
            raise TooManyHeaders(f"more than {HEADERS_MAX} headers")
        host = _only(headers, b"host")
        if host is None:
            raise Malformed("exactly one Host header is needed", field="Host")
        scheme = scope.get("scheme", "http")
        allowed = [*self._public, *self._own(scope, scheme)]
        called = next(
            (own for own in allowed if parse_authority(host, own.scheme) == own.authority), None
        )
        if called is None:
            raise WrongHost(
                "this server does not go by the name in Host; "
                "state it in the setting public_url, if it should",
                field="Host",
            )
        if any(name == b"origin" for name, _ in headers):
            origin = parse_origin(_only(headers, b"origin") or "")
            if origin not in allowed:
                raise WrongOrigin(
                    "requests from pages of another origin are not answered; "
                    "state it in the setting public_url, if it is this server",
                    field="Origin",
                )
        return called

    def _own(self, scope: Scope, scheme: str) -> Iterable[Origin]:
        name, port = scope.get("server") or (None, None)
        if port is None:  # a Unix socket: reached through a proxy alone
            return
        for known in (*self._names, _name(str(name))):
            yield Origin(scheme, Authority(known, port))


def parse_authority(text: str, scheme: str) -> Authority | None:
    """`localhost:8642`, `[::1]`, …; None for whatever is none."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    port = int(found["port"]) if found["port"] else _DEFAULT_PORTS.get(scheme, 0)
    name = _name(found["name"])
    return Authority(name, port) if name and 0 < port <= _PORT_MAX else None


def parse_origin(text: str) -> Origin | None:
    """As a browser states it: a scheme and an authority, no path. None for `null` and the like."""
    scheme, separator, authority = text.partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        return None
    parsed = parse_authority(authority, scheme)
    return Origin(scheme, parsed) if parsed else None


def public_origin(url: str) -> Origin:
    origin = parse_origin(url.removesuffix("/").lower())
    if origin is None:
        raise Refused("public_url", url, "is no origin such as https://memory.example.com")
    return origin


def _name(stated: str) -> str:
    """Lower case; an address in its one shortest form, IPv6 in brackets. "" for what is neither."""
    bare = stated.removeprefix("[").removesuffix("]")
    if ":" not in bare:
        return "" if stated.startswith("[") else stated.lower()
    try:
        return f"[{ipaddress.IPv6Address(bare).compressed}]"
    except ValueError:
        return ""


def _only(headers: list[tuple[bytes, bytes]], name: bytes) -> str | None:
    """The one value of a header; None when it is not there exactly once."""
    values = [value for stated, value in headers if stated == name]
    return values[0].decode("latin-1") if len(values) == 1 else None
