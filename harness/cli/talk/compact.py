"""`harness compact`: the beginning of a conversation summarised for the model, now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import HomeOption, JsonOption, notes, opened, print_json, say
from harness.cli.console.turn_printer import TurnPrinter
from harness.cli.talk.conversation import AgentOption, ConversationArgument

if TYPE_CHECKING:
    from harness.prompts.compaction import Compacted
    from harness.prompts.prompt_request import PromptRequest


def register(app: typer.Typer) -> None:
    app.command()(compact)


def compact(
    conversation: ConversationArgument,
    agent: AgentOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be summarised, and ask nobody.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Summarise the beginning of a conversation. For the model, and however short it is.

    The newest two turns stay as they are, and everything that was said stays in `harness conversation show`.
    An agent does so by itself with `session.compaction.enabled`, when a conversation grows too long.
    """
    from harness.messages.progress import silent

    with opened(home, as_json=as_json) as harness:
        found = harness.conversation(conversation, agent=agent)
        if dry_run:
            question = harness.preview(harness.agents.get(found.agent_id), conversation=found.key)
            _foretell(found.key, question, as_json=as_json)
            return 0
        done = harness.compact(found, silent if as_json else TurnPrinter().show)
    if as_json:
        print_json({"conversation": found.id, **as_told(done)})
    else:
        tell(found.key, done)
    return 1 if any(remark.kind == "summary_failed" for remark in done.remarks) else 0


def _foretell(key: str, question: PromptRequest, *, as_json: bool) -> None:
    from harness.context.summary_plan import Cover, due_json

    covered = question.covered
    if as_json:
        print_json({"conversation": key, "compacted": False, "would": due_json(covered)})
    elif isinstance(covered, Cover):
        left = question.characters_after(covered.until)
        size = f"{question.length.characters:,} characters would become {left:,} and those of the summary"
        say(f"would be compacted: {key}: entries up to {covered.until}; {size}")
    else:
        notes().print("there is nothing before the newest turn that could be summarised")


def tell(key: str, done: Compacted) -> None:
    for remark in done.remarks:
        if remark.kind != "compacted":
            notes().print(remark.detail, markup=False)
    summary = done.window.summary
    if done.is_done and summary is not None:
        size = f"{len(summary.message.text):,} characters"
        say(f"compacted: {key}: entries up to {summary.covers} are a summary of {size}")


def as_told(done: Compacted) -> dict[str, object]:
    session = done.window.session
    return {
        "compacted": done.is_done,
        "windowFrom": session.window_from,
        "summary": session.summary,
        "context": [remark.as_json() for remark in done.remarks],
    }
