"""`harness chat`: a conversation at the terminal.

What begins with a slash is for this program and not for the agent: looking at what it remembers, at what
its last answer changed, and taking that back. A path, with a second slash, is something said.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.console.console import (
    INPUT_BYTES_MAX,
    HomeOption,
    as_text,
    escaped,
    has_colours,
    notes,
    opened,
    print_styled,
    show_failure,
)
from harness.cli.console.diff_printer import styled_files, styled_revision
from harness.cli.console.turn_printer import TurnPrinter
from harness.cli.talk.approve import asked
from harness.cli.talk.compact import tell
from harness.cli.talk.run import ConversationOption

if TYPE_CHECKING:
    from harness import Harness
    from harness.agents.record import AgentRecord
    from harness.tools.tool_context import ToolRevision
    from workspaces.ids import TurnId
    from workspaces.workspace.workspace import Workspace

MEMORY = "MEMORY.md"

_COMMAND = re.compile(r"/(\w*)")


def register(app: typer.Typer) -> None:
    app.command()(chat)


def chat(
    agent: Annotated[
        str | None, typer.Argument(help="Name or id of an agent (else the home's default).")
    ] = None,
    conversation: ConversationOption = None,
    home: HomeOption = None,
) -> int:
    """Talk to an agent. End with Ctrl-D or /exit; Ctrl-C stops a running turn; /help says what else."""
    from harness.messages.event import check_key
    from workspaces.errors import Failure
    from workspaces.ids import new_id

    with opened(home) as harness:
        record = harness.agents.get(harness.settings.default_agent if agent is None else agent)
        key = new_id("c") if conversation is None else conversation
        talk = _Chat(harness, record, check_key(key))
        talk.greet()
        while not talk.is_over and (text := talk.asks()) is not None:
            try:
                talk.hear(text)
            except Failure as failure:  # this was not said; what comes next may be
                show_failure(failure)
    return 0


@dataclass(slots=True)
class _Chat:
    harness: Harness
    agent: AgentRecord
    key: str
    is_over: bool = False
    is_leaving: bool = False
    """Whether Ctrl-C was pressed where nothing ran: the next one ends it."""
    undone: set[TurnId] = field(default_factory=set["TurnId"])

    def greet(self) -> None:
        from harness.models.demo import NAME

        console = notes()
        names = ", ".join(workspace.record.name for workspace in self._mounted().values())
        told = f"workspaces: {names or 'none'} · conversation {self.key}"
        console.print(f"[bold]{escaped(self.agent.name)}[/] · {escaped(told)}")
        if self.harness.settings.anthropic_api_key is None:
            console.print(
                f"[yellow]No ANTHROPIC_API_KEY: the offline {NAME} model answers.[/] "
                "It remembers what you tell it to remember."
            )
        found = self.harness.confinement()
        if not found.works:
            console.print(f"bash is off: {found.detail}", markup=False, style="yellow")
            console.print("  → harness doctor says more", markup=False, style="dim")
        console.print("[dim]Ctrl-D or /exit ends, /help says what else there is.[/]")

    def asks(self) -> str | None:
        """What is said next; None at the end. Who presses Ctrl-C just when the answer has come did not
        mean to end it."""
        try:
            return _ask()
        except KeyboardInterrupt:
            if self.is_leaving or not sys.stdin.isatty():
                raise
        self.is_leaving = True
        notes().print("\n[dim](Ctrl-C once more ends)[/]")
        return ""

    def hear(self, text: str) -> None:
        self.is_leaving = self.is_leaving and not text
        command = _COMMAND.fullmatch(text.strip())
        if command is not None:
            self._obey(command[1])
        elif text.strip():
            self._say(text)

    def _say(self, text: str) -> None:
        telling = TurnPrinter()
        try:
            outcome = self.harness.run(
                text, agent=self.agent, conversation=self.key, emit=telling.show
            )
            outcome = asked(self.harness, outcome, telling.show)
        except KeyboardInterrupt:
            notes().print("\n[dim](stopped)[/]")
        else:
            telling.close(outcome)

    def _obey(self, name: str) -> None:
        """The beginning of a name is enough."""
        found = [one for one in _COMMANDS if one.startswith(name)] if name else []
        if len(found) != 1:
            notes().print(f"there is no /{name}; there are:", markup=False)
            self.help()
            return
        _COMMANDS[found[0]](self)

    def help(self) -> None:
        """this list"""
        told = {command: name for name, command in reversed(_COMMANDS.items())}
        for command, name in reversed(told.items()):
            notes().print(f"  /{name:<8} {command.__doc__}", markup=False)

    def memory(self) -> None:
        """what is always in the agent's prompt, as it stands now"""
        from workspaces.errors import NotFound

        for name, workspace in self._mounted().items():
            notes().print(f"{name}/{MEMORY}", markup=False, style="bold")
            try:
                text = workspace.read(MEMORY).text
            except NotFound:
                text = ""
            print_styled([(text if text.endswith("\n") else f"{text}\n", "")] if text else [])

    def diff(self) -> None:
        """what the last answer that changed something has changed"""
        for workspace, change in self._changes():
            told = workspace.history.show(change.revision)
            files = styled_files(told.files, words=sys.stdout.isatty(), marked=not has_colours())
            print_styled([*styled_revision(told.revision), *files])

    def undo(self) -> None:
        """take that back; again: what the answer before it changed"""
        for workspace, change in reversed(self._changes()):
            made = workspace.revert(change.revision, by=self.harness.rooms.principal.author("api"))
            told = f"undone by {made[:10]}" if made else "undone already"
            notes().print(f"{change.workspace} {change.revision[:10]}: {told}", markup=False)
        self.undone |= {turn for turn, _ in self._turns()[-1:]}

    def compact(self) -> None:
        """summarise the beginning, so that the agent has room again"""
        found = self.harness.conversations.find(self.agent.id, self.key)
        if found is None:
            notes().print("nothing was said in this conversation")
        else:
            tell(self.key, self.harness.compact(found, TurnPrinter().show))

    def new(self) -> None:
        """a new conversation; this one is kept"""
        from workspaces.ids import new_id

        self.key, self.undone = new_id("c"), set()
        notes().print(f"conversation {self.key}", markup=False, style="dim")

    def exit(self) -> None:
        """end, as /quit and Ctrl-D do"""
        self.is_over = True

    def _changes(self) -> list[tuple[Workspace, ToolRevision]]:
        """Of the newest turn that was not undone, in their order."""
        turns = self._turns()
        if not turns:
            notes().print("nothing was changed in this conversation")
            return []
        mounted = self._mounted()
        return [(mounted[one.workspace], one) for one in turns[-1][1] if one.workspace in mounted]

    def _turns(self) -> list[tuple[TurnId, list[ToolRevision]]]:
        """Those of the session that changed something and were not undone."""
        conversations = self.harness.conversations
        found = conversations.find(self.agent.id, self.key)
        if found is None:
            return []
        turns: dict[TurnId, list[ToolRevision]] = {}
        transcript = conversations.transcript(found)
        for entry in transcript.entries(transcript.session().first):
            if entry.changes and entry.turn_id not in self.undone:
                turns.setdefault(entry.turn_id, []).extend(entry.changes)
        return list(turns.items())

    def _mounted(self) -> dict[str, Workspace]:
        mounts = self.harness.agents.bindings(self.agent)
        return {mount.name: mount.here for mount in mounts if not mount.is_distant}


_COMMANDS: dict[str, Callable[[_Chat], None]] = {
    "memory": _Chat.memory,
    "diff": _Chat.diff,
    "undo": _Chat.undo,
    "compact": _Chat.compact,
    "new": _Chat.new,
    "help": _Chat.help,
    "exit": _Chat.exit,
    "quit": _Chat.exit,
}


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
