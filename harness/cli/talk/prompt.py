"""`harness prompt`: exactly what a prompt would hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from harness.cli.console.console import HomeOption, JsonOption, notes, opened, print_json, say

if TYPE_CHECKING:
    from harness import Harness
    from harness.prompts.prompt_request import PromptRequest


def register(app: typer.Typer) -> None:
    app.command()(prompt)


def prompt(
    workspace: Annotated[
        str | None, typer.Argument(help="A workspace: what an agent that mounts it would be shown.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="An agent: its whole system prompt.")
    ] = None,
    where: Annotated[
        bool,
        typer.Option("--where", help="Say also where the workspace's files lie on this machine."),
    ] = False,
    conversation: Annotated[
        str | None,
        typer.Option("--conversation", "-c", help="As its next turn there would be shown it."),
    ] = None,
    revision: Annotated[
        str | None, typer.Option("--revision", "-r", help="The workspace as it was then.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the prompt that a next turn would begin with. Part by part.

    Of a conversation that goes on, memory is shown as its session began with it; what was told of
    changes since follows, each with the message that it stands beside.
    """
    told = ""
    with opened(home, as_json=as_json) as harness:
        if workspace is None:
            _check_absent("--revision", revision, "needs a workspace")
            question = harness.preview(agent, conversation=conversation)
            parts = question.parts_json()
            told = _length(harness, agent, question)
        else:
            _check_absent("--agent", agent, "cannot be given together with a workspace")
            _check_absent("--conversation", conversation, "cannot be given with a workspace")
            parts = _of_workspace(harness, workspace, revision)
            if where:
                parts.append(_place(harness, workspace))
    if as_json:
        print_json(parts)
        return
    say("\n\n".join(_told(part) for part in parts))
    if told:
        notes().print(told, markup=False, style="dim")


def _length(harness: Harness, agent: str | None, question: PromptRequest) -> str:
    """Of the request, with what was said in the conversation, and the limit on it; and what the turn would
    do about one that is over it."""
    from harness.context.summary_plan import Cover, SystemTooLong, TurnTooLong

    length = question.length
    record = harness.agents.get(harness.settings.default_agent if agent is None else agent)
    compaction = record.config.session.compaction
    limit = f" of {compaction.max_context_length:,}" if compaction.enabled else ""
    told = (
        f"({length.characters:,}{limit} characters with the messages; about {length.tokens:,} tokens "
        "with the tools)"
    )
    due = question.due
    match due:
        case None:
            return told
        case Cover(until):
            return (
                f"{told}\n(the next turn would first summarise what was said up to entry {until})"
            )
        case SystemTooLong(characters):
            return (
                f"{told}\n(no summary can help: {characters:,} of them stand beside the messages)"
            )
        case TurnTooLong():
            return f"{told}\n(there is nothing before the newest turn that could be summarised)"
        case _:
            assert_never(due)


def _check_absent(option: str, value: str | None, rule: str) -> None:
    from workspaces.errors import Refused

    if value is not None:
        raise Refused(option, value, rule)


def _of_workspace(harness: Harness, reference: str, revision: str | None) -> list[dict[str, Any]]:
    from harness.agents.mounts import Mount, mount_name
    from harness.agents.record import AgentConfig
    from harness.prompts.prompt_sources import PromptSources
    from workspaces.history.history import HEAD

    workspace = harness.workspaces.get(reference)
    view = HEAD if revision is None else revision
    if revision is not None:
        workspace.history.resolve(view)
    mount = Mount(mount_name(workspace.record.name), workspace, is_writable=True)
    briefing = PromptSources(AgentConfig(), [mount], model="", view_of=lambda _: view)
    day = harness.rooms.clock.now().date()
    return [{**part.as_json(), "characters": len(part.text)} for part in briefing.parts(day)]


def _told(part: dict[str, Any]) -> str:
    if "entry" in part:
        return f"(beside entry {part['entry']})\n{part['text']}"
    return part["text"]


def _place(harness: Harness, workspace: str) -> dict[str, Any]:
    """For an agent with tools of its own."""
    from harness.runtime.templates import render

    place = harness.workspaces.get(workspace)
    text = render("prompt/place.md", workspace=place.record.name, root=place.root)
    return {"source": "place", "trusted": True, "text": text, "characters": len(text)}
