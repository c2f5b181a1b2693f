"""Health checks: liveness and readiness. They need no key."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request

from harness.bootstrap.readiness import Readiness
from harness.jobs.background_task import BackgroundTasks
from harness.web.http.body import JsonObject
from harness.web.http.errors import Json
from harness.web.http.route import Route
from harness.web.http.route_docs import answers
from workspaces.validation import StrictModel

router = APIRouter(route_class=Route, tags=["health"])


class LivenessDocument(StrictModel):
    status: Literal["ok"]


class ResidentDocument(StrictModel):
    """The state of a background task."""

    state: Literal["running", "restarting"]
    crashes: int
    error: str | None


class PartProblemDocument(StrictModel):
    """A part of the server that does not answer."""

    part: str
    message: str
    remedy: str


class ReadinessDocument(StrictModel):
    """The state of the server and of its parts."""

    status: Literal["ready", "unready"]
    home: str
    disk: str
    records: str
    s3: str | None
    model: Literal["ok", "demo"]
    problems: list[PartProblemDocument]
    residents: dict[str, ResidentDocument]


EXAMPLE: JsonObject = {
    "status": "ready",
    "home": "ok",
    "disk": "ok",
    "records": "ok",
    "s3": None,
    "model": "ok",
    "problems": [],
    "residents": {},
}


@router.get(
    "/healthz",
    summary="Check liveness",
    responses=answers(LivenessDocument, {"status": "ok"}),
)
async def healthz() -> Json:
    return Json({"status": "ok"})


@router.get(
    "/readyz",
    summary="Check readiness",
    responses={
        **answers(ReadinessDocument, EXAMPLE),
        **answers(
            ReadinessDocument,
            status=503,
            description="A part does not answer: `problems` says which.",
        ),
    },
)
async def readyz(request: Request) -> Json:
    """Check that the home is writable and that the record store and S3 answer.

    `disk` is `low` if less than a tenth of the home's disk and less than 500 MB are free; the server stays
    ready. `s3` is null if the home does not use S3. `model` is `demo` if the offline demo model answers for
    agents that name no model. Each check has a limit of two seconds, and its result is cached for two
    seconds. A crashed background task (`residents`) is shown but does not make the server unready, because
    it is restarted.
    """
    readiness: Readiness = request.app.state.readiness
    missing = await readiness.lacks()
    is_ready = not any(one.is_needed for one in missing)
    parts = {**dict.fromkeys(readiness.parts, "ok"), **{one.part: one.code for one in missing}}
    problems = [{"part": one.part, "message": one.message, "remedy": one.remedy} for one in missing]
    background: BackgroundTasks = request.app.state.background_tasks
    conditions = {
        name: {"state": one.state, "crashes": one.crashes, "error": one.error}
        for name, one in background.conditions.items()
    }
    document = {
        "status": "ready" if is_ready else "unready",
        "s3": None,
        **parts,
        "model": "demo" if readiness.is_demo else "ok",
        "problems": problems,
        "residents": conditions,
    }
    return Json(document, 200 if is_ready else 503)
