"""The delivery of one notice: a signed POST to an address that is checked before anything is sent.

The host is resolved once, every address that it has must be allowed, and the connection goes to an address
that was checked. So a name cannot lead to another address between the check and the connection. Redirects are
not followed, because they would lead past the check. Only the first line of the answer is read.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import ssl
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from harness.jobs.runner import TryAgain
from harness.webhooks.webhook import Webhook
from workspaces.storage.records import JsonObject

ANSWER_S = 10.0
"""Seconds for a whole delivery: the name, the connection, the request and the first line of the answer."""

STATUS_LINE_BYTES_MAX = 1_000

_NAT64 = IPv6Network("64:ff9b::/96")

PAUSES_S = (60.0, 300.0, 1_800.0, 7_200.0, 14_400.0, 28_800.0, 32_400.0)
"""Pauses after the first seven tries. The eighth, the last one, comes 23.6 hours after the first."""


async def deliver(
    webhook: Webhook, notice: JsonObject, *, now_s: float, allows_private: bool = False
) -> None:
    """Send a notice to a webhook.

    Raises: TryAgain, with the reason, unless it was answered with a status from 200 to 299.
    """
    body = json.dumps(notice, separators=(",", ":")).encode()
    try:
        async with asyncio.timeout(ANSWER_S):
            status = await _post(webhook, body, int(now_s), allows_private)
    except TimeoutError as error:
        raise TryAgain(f"no answer in {ANSWER_S:.0f} s", PAUSES_S) from error
    except (OSError, ssl.SSLError) as error:
        raise TryAgain(f"it cannot be reached ({type(error).__name__})", PAUSES_S) from error
    if 300 <= status < 400:
        raise TryAgain(f"it answered {status}, and redirects are not followed", PAUSES_S)
    if not 200 <= status < 300:
        raise TryAgain(f"it answered {status}", PAUSES_S)


def signature(secret: str, body: bytes, at_s: int) -> str:
    """Return the value of `Harness-Signature`: the time, and the HMAC-SHA256 of `<time>.<body>`."""
    digest = hmac.new(secret.encode(), f"{at_s}.".encode() + body, sha256).hexdigest()
    return f"t={at_s},v1={digest}"


async def _post(webhook: Webhook, body: bytes, at_s: int, allows_private: bool) -> int:
    url = urlsplit(webhook.record.url)
    port = url.port or (443 if url.scheme == "https" else 80)
    address = await _allowed_address(str(url.hostname), port, allows_private)
    secure: dict[str, Any] = {}
    if url.scheme == "https":
        secure = {"ssl": ssl.create_default_context(), "server_hostname": url.hostname}
    reader, writer = await asyncio.open_connection(
        address, port, limit=STATUS_LINE_BYTES_MAX, **secure
    )
    try:
        writer.write(_head(url, webhook, body, at_s) + body)
        await writer.drain()
        return _status(await _first_line(reader))
    finally:
        writer.transport.abort()  # nothing more is wanted, whatever the other side still sends


async def _allowed_address(host: str, port: int, allows_private: bool) -> str:
    """Return an address of the host.

    Raises: TryAgain when the host has no address, or one that is not public.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise TryAgain("its host has no address", PAUSES_S) from error
    addresses = [str(entry[4][0]) for entry in found]
    if not allows_private and not all(_is_public(address) for address in addresses):
        reason = "its host has an address that is not public; `webhooks_private: true` allows it"
        raise TryAgain(reason, PAUSES_S)
    return addresses[0]


def _is_public(address: str) -> bool:
    found = ip_address(address.partition("%")[0])
    inner = _ipv4_in(found) if isinstance(found, IPv6Address) else None
    return found.is_global and not found.is_multicast and (inner is None or inner.is_global)


def _ipv4_in(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address to which a gateway would translate this one."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _head(url: SplitResult, webhook: Webhook, body: bytes, at_s: int) -> bytes:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = (
        f"POST {target} HTTP/1.1",
        f"Host: {url.netloc}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "User-Agent: workspace-harness",
        f"Harness-Signature: {signature(webhook.secret, body, at_s)}",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode()


async def _first_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""


def _status(line: bytes) -> int:
    parts = line.split(b" ")
    is_http = len(parts) >= 2 and parts[0].startswith(b"HTTP/1.") and len(parts[1].strip()) == 3
    return int(parts[1]) if is_http and parts[1].strip().isdigit() else 0
