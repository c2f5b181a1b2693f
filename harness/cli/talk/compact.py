"""The command `harness compact`: summarise the beginning of a conversation for the model, now."""

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
        bool, typer.Option("--dry-run", help="Print the plan and do not ask the model.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Summarise the beginning of a conversation for the model.

    The newest two turns stay unchanged. `harness conversation show` still shows all messages. The command
    works on a short conversation too. With `session.compaction.enabled`, the agent does this by itself when a
    conversation grows too long.
    """
    from harness.messages.progress import silent

    with opened(home, as_json=as_json) as harness:
        record = harness.conversation(conversation, agent=agent)
        if dry_run:
            request = harness.preview(harness.agents.get(record.agent_id), conversation=record.key)
            _print_plan(record.key, request, as_json=as_json)
            return 0
        result = harness.compact(record, silent if as_json else TurnPrinter().show)
    if as_json:
        print_json({"conversation": record.id, **_document(result)})
    else:
        print_compaction(record.key, result)
    return 1 if any(remark.kind == "summary_failed" for remark in result.remarks) else 0


def _print_plan(key: str, request: PromptRequest, *, as_json: bool) -> None:
    from harness.context.summary_plan import Cover, due_json

    covered = request.covered
    if as_json:
        print_json({"conversation": key, "compacted": False, "would": due_json(covered)})
    elif isinstance(covered, Cover):
        left = request.characters_after(covered.until)
        size = f"{request.length.characters:,} characters would become {left:,} plus the summary"
        say(f"would be compacted: {key}: entries up to {covered.until}; {size}")
    else:
        notes().print("nothing can be summarised: there are no messages before the newest turn")


def print_compaction(key: str, result: Compacted) -> None:
    for remark in result.remarks:
        if remark.kind != "compacted":
            notes().print(remark.detail, markup=False)
    summary = result.window.summary
    if result.is_done and summary is not None:
        size = f"{len(summary.message.text):,} characters"
        say(f"compacted: {key}: entries up to {summary.covers} are a summary of {size}")


def _document(result: Compacted) -> dict[str, object]:
    session = result.window.session
    return {
        "compacted": result.is_done,
        "windowFrom": session.window_from,
        "summary": session.summary,
        "context": [remark.as_json() for remark in result.remarks],
    }
