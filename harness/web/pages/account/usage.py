"""Usage: tokens and dollars of a month by day, agent, purpose or model, and the limits of the account."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, cast, get_args

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.billing.ledger import Dimension, UsageReport, UsageRow, day_of
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.web.http.caller import Caller
from harness.web.pages.parts.form import Form, SentForm
from harness.web.pages.parts.rendering import led_to, shown
from harness.web.pages.parts.route import PageRoute
from workspaces.errors import Forbidden, NotFound, Refused

router = APIRouter(route_class=PageRoute, include_in_schema=False)

ROWS_MAX = 100
"""Rows of the table, the most expensive first."""

YEARS_BACK = 2

CHART_WIDTH, CHART_HEIGHT = 720, 120
"""The size of the chart, in its own units."""

BAR_GAP = 2

_LIMITS = {
    "turnsPerMinute": "Turns per minute",
    "runningTurns": "Turns at once",
    "dollarsPerDay": "Dollars per day",
    "dollarsPerMonth": "Dollars per month",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the chart, in the units of the chart."""

    name: str
    dollars: float
    asked: int
    x: float
    width: float
    y: float
    height: float


@router.get("/usage", response_model=None)
def usage_page(
    request: Request, caller: Caller, by: str = "day", since: str = "", until: str = ""
) -> Response:
    allowed = _allowed(caller)
    if by not in allowed:
        raise NotFound("page", by)
    first, last = day_of("since", since or None), day_of("until", until or None)
    usage = caller.usage
    report = usage.report(by=cast(Dimension, by), since=first, until=last)
    days = report if by == "day" else usage.report(by="day", since=first, until=last)
    return shown(
        request,
        "usage.html",
        caller=caller,
        by=by,
        dimensions=allowed,
        report=report,
        rows=report.lines[:ROWS_MAX],
        most=max((row.spent.nanodollars for row in report.lines), default=0),
        names=_names(caller, by),
        bars=bars(days),
        chart=(CHART_WIDTH, CHART_HEIGHT),
        previous=_month_before(report.since, caller.clock.now().date()),
        limits=_limits(caller),
    )


@router.post("/usage/limits", response_model=None)
def change_limits(request: Request, caller: Caller, form: Form) -> Response:
    if not caller.principal.may_configure:
        raise Forbidden("change the limits of the account")
    stated = {name: _number(form, name) for name in _LIMITS}
    caller.account.patch({"config": {"limits": stated}})
    return led_to(request, "/usage", said="saved")


def bars(report: UsageReport) -> list[Bar]:
    """Return a bar for each day of the report, the most expensive as high as the chart.

    Where nothing has a price, the height is that of the requests.
    """
    rows: Mapping[str, UsageRow] = {row.name: row for row in report.lines}
    days = (report.until - report.since).days + 1
    names = [(report.since + timedelta(days=number)).isoformat() for number in range(days)]
    is_priced = any(row.spent.nanodollars for row in report.lines)

    def weight(row: UsageRow | None) -> int:
        if row is None:
            return 0
        return row.spent.nanodollars if is_priced else row.spent.asked

    most = max((weight(row) for row in report.lines), default=0)
    width = CHART_WIDTH / days
    made: list[Bar] = []
    for number, name in enumerate(names):
        row = rows.get(name)
        height = round(CHART_HEIGHT * weight(row) / most, 1) if most else 0.0
        made.append(
            Bar(
                name,
                row.spent.dollars if row else 0.0,
                row.spent.asked if row else 0,
                x=round(number * width, 1),
                width=round(max(1.0, width - BAR_GAP), 1),
                y=round(CHART_HEIGHT - height, 1),
                height=height,
            )
        )
    return made


def _allowed(caller: PrincipalServices) -> tuple[str, ...]:
    """Return the dimensions that the caller may see. A user's key sees its own usage only."""
    every: tuple[str, ...] = get_args(Dimension)
    of_others = ("agent", "user", "conversation")
    return (
        every if caller.principal.may_configure else tuple(d for d in every if d not in of_others)
    )


def _names(caller: PrincipalServices, by: str) -> dict[str, str]:
    if by == "agent":
        return {agent.id: agent.name for agent in caller.agents.list()}
    if by == "user":
        return {user.id: user.name for user in caller.users.list()}
    return {}


def _limits(caller: PrincipalServices) -> list[tuple[str, str, Any]]:
    stated = caller.account.get().config.limits.as_json()
    return [(name, title, stated.get(name)) for name, title in _LIMITS.items()]


def _number(form: SentForm, name: str) -> float | int | None:
    text = form.text(name)
    if not text:
        return None
    try:
        amount = float(text)
    except ValueError as error:
        raise Refused(name, text, "must be a number") from error
    return (
        int(amount)
        if name in ("turnsPerMinute", "runningTurns") and amount.is_integer()
        else amount
    )


def _month_before(since: date, today: date) -> tuple[str, str] | None:
    """Return the days of the month before; None beyond the two years that people look back."""
    if since.year < today.year - YEARS_BACK:
        return None
    last = since.replace(day=1) - timedelta(days=1)
    return last.replace(day=1).isoformat(), last.isoformat()
