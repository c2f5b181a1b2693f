"""The command `harness usage`: tokens that the models have used, and their cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    notes,
    opened,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from harness import Harness
    from harness.billing.ledger import Dimension, Spending, Spent, UsageReport

DIMENSIONS = ("day", "agent", "user", "conversation", "purpose", "model")


def register(app: typer.Typer) -> None:
    app.command()(usage)


def usage(
    by: Annotated[
        str, typer.Option("--by", help=f"Sum up by {', '.join(DIMENSIONS)}.", show_default=True)
    ] = "day",
    since: Annotated[
        str | None,
        typer.Option("--since", help="First day, as 2026-11-01; default: the first of this month."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Last day; default: today. Days are UTC.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="Only this agent, by name or id.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help="Only this user, by name or id.")
    ] = None,
    conversation: Annotated[
        str | None,
        typer.Option("--conversation", "-c", help="Only this conversation, by its id."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the tokens and dollars of this month.

    Dollars follow the prices of the day of each request. The setting `prices` names a price file of your own.
    Requests to a model without a price are counted in tokens and marked with a star.
    """
    from harness.billing.ledger import day_of

    with opened(home, as_json=as_json) as harness:
        report = harness.usage(
            by=_dimension(by),
            since=day_of("--since", since),
            until=day_of("--until", until),
            of=_of(harness, agent, user, conversation),
        )
        names = {} if as_json else _names(harness, report)
    if as_json:
        print_json(report.as_json())
        return
    headings = (report.by, "requests", "input", "cached", "output", "dollars")
    rows = [_row(names.get(line.name, line.name), line.spent) for line in report.lines]
    print_table(headings, [*rows, _row("total", report.total)])
    if report.total.unpriced:
        summary = f"* {report.total.unpriced:,} requests went to models without a price"
        notes().print(f"{summary}: see the setting `prices`.", markup=False)


def _row(name: str, spent: Spent) -> tuple[str, ...]:
    used = spent.usage
    mark = "*" if spent.unpriced else ""
    counts = (spent.asked, used.input + used.cache_write, used.cache_read, used.output)
    return (name, *(f"{count:,}" for count in counts), f"{spent.dollars:,.4f}{mark}")


def _dimension(name: str) -> Dimension:
    from workspaces.errors import unknown_name

    if name not in DIMENSIONS:
        raise unknown_name("--by", name, list(DIMENSIONS))
    return name


def _of(
    harness: Harness, agent: str | None, user: str | None, conversation: str | None
) -> tuple[Spending, str] | None:
    from workspaces.errors import Refused

    if sum(option is not None for option in (agent, user, conversation)) > 1:
        rule = "cannot be combined"
        raise Refused("--agent, --user, --conversation", agent or user, rule)
    if agent is not None:
        return "agent", harness.agents.get(agent).id
    if user is not None:
        return "user", harness.rooms.users.get(user).id
    return None if conversation is None else ("conversation", conversation)


def _names(harness: Harness, report: UsageReport) -> dict[str, str]:
    """Return the names of the ids. Deleted records have none."""
    if report.by == "agent":
        return {agent.id: agent.name for agent in harness.agents.list()}
    if report.by == "user":
        return {user.id: user.name for user in harness.rooms.users.list()}
    return {}
