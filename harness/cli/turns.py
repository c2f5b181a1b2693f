"""`harness chat` and `harness run`: talking to an agent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.face import (
    INPUT_BYTES_MAX,
    HomeOption,
    JsonOption,
    as_text,
    notes,
    opened,
    print_json,
    read_input,
    show_failure,
    visible,
)

if TYPE_CHECKING:
    from harness import Harness
    from harness.message import ToolCall
    from harness.outcome import Outcome
    from harness.progress import Progress

ConversationOption = Annotated[
    str | None,
    typer.Option("--conversation", "-c", help="The conversation to go on with; else a new one."),
]

_ENDS = {"/exit", "/quit"}


def register(app: typer.Typer) -> None:
    app.command()(chat)
    app.command()(run)


def chat(
    agent: Annotated[
        str | None, typer.Argument(help="Name or id of an agent (else the home's default).")
    ] = None,
    conversation: ConversationOption = None,
    home: HomeOption = None,
) -> int:
    """Talk to an agent. End with Ctrl-D or /exit; Ctrl-C stops a running turn."""
    from workspaces.errors import Failure
    from workspaces.ids import new_id

    with opened(home) as harness:
        record = harness.agents.get(harness.settings.default_agent if agent is None else agent)
        key = new_id("c") if conversation is None else conversation
        _greet(harness, record.name, key)
        while (text := _ask()) is not None:
            if text in _ENDS:
                break
            if not text.strip():
                continue
            try:
                outcome = harness.run(text, agent=record, conversation=key, emit=_show)
            except KeyboardInterrupt:
                notes().print("\n[dim](stopped)[/]")
                continue
            except Failure as failure:  # this was not said; what comes next may be
                show_failure(failure)
                continue
            _close(outcome)
    return 0


def run(
    text: Annotated[str, typer.Argument(help="What to say; - reads standard input.")],
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="Name or id (else the home's default).")
    ] = None,
    conversation: ConversationOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Say one thing to an agent and print what it answers."""
    from harness.progress import silent

    with opened(home, as_json=as_json) as harness:
        said = as_text(read_input()) if text == "-" else text
        emit = silent if as_json or not sys.stdout.isatty() else _show
        outcome = harness.run(said, agent=agent, conversation=conversation, emit=emit)
    if as_json:
        print_json(outcome.as_json())
    elif emit is silent:
        sys.stdout.write(f"{outcome.reply}\n" if outcome.reply else "")
        _say_what_went_wrong(outcome)
    else:
        _close(outcome)
    return 0 if outcome.status == "done" else 1


def _greet(harness: Harness, agent: str, conversation: str) -> None:
    from harness.models.demo import NAME

    mounted = harness.agents.bindings(harness.agents.get(agent))
    names = ", ".join(mount.workspace.record.name for mount in mounted) or "none"
    console = notes()
    console.print(f"[bold]{agent}[/] · workspaces: {names} · conversation {conversation}")
    if harness.settings.anthropic_api_key is None:
        console.print(
            f"[yellow]No ANTHROPIC_API_KEY: the offline {NAME} model answers.[/] "
            "It remembers what you tell it to remember."
        )
    found = harness.confinement()
    if not found.works:
        console.print(f"bash is off: {found.detail}", markup=False, style="yellow")
        console.print("  → harness doctor says more", markup=False, style="dim")
    console.print("[dim]Ctrl-D or /exit ends.[/]")


def _ask() -> str | None:
    """The next line; None at the end. Prompted only where a person types."""
    if not sys.stdin:
        return None
    if not sys.stdin.isatty():
        line = as_text(sys.stdin.buffer.readline(INPUT_BYTES_MAX))
        return line.rstrip("\n") if line else None
    import readline  # noqa: F401 - gives `input` history and editing  # pyright: ignore[reportUnusedImport]

    try:
        return input("\nyou › ")
    except EOFError:
        notes().print()
        return None


def _show(progress: Progress) -> None:
    from harness.progress import (
        Counted,
        Queued,
        TextArrived,
        ToolEnded,
        ToolStarted,
        Waiting,
        Withdrawn,
    )

    match progress:
        case TextArrived(text):
            sys.stdout.write(text)
            sys.stdout.flush()
        case ToolStarted() | Counted():
            pass
        case Withdrawn():
            sys.stdout.write("\n")
            sys.stdout.flush()
            notes().print("[yellow](the answer broke off; it begins anew)[/]")
        case ToolEnded(call, result):
            mark = "[red]✗[/]" if result.is_error else "[green]✓[/]"
            notes().print(f"{mark} [dim]{call.name}[/] ", end="")
            notes().print(_named(call), markup=False, style="dim")
        case Waiting(reason, seconds):
            notes().print(f"[yellow]{reason}: waiting {seconds:.0f} s[/]")
        case Queued(ahead):
            before = f", {ahead} before this" if ahead else ""
            notes().print(f"[yellow]the conversation is in use: waiting in line{before}[/]")


def _named(call: ToolCall) -> str:
    """What a call is about, in one line."""
    about = next(
        (str(call.input[k]) for k in ("path", "command", "pattern") if k in call.input), ""
    )
    lines = visible(about).splitlines() or [""]
    return lines[0] + (" …" if len(lines) > 1 else "")


def _close(outcome: Outcome) -> None:
    if outcome.reply:
        sys.stdout.write("\n")
        sys.stdout.flush()
    _say_what_went_wrong(outcome)


def _say_what_went_wrong(outcome: Outcome) -> None:
    for source in outcome.unavailable:
        notes().print(f"{source} could not be read: the agent answered without it", markup=False)
    if outcome.failure is not None:
        notes().print(f"error ({outcome.failure.kind}): {outcome.failure.reason}", markup=False)
        notes().print(f"  → {outcome.failure.remedy}", markup=False)
    elif outcome.status == "out_of_steps":
        notes().print("The agent used all its steps without an answer; say “go on” to continue.")
    elif outcome.status == "cut":
        notes().print("The answer was cut at the agent's limit of output tokens.")
