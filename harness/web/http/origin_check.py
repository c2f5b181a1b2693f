"""Check that a request names this server and comes from one of its own pages.

A page of any site can make a browser send requests to 127.0.0.1. With DNS rebinding, it can also make its own
name resolve to that address. So every request must name this server in `Host`, in one of these ways:

- `localhost`, the address on which the request came in, or a name that the server was bound to, always with
  the port on which the request came in;
- exactly one of the public URLs in the settings.

If a browser sends `Origin`, that page must be of this server too. Names are parsed and compared whole, ports
as numbers: `127.0.0.1:evil.com`, `localhost.evil.com` and `[::1].evil.com` are refused.

Any address of the machine is safe as `Host`: DNS rebinding gives an attacker a name, not an address.
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
"""Largest number of headers. Browsers send about twenty."""

_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_ANY_ADDRESS = {"0.0.0.0", "[::]"}  # noqa: S104 - bound to all addresses, but not named so
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PORT_MAX = 65_535

_AUTHORITY = re.compile(
    r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?)"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class Authority:
    """A name and a port in normal form. Two authorities are equal if they mean the same."""

    name: str
    port: int


@dataclass(frozen=True, slots=True)
class Origin:
    scheme: str
    authority: Authority


class OriginCheck:
    def __init__(self, *, names: Sequence[str] = (), public_urls: Iterable[str] = ()) -> None:
        """Create a check.

        `names`: the names that the server was bound to. `public_urls`: the URLs of a proxy in front of it, as
        in `https://memory.example.com`.
        """
        self._names = {*_LOCAL, *(_name(name) for name in names)} - _ANY_ADDRESS
        self._public = [public_origin(url) for url in public_urls]

    def check(self, scope: Scope) -> Origin:
        """Return the origin under which the request addresses this server.

        Raises:
            TooManyHeaders: the request has more than `HEADERS_MAX` headers.
            Malformed: there is not exactly one Host header.
            WrongHost: the Host does not name this server.
            WrongOrigin: the request comes from a page of another server.
        """
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(headers) > HEADERS_MAX:
            raise TooManyHeaders(f"more than {HEADERS_MAX} headers")
        host = _only(headers, b"host")
        if host is None:
            raise Malformed("The request needs exactly one Host header.", field="Host")
        scheme = scope.get("scheme", "http")
        allowed = [*self._public, *self._own(scope, scheme)]
        addressed = next(
            (own for own in allowed if parse_authority(host, own.scheme) == own.authority), None
        )
        if addressed is None:
            raise WrongHost(
                "The Host header does not name this server. "
                "If it should, add the name to the setting public_url.",
                field="Host",
            )
        if any(name == b"origin" for name, _ in headers):
            origin = parse_origin(_only(headers, b"origin") or "")
            if origin not in allowed:
                raise WrongOrigin(
                    "Requests from pages of another origin are refused. "
                    "If the origin is this server, add it to the setting public_url.",
                    field="Origin",
                )
        return addressed

    def _own(self, scope: Scope, scheme: str) -> Iterable[Origin]:
        name, port = scope.get("server") or (None, None)
        if port is None:  # a Unix socket: only a proxy can reach it
            return
        for known in (*self._names, _name(str(name))):
            yield Origin(scheme, Authority(known, port))


def parse_authority(text: str, scheme: str) -> Authority | None:
    """Parse a name with its port, as in `localhost:8642` or `[::1]`. Return None for any other text."""
    parts = _AUTHORITY.fullmatch(text)
    if parts is None:
        return None
    port = int(parts["port"]) if parts["port"] else _DEFAULT_PORTS.get(scheme, 0)
    name = _name(parts["name"])
    return Authority(name, port) if name and 0 < port <= _PORT_MAX else None


def parse_origin(text: str) -> Origin | None:
    """Parse an Origin header: a scheme and an authority without a path. None for `null` and other texts."""
    scheme, separator, authority = text.partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        return None
    parsed = parse_authority(authority, scheme)
    return Origin(scheme, parsed) if parsed else None


def public_origin(url: str) -> Origin:
    origin = parse_origin(url.removesuffix("/").lower())
    if origin is None:
        raise Refused("public_url", url, "is not an origin such as https://memory.example.com")
    return origin


def _name(text: str) -> str:
    """Return a name in lower case, or an IPv6 address in its shortest form in brackets; "" if invalid."""
    bare = text.removeprefix("[").removesuffix("]")
    if ":" not in bare:
        return "" if text.startswith("[") else text.lower()
    try:
        return f"[{ipaddress.IPv6Address(bare).compressed}]"
    except ValueError:
        return ""


def _only(headers: list[tuple[bytes, bytes]], name: bytes) -> str | None:
    """Return the value of a header that occurs exactly once, otherwise None."""
    values = [value for header, value in headers if header == name]
    return values[0].decode("latin-1") if len(values) == 1 else None
