"""Whose requests may read conversations of other agents on this machine: the home's owner's, from here.

The conversations belong to the person whose home this is. A request counts as that person's if it acts as
the owner of the default account and comes over loopback, and no proxy stands between.
"""

from __future__ import annotations

import ipaddress

from fastapi import Request

from harness.memorize.local.local_conversations import LocalConversations, local_conversations
from harness.web.http.caller import application_of
from workspaces.accounts.principal import Principal

_PROXY_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-real-ip")


def readable_conversations(request: Request, principal: Principal) -> LocalConversations | None:
    """Return the conversations that the request may read; None if it may read none."""
    application = application_of(request)
    if not _comes_from_here(request) or application.settings.public_urls:
        return None
    owner = application.owner()
    is_owner = (owner.account_id, owner.user_id) == (principal.account_id, principal.user_id)
    if not is_owner or not principal.may_configure:
        return None
    return local_conversations(application.settings)


def _comes_from_here(request: Request) -> bool:
    if any(name in request.headers for name in _PROXY_HEADERS):
        return False
    server = request.scope.get("server") or ("", None)
    client = request.client.host if request.client is not None else ""
    return _is_loopback(client) and _is_loopback(str(server[0]))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
