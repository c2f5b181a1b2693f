"""The commands `harness extract` and `harness sleep`: read what is new in a conversation, now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import HomeOption, JsonOption, notes, opened, print_json, say
from harness.cli.talk.conversation import AgentOption, ConversationArgument

if TYPE_CHECKING:
    from harness.learning.learner import PassReport

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Ask the model, print what it says, and store nothing.")
]

_TOLD = {
    "too_short": "nothing was read: fewer than 200 characters are new",
    "nothing_kept": "nothing to store",
    "no_place": "nothing was read: there is no place for what would be stored",
    "proposed": "",
    "stored": "",
}
_REMEDIES = {
    "no_place": "give the agent a writable workspace, or set memoryEnabled; see `harness agent show`",
    "over_limit": "wait, or raise config.limits.learningDollarsPerDay of the account",
}
_FAILED = ("over_limit", "over_budget", "later", "failed", "gave_up")


def register(app: typer.Typer) -> None:
    app.command()(extract)
    app.command()(sleep)


def extract(
    conversation: ConversationArgument,
    agent: AgentOption = None,
    dry_run: DryRunOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Store facts from what is new in a conversation.

    A small model reads it. An agent with `extract.enabled` does this by itself, after a minute of quiet. Each
    pass costs at most 0.03 dollars.
    """
    with opened(home, as_json=as_json) as harness:
        record = harness.conversation(conversation, agent=agent)
        report = harness.learn(record, dry_run=dry_run)
    return _told(record.id, report, as_json=as_json)


def sleep(
    conversation: ConversationArgument,
    agent: AgentOption = None,
    dry_run: DryRunOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Rewrite your memory blocks from what is new.

    A small model reads the conversation and the blocks. Facts are stored in the same pass. An agent with
    `sleep.enabled` does this by itself.
    """
    with opened(home, as_json=as_json) as harness:
        record = harness.conversation(conversation, agent=agent)
        report = harness.learn(record, blocks=True, dry_run=dry_run)
    return _told(record.id, report, as_json=as_json)


def _told(conversation_id: str, report: PassReport, *, as_json: bool) -> int:
    if as_json:
        print_json({"conversation": conversation_id, **report.as_json()})
        return int(report.status in _FAILED)
    would = "would be " if report.status == "proposed" else ""
    for fact in report.facts:
        say(f"{would}stored ({fact.scope}): {fact.key}: {fact.value}")
    for block in report.blocks:
        say(f"{would}written: {block.type} memory, scope {block.scope}\n{block.content}")
    told = _TOLD.get(report.status, report.reason or report.status)
    if report.status == "proposed" and not (report.facts or report.blocks):
        told = _TOLD["nothing_kept"]
    if told:
        notes().print(told, markup=False)
    for reason, number in report.dropped.items():
        notes().print(f"left out: {number} ({reason.replace('_', ' ')})", markup=False)
    if report.status in _REMEDIES:
        notes().print(f"→ {_REMEDIES[report.status]}", markup=False)
    return int(report.status in _FAILED)
