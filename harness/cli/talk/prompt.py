"""The command `harness prompt`: the exact prompt of the next turn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from harness.cli.console.console import (
    HomeOption,
    JsonOption,
    OpenedFiles,
    Shown,
    opened,
    opened_files,
    print_json,
    read_input,
    remark,
    say,
)
from harness.cli.talk.memory_policy import MemoryPolicyOption, parse_policy

if TYPE_CHECKING:
    from harness import Harness
    from harness.presentation.hook_context import HookContext
    from harness.prompts.prompt_request import PromptRequest
    from workspaces.revision import RevisionId
    from workspaces.workspace.workspace import Workspace


def register(app: typer.Typer) -> None:
    app.command()(prompt)


def prompt(
    workspace: Annotated[
        str | None,
        typer.Argument(help="A workspace: the prompt parts for an agent that mounts it."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="An agent: its whole system prompt.")
    ] = None,
    where: Annotated[
        bool,
        typer.Option("--where", help="Add the path of the workspace's files on this machine."),
    ] = False,
    hook: Annotated[
        bool,
        typer.Option("--hook", help="Answer a hook of Claude Code or Codex: what is new to it."),
    ] = False,
    conversation: Annotated[
        str | None,
        typer.Option(
            "--conversation", "-c", help="The prompt of the next turn in this conversation."
        ),
    ] = None,
    revision: Annotated[
        str | None, typer.Option("--revision", "-r", help="The workspace at this revision.")
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", "-m", help="Show the prompt with this next message.")
    ] = None,
    memory_policy: MemoryPolicyOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the prompt that the next turn would begin with.

    The prompt is printed part by part. In an existing conversation, memory is shown as it was at the start
    of the session. Later changes follow, each with the number of the message that carries it.

    With `--hook`, the answer is JSON for the program that calls: at the start of a session the memory, before
    a later prompt what has changed since. `harness use` installs it.
    """
    if hook:
        _answer_hook(workspace, home, with_place=where)
        return
    Shown.as_json = as_json
    if workspace is not None:
        for option, value in (
            ("--agent", agent),
            ("--conversation", conversation),
            ("--message", message),
            ("--memory-policy", memory_policy),
        ):
            _check_absent(option, value, "cannot be given together with a workspace")
        with opened_files(home, as_json=as_json) as files:
            _print_parts(_of_workspace(files, workspace, revision, with_place=where), as_json)
        return
    _check_absent("--revision", revision, "needs a workspace")
    with opened(home, as_json=as_json) as harness:
        request = harness.preview(
            agent,
            conversation=conversation,
            message=message,
            memory_policy=parse_policy(memory_policy),
        )
        _print_parts([*request.parts_json(), *_reminder(request, message)], as_json)
        if not as_json:
            remark(_length(harness, agent, request))


def _print_parts(parts: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(parts)
    else:
        say("\n\n".join(_text(part) for part in parts))


def _answer_hook(reference: str | None, home: Path | None, *, with_place: bool) -> None:
    """Print the answer to a hook's call, or nothing if nothing is new to the session."""
    from harness.integrations.hook_session import HookSessions, hook_call
    from workspaces.errors import Refused

    if reference is None:
        raise Refused("--hook", None, "needs a workspace")
    call = hook_call(b"" if sys.stdin is None or sys.stdin.isatty() else read_input())
    with opened_files(home) as files:
        workspace = files.get(reference)
        workspace.edits.commit()
        sessions, tip = HookSessions(files.home.used / "sessions"), workspace.history.tip()
        told = sessions.told(call.session, workspace.id) if call.session else None
        if call.event == "SessionStart" or (told is None and call.session):
            text = _hook_context(files, workspace, with_place=with_place).whole()
        elif told is None or told == tip:
            text = ""  # the usual case: nothing is imported that renders a prompt
        else:
            text = _hook_news(_hook_context(files, workspace, with_place=with_place), told)
        if call.session and tip is not None:
            sessions.note(call.session, workspace.id, tip)
    if text:
        print_json(call.answer(text))


def _hook_context(files: OpenedFiles, workspace: Workspace, *, with_place: bool) -> HookContext:
    from harness.memory.facts.fact_index import FactIndexes
    from harness.presentation.hook_context import HookContext

    place = _location(workspace)["text"] if with_place else ""
    return HookContext(workspace, files.clock, FactIndexes(), place)


def _hook_news(context: HookContext, told: RevisionId) -> str:
    from workspaces.errors import NotFound

    try:
        return context.news(told)
    except NotFound:  # the history was replaced since
        return context.whole()


def _reminder(request: PromptRequest, message: str | None) -> list[dict[str, Any]]:
    """Return the hidden reminder beside the message as a part, if there is one."""
    text = request.said[-1].reminder if message is not None else ""
    if not text:
        return []
    return [{"source": "reminder", "trusted": False, "text": text, "characters": len(text)}]


def _length(harness: Harness, agent: str | None, request: PromptRequest) -> str:
    """Describe the length of the request with the messages of the conversation, and its limit.

    If the request is over the limit, also say how the turn would handle it.
    """
    from harness.context.summary_plan import Cover, SystemTooLong, TurnTooLong

    length = request.length
    record = harness.agents.get(harness.settings.default_agent if agent is None else agent)
    compaction = record.config.session.compaction
    limit = f" of {compaction.max_context_length:,}" if compaction.enabled else ""
    summary = (
        f"({length.characters:,}{limit} characters with the messages; about {length.tokens:,} tokens "
        "with the tools)"
    )
    due = request.due
    match due:
        case None:
            return summary
        case Cover(until):
            return f"{summary}\n(the next turn would first summarise the entries up to {until})"
        case SystemTooLong(characters):
            return (
                f"{summary}\n"
                f"(a summary cannot help: {characters:,} characters are not part of the messages)"
            )
        case TurnTooLong():
            return (
                f"{summary}\n"
                "(nothing can be summarised: there are no messages before the newest turn)"
            )
        case _:
            assert_never(due)


def _check_absent(option: str, value: str | None, rule: str) -> None:
    from workspaces.errors import Refused

    if value is not None:
        raise Refused(option, value, rule)


def _of_workspace(
    files: OpenedFiles, reference: str, revision: str | None, *, with_place: bool
) -> list[dict[str, Any]]:
    from harness.memory.facts.fact_index import FactIndexes
    from harness.presentation.workspace_prompt import workspace_prompt
    from workspaces.history.history import HEAD

    workspace, view = files.get(reference), HEAD if revision is None else revision
    parts = workspace_prompt(workspace, files.clock, facts=FactIndexes(), view=view)
    shown = [{**part.as_json(), "characters": len(part.text)} for part in parts]
    return [*shown, _location(workspace)] if with_place else shown


def _text(part: dict[str, Any]) -> str:
    if "entry" in part:
        return f"(at entry {part['entry']})\n{part['text']}"
    return part["text"]


def _location(workspace: Workspace) -> dict[str, Any]:
    """Return a prompt part that says where the files are, for an agent program with its own tools."""
    from harness.runtime.templates import render

    text = render("prompt/place.md", workspace=workspace.record.name, root=workspace.root)
    return {"source": "place", "trusted": True, "text": text, "characters": len(text)}
