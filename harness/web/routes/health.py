"""Whether this server lives, and whether it can work. Neither needs a key."""

from __future__ import annotations

from fastapi import APIRouter, Request

from harness.bootstrap.readiness import Readiness
from harness.jobs.background_task import BackgroundTasks
from harness.web.http.body import JsonObject
from harness.web.http.errors import Json
from harness.web.http.route import Route
from harness.web.http.route_docs import NUMBER, TEXT, TEXT_OR_NULL, answers, list_of, object_of

router = APIRouter(route_class=Route, tags=["health"])

RESIDENT = object_of(
    {"state": {"enum": ["running", "restarting"]}, "crashes": NUMBER, "error": TEXT_OR_NULL}
)
READY = object_of(
    {
        "status": {"enum": ["ready", "unready"]},
        "home": TEXT,
        "records": TEXT,
        "s3": TEXT_OR_NULL,
        "problems": list_of(object_of({"part": TEXT, "message": TEXT, "remedy": TEXT})),
        "residents": {"type": "object", "additionalProperties": RESIDENT},
    }
)

EXAMPLE: JsonObject = {
    "status": "ready",
    "home": "ok",
    "records": "ok",
    "s3": None,
    "problems": [],
    "residents": {},
}


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
        **answers(READY, EXAMPLE),
        **answers(READY, status=503, description="A part does not answer: `problems` says which."),
    },
)
async def readyz(request: Request) -> Json:
    """Writes into the home, and asks the record store and S3, where the home uses it (else `s3` is null).
    Each has two seconds; what was found counts for two. A resident that has crashed is shown and makes
    nobody unready: it is started again."""
    readiness: Readiness = request.app.state.readiness
    lacks = await readiness.lacks()
    parts = {**dict.fromkeys(readiness.parts, "ok"), **{lack.part: lack.code for lack in lacks}}
    problems = [
        {"part": lack.part, "message": lack.message, "remedy": lack.remedy} for lack in lacks
    ]
    residents: BackgroundTasks = request.app.state.residents
    conditions = {
        name: {"state": one.state, "crashes": one.crashes, "error": one.error}
        for name, one in residents.conditions.items()
    }
    told = {
        "status": "unready" if lacks else "ready",
        "s3": None,
        **parts,
        "problems": problems,
        "residents": conditions,
    }
    return Json(told, 503 if lacks else 200)
