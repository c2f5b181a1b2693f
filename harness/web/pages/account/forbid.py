"""Forbid texts: the rules, the files that they hold back, and a rule that is tried before it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.web.http.caller import Caller
from harness.web.pages.parts.form import Form, SentForm
from harness.web.pages.parts.rendering import led_to, shown
from harness.web.pages.parts.route import PageRoute
from harness.web.pages.parts.told import Told, told
from harness.web.routes.records.keys import Id
from workspaces.errors import Failure, NotFound, OverLimit, Refused
from workspaces.home.forbidding import TriedPlace

router = APIRouter(route_class=PageRoute, include_in_schema=False)

ROWS_MAX = 200

TRIED_CHARACTERS_MAX = 20_000
"""The longest text that is tried. It comes back whole in the page."""

KINDS = ("match", "text", "keys", "cards")
"""What the form offers. The last two are detectors."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A text with the places that would be refused."""

    places: Sequence[TriedPlace]
    parts: Sequence[tuple[str, TriedPlace | None]]
    """The whole text in parts, each with its place."""
    by_rule: Mapping[str, Sequence[int]]
    """The lines in which each rule finds something. The drafted rule has the empty id."""


@router.get("/forbid", response_model=None)
def forbid_page(request: Request, caller: Caller) -> Response:
    return _page(request, caller)


@router.post("/forbid", response_model=None)
def forbid_text(request: Request, caller: Caller, form: Form) -> Response:
    """Make a rule, or show what it would refuse.

    What was tried is shown without a redirect: the text must be in no address.
    """
    try:
        if form.text("do") != "add":
            return _page(request, caller, form=form, tried=_tried(caller, form))
        caller.forbidding.forbid(_rule(form))
    except (Refused, OverLimit, NotFound) as failure:
        return _page(request, caller, form=form, problem=_told(failure))
    return led_to(request, "/forbid", said="forbidden")


@router.post("/forbid/keep", response_model=None)
def keep_once(request: Request, caller: Caller, form: Form) -> Response:
    """Let a file that is held back pass once, and keep it."""
    stated = {"workspace": form.text("workspace"), "path": form.fields.get("path", "")}
    try:
        caller.forbidding.keep_once(stated)
    except NotFound as failure:
        if failure.what != "held-back file":
            raise
        return led_to(request, "/forbid", said="not-held")
    return led_to(request, "/forbid", said="allowed")


@router.post("/forbid/{id}/lift", response_model=None)
def lift_rule(request: Request, caller: Caller, rule_id: Id, form: Form) -> Response:
    del form
    caller.forbidding.lift(rule_id)
    return led_to(request, "/forbid", said="lifted")


def _rule(form: SentForm) -> dict[str, object]:
    """Return the fields of a new rule.

    Raises: Refused for an unknown kind, or for nothing to forbid.
    """
    kind = form.text("kind")
    if kind not in KINDS:
        raise Refused("kind", kind, f"must be one of {', '.join(KINDS)}")
    workspace = form.text("workspace")
    fields: dict[str, object] = {"workspace": workspace} if workspace else {}
    if kind in ("keys", "cards"):
        return {**fields, "detect": kind}
    what = form.lines("what").strip("\n") if kind == "match" else form.lines("what").strip()
    if not what:
        raise Refused(kind, None, "say what is forbidden")
    return {**fields, kind: what, "forbidShort": kind == "text" and form.has("short")}


def _tried(caller: PrincipalServices, form: SentForm) -> Tried:
    """Return the parts of the text that the drafted rule would refuse, or those that count already."""
    text = form.lines("sample")
    if len(text) > TRIED_CHARACTERS_MAX:
        raise OverLimit("sample", maximum=TRIED_CHARACTERS_MAX, actual=len(text), unit="characters")
    is_drafted = form.text("kind") in ("keys", "cards") or form.text("what")
    places = caller.forbidding.try_on(
        text, _rule(form) if is_drafted else None, workspace=form.text("workspace") or None
    )
    parts: list[tuple[str, TriedPlace | None]] = []
    at = 0
    for place in places:
        parts += [(text[at : place.start], None), (text[place.start : place.end], place)]
        at = place.end
    by_rule: dict[str, list[int]] = {}
    for place in places:
        for rule_id in (*([""] if place.is_new else []), *place.rule_ids):
            lines = by_rule.setdefault(rule_id, [])
            lines += [] if place.line in lines[-1:] else [place.line]
    return Tried(places, [part for part in (*parts, (text[at:], None)) if part[0]], by_rule)


def _told(failure: Failure) -> Told:
    """Return the sentence about a refused form, and the field beside which it stands."""
    field = "what"
    if isinstance(failure, NotFound) and failure.what == "workspace":
        field = "workspace"
    elif isinstance(failure, OverLimit) and failure.limit == "sample":
        field = "sample"
    elif isinstance(failure, Refused) and failure.field == "kind":
        field = "kind"
    return told(failure, field)


def _page(
    request: Request,
    caller: PrincipalServices,
    *,
    form: SentForm | None = None,
    tried: Tried | None = None,
    problem: Told | None = None,
) -> Response:
    forbidding = caller.forbidding
    rules = forbidding.list()[::-1]
    is_live = form is not None and form.has("live")  # then only what was tried is looked at
    held = [] if is_live else list(islice(forbidding.held_back(), ROWS_MAX + 1))
    workspaces = caller.workspaces.list()
    return shown(
        request,
        "forbid.html",
        caller=caller,
        status=problem.status if problem else 200,
        form=form or SentForm({}),
        tried=tried,
        told=problem,
        rules=rules[:ROWS_MAX],
        more=max(0, len(rules) - ROWS_MAX),
        by_id={rule.id: rule for rule in rules},
        stops=forbidding.stops(),
        held=held[:ROWS_MAX],
        held_more=len(held) > ROWS_MAX,
        workspaces=workspaces[:ROWS_MAX],
        names={record.id: record.name for record in workspaces},
        sample_max=TRIED_CHARACTERS_MAX,
    )
