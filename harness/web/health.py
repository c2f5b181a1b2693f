"""Whether this server lives, and whether it can work. Neither needs a key."""

from __future__ import annotations

from fastapi import APIRouter, Request

from harness.crossing import in_thread
from harness.resident import Residents
from harness.web.caller import house_of
from harness.web.describe import NUMBER, TEXT, TEXT_OR_NULL, answers, object_of
from harness.web.refusal import Json
from harness.web.route import Route
from workspaces.account import DEFAULT_ACCOUNT
from workspaces.errors import Failure

router = APIRouter(route_class=Route, tags=["health"])

RESIDENT = object_of(
    {"state": {"enum": ["running", "restarting"]}, "crashes": NUMBER, "error": TEXT_OR_NULL}
)
READY = object_of(
    {
        "status": {"enum": ["ready", "unready"]},
        "records": TEXT,
        "residents": {"type": "object", "additionalProperties": RESIDENT},
    }
)


@router.get(
    "/healthz",
    summary="Alive?",
    response_model=None,
    responses=answers(object_of({"status": {"const": "ok"}}), {"status": "ok"}),
)
async def healthz() -> Json:
    return Json({"status": "ok"})


@router.get(
    "/readyz",
    summary="Able to work?",
    response_model=None,
    responses={
        **answers(READY, {"status": "ready", "records": "ok", "residents": {}}),
        **answers(READY, status=503, description="The record store does not answer."),
    },
)
async def readyz(request: Request) -> Json:
    """Asks the record store. A resident that has crashed is shown and makes nobody unready: it is
    started again."""
    try:
        await in_thread(house_of(request).records.get, DEFAULT_ACCOUNT)
        records = "ok"
    except Failure as failure:
        records = failure.code
    residents: Residents = request.app.state.residents
    conditions = {
        name: {"state": one.state, "crashes": one.crashes, "error": one.error}
        for name, one in residents.conditions.items()
    }
    ready = records == "ok"
    told = {"status": "ready" if ready else "unready", "records": records, "residents": conditions}
    return Json(told, 200 if ready else 503)
