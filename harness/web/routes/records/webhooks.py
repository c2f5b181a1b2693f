"""Routes of webhooks: addresses that are told what happens in the account."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from harness.web.http.body import Fields, JsonObject
from harness.web.http.caller import Caller, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.pagination import page_model, whole
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    DeletionDocument,
    answers,
    refusals,
    schema_of,
    takes,
)
from harness.webhooks.webhook import NewWebhook, WebhookRecord

router = APIRouter(
    route_class=Route,
    prefix="/v1",
    tags=["webhooks"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)


class WebhookWithSecret(WebhookRecord):
    """A new webhook, with the secret that signs its deliveries."""

    secret: str


NEW: JsonObject = {"url": "https://example.com/hook", "events": ["turn.finished"]}
EXAMPLE: JsonObject = {
    **NEW,
    "id": "hook_5d7e9a1b3c4f60718293a4b5",
    "createdAt": "2026-11-18T14:03:18.875130Z",
}


@router.post(
    "/webhooks",
    summary="Create a webhook",
    status_code=201,
    responses={
        **answers(
            WebhookWithSecret,
            {**EXAMPLE, "secret": "whsec_…"},
            status=201,
            description="`secret` signs every delivery. It is shown here and never again.",
        ),
        **refusals(*READING_JSON),
    },
    openapi_extra=takes(schema_of(NewWebhook), NEW),
)
def create_webhook(caller: Caller, fields: Fields) -> Json:
    """Create a webhook, at most ten in an account.

    Each notice is a POST of JSON with an `id`, the `event`, the time `at` and ids, and no text of memories or
    conversations. `Harness-Signature: t=<seconds>,v1=<hex>` is the HMAC-SHA256 of `<seconds>.<body>` by the
    secret. A notice is tried eight times in 24 hours, until it is answered with 2xx. A repeated notice has
    the same `id`. Redirects are not followed.
    """
    webhook = caller.webhooks.create(fields)
    return Json({**webhook.record.as_json(), "secret": webhook.secret}, 201)


@router.get(
    "/webhooks",
    summary="List the webhooks",
    responses=answers(page_model("webhooks", WebhookRecord), whole("webhooks", [EXAMPLE])),
)
def list_webhooks(caller: Caller) -> Json:
    """List the webhooks of the account without their secrets."""
    return Json(whole("webhooks", (record.as_json() for record in caller.webhooks.list())))


@router.delete(
    "/webhooks/{id}",
    summary="Delete a webhook",
    responses=answers(DeletionDocument, {"deleted": True}),
)
def delete_webhook(caller: Caller, webhook_id: Annotated[str, Path(alias="id")]) -> Json:
    """Delete a webhook. What waits to be delivered to it is dropped."""
    caller.webhooks.delete(webhook_id)
    return Json({"deleted": True})
