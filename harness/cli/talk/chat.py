"""The command `harness chat`: a conversation at the terminal.

A line that begins with a slash is a command for this program, not a message to the agent. The commands show
the agent's memory and the changes of its last answer, and undo them. A path, with a second slash, is a
message.
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
from harness.cli.talk.approve import ask_for_approvals
from harness.cli.talk.compact import print_compaction
from harness.cli.talk.memory_policy import MemoryPolicyOption, parse_policy
from harness.cli.talk.run import ConversationOption

if TYPE_CHECKING:
    from harness import Harness
    from harness.agents.record import AgentRecord
    from harness.messages.memory_policy import MemoryPolicy
    from harness.tools.tool_context import ToolRevision
    from workspaces.ids import TurnId
    from workspaces.workspace.workspace import Workspace

MEMORY = "MEMORY.md"

_COMMAND = re.compile(r"/(\w*)")


def register(app: typer.Typer) -> None:
    app.command()(chat)


def chat(
    agent: Annotated[
        str | None, typer.Argument(help="Name or id; default: the home's default agent.")
    ] = None,
    conversation: ConversationOption = None,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Continue the conversation that the agent's runs share."),
    ] = False,
    memory_policy: MemoryPolicyOption = None,
    home: HomeOption = None,
) -> int:
    """Talk to an agent. Ctrl-D or /exit ends the chat, Ctrl-C stops a running turn, /help lists commands."""
    from harness.messages.event import SHARED_KEY, check_key
    from workspaces.errors import Failure
    from workspaces.ids import new_id

    with opened(home) as harness:
        policy = parse_policy(memory_policy)
        record = harness.agents.get(harness.settings.default_agent if agent is None else agent)
        if shared and conversation is not None:
            raise typer.BadParameter("--shared and --conversation exclude each other")
        key = check_key(new_id("c") if conversation is None else conversation)
        talk = _Chat(harness, record, SHARED_KEY if shared else key, policy)
        talk.greet()
        while not talk.is_over and (text := talk.read_message()) is not None:
            try:
                talk.handle(text)
            except Failure as failure:  # this message failed; the next one may work
                show_failure(failure)
    return 0


@dataclass(slots=True)
class _Chat:
    harness: Harness
    agent: AgentRecord
    key: str
    policy: MemoryPolicy | None = None
    is_over: bool = False
    is_leaving: bool = False
    """True after Ctrl-C while nothing ran. The next Ctrl-C ends the chat."""
    told: set[str] = field(default_factory=set[str])
    """Lasting notes that were printed already."""
    undone: set[TurnId] = field(default_factory=set["TurnId"])

    def greet(self) -> None:
        console = notes()
        names = ", ".join(workspace.record.name for workspace in self._mounted().values())
        summary = f"workspaces: {names or 'none'} · conversation {self.key}"
        console.print(f"[bold]{escaped(self.agent.name)}[/] · {escaped(summary)}")
        if notice := self.harness.demo_notice(self.agent):
            console.print(
                f"[yellow]{escaped(notice)}.[/] It remembers what you tell it to remember."
            )
        confinement = self.harness.confinement()
        if not confinement.works:
            console.print(f"bash is off: {confinement.detail}", markup=False, style="yellow")
            console.print("  → `harness doctor` shows details", markup=False, style="dim")
        console.print("[dim]Ctrl-D or /exit ends the chat, /help lists the commands.[/]")

    def read_message(self) -> str | None:
        """Return the next line, or None at the end of the input.

        One Ctrl-C does not end the chat: the user may have meant to stop an answer that has just come.
        """
        try:
            return _read_line()
        except KeyboardInterrupt:
            if self.is_leaving or not sys.stdin.isatty():
                raise
        self.is_leaving = True
        notes().print("\n[dim](press Ctrl-C again to end)[/]")
        return ""

    def handle(self, text: str) -> None:
        self.is_leaving = self.is_leaving and not text
        command = _COMMAND.fullmatch(text.strip())
        if command is not None:
            self._run_command(command[1])
        elif text.strip():
            self._send(text)

    def _send(self, text: str) -> None:
        from harness.messages.event import SHARED_KEY

        printer = TurnPrinter()
        try:
            outcome = self.harness.run(
                text,
                agent=self.agent,
                conversation=self.key,
                is_shared=self.key == SHARED_KEY,
                memory_policy=self.policy,
                emit=printer.show,
            )
            outcome = ask_for_approvals(self.harness, outcome, printer.show)
        except KeyboardInterrupt:
            notes().print("\n[dim](stopped)[/]")
        else:
            printer.close(self.harness, outcome, self.told)

    def _run_command(self, name: str) -> None:
        """Run a command of the chat. The beginning of its name is enough."""
        matches = [one for one in _COMMANDS if one.startswith(name)] if name else []
        if len(matches) != 1:
            notes().print(f"there is no command /{name}; the commands are:", markup=False)
            self.help()
            return
        _COMMANDS[matches[0]](self)

    def help(self) -> None:
        """list the commands"""
        # a command with two names is listed under the first
        names = {command: name for name, command in reversed(_COMMANDS.items())}
        for command, name in reversed(names.items()):
            notes().print(f"  /{name:<8} {command.__doc__}", markup=False)

    def memory(self) -> None:
        """show the memory that is always in the agent's prompt"""
        from workspaces.errors import NotFound

        for name, workspace in self._mounted().items():
            notes().print(f"{name}/{MEMORY}", markup=False, style="bold")
            try:
                text = workspace.read(MEMORY).text
            except NotFound:
                text = ""
            print_styled([(text if text.endswith("\n") else f"{text}\n", "")] if text else [])

    def diff(self) -> None:
        """show the changes of the last answer that made any"""
        for workspace, change in self._changes():
            shown = workspace.history.show(change.revision)
            files = styled_files(shown.files, words=sys.stdout.isatty(), marked=not has_colours())
            print_styled([*styled_revision(shown.revision), *files])

    def undo(self) -> None:
        """undo these changes; again: those of the answer before"""
        for workspace, change in reversed(self._changes()):
            made = workspace.revert(change.revision, by=self.harness.rooms.principal.author("api"))
            result = f"undone by {made[:10]}" if made else "already undone"
            notes().print(f"{change.workspace} {change.revision[:10]}: {result}", markup=False)
        self.undone |= {turn for turn, _ in self._turns()[-1:]}

    def compact(self) -> None:
        """summarise the beginning, to free space for the agent"""
        conversation = self.harness.conversations.find(self.agent.id, self.key)
        if conversation is None:
            notes().print("this conversation has no messages yet")
        else:
            print_compaction(self.key, self.harness.compact(conversation, TurnPrinter().show))

    def new(self) -> None:
        """start a new conversation; this one is kept"""
        from workspaces.ids import new_id

        self.key, self.undone = new_id("c"), set()
        notes().print(f"conversation {self.key}", markup=False, style="dim")

    def exit(self) -> None:
        """end the chat, like /quit and Ctrl-D"""
        self.is_over = True

    def _changes(self) -> list[tuple[Workspace, ToolRevision]]:
        """Return the changes of the newest turn that was not undone, oldest first."""
        turns = self._turns()
        if not turns:
            notes().print("no answer in this conversation has changed a file")
            return []
        mounted = self._mounted()
        return [(mounted[one.workspace], one) for one in turns[-1][1] if one.workspace in mounted]

    def _turns(self) -> list[tuple[TurnId, list[ToolRevision]]]:
        """Return the turns of this session that made changes and were not undone."""
        conversations = self.harness.conversations
        conversation = conversations.find(self.agent.id, self.key)
        if conversation is None:
            return []
        turns: dict[TurnId, list[ToolRevision]] = {}
        transcript = conversations.transcript(conversation)
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


def _read_line() -> str | None:
    """Return the next line of input, or None at its end. Only a terminal gets a prompt."""
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
