"""The address of a database, `postgresql://user:password@host:port/database?option=value`.

The driver would accept more than this form, and its messages repeat parts of an address that it cannot read.
A password with a character that must be encoded would be among them. So the form is checked here first, and
an address that does not have it is never shown. This file does not import the driver.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from workspaces.errors import Refused

SCHEMES = ("postgresql://", "postgres://")

_FORM = re.compile(
    r"(?P<scheme>postgres(?:ql)?)://"
    r"(?:(?P<user>[^:/?#@\s]*)(?::(?P<password>[^:/?#@\s]*))?@)?"
    r"(?P<hosts>[^/?#@\s]*)"
    r"(?:/(?P<database>[^/?#@\s]*))?"
    r"(?:\?(?P<options>[^?#@\s]*))?"
)
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::[0-9]{1,5})?")
_SECRET_OPTIONS = ("password", "sslpassword")


def is_address(location: str) -> bool:
    """Return True if the location names a database, in whatever form."""
    return location.startswith(SCHEMES)


def check_form(location: str) -> None:
    """Check the form of an address.

    Raises: Refused, without the address.
    """
    if _parts(location) is None:
        raise refused(location, "is not postgresql://user:password@host:port/database")


def refused(location: str, rule: str) -> Refused:
    return Refused(
        "records",
        shown(location),
        rule,
        remedy="write special characters of user and password with %, as in %40 for @; or leave the password "
        "out and give it in PGPASSWORD or a password file",
    )


def shown(location: str) -> str:
    """Return the address without password and options.

    Of a location that is not one of ours only the beginning is returned if it may contain a password.
    """
    if not is_address(location):
        kind, _, place = location.partition(":")
        return f"{kind}:…" if "@" in place and kind != "sqlite" else location
    parts = _parts(location)
    if parts is None:
        return "postgresql://…"
    user = f"{parts['user']}@" if parts["user"] else ""
    database = "" if parts["database"] is None else f"/{parts['database']}"
    return f"{parts['scheme']}://{user}{parts['hosts']}{database}"


def secrets_of(location: str) -> list[str]:
    """Return the texts of an address that no message may contain, encoded and decoded."""
    parts = _parts(location)
    if parts is None:
        return []
    pairs = [option.partition("=") for option in (parts["options"] or "").split("&")]
    found = [parts["password"] or "", *(v for name, _, v in pairs if name in _SECRET_OPTIONS)]
    return [text for one in found if one for text in {one, unquote(one)}]


def _parts(location: str) -> dict[str, str | None] | None:
    match = _FORM.fullmatch(location)
    if match is None:
        return None
    hosts = match["hosts"].split(",")
    return match.groupdict() if all(map(_HOST.fullmatch, hosts)) else None
