"""Control characters in model replies, files and names, at a terminal and in a pipe."""

from __future__ import annotations

import re
from pathlib import Path

from tests.harness.cli.screen import Screen
from tests.harness.cli.terminal import ROOT, Terminal
from tests.harness.messages_server import MessagesServer, says, text

STYLES = re.compile(r"\x1b\[[0-9;]*[mK]|\x1b\[\?2004[hl]")
"""What we and readline write ourselves."""

HOSTILE = "a\x1b]0;title\x07b\x9b31mc\x7fd\u202ee\u2066f\U000e0041g"
SPELLED = r"a\x1b]0;title\x07b\x9b31mc\x7fd\u202ee\u2066f\U000e0041g"


def shown(screen: Screen) -> str:
    """What came to the terminal, which must be steered by nobody else."""
    told = STYLES.sub("", screen.shown)
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", told)
    return told


def test_control_characters_in_a_reply_are_escaped_at_a_terminal(
    asking: Terminal, server: MessagesServer
) -> None:
    """Neither whole nor cut into pieces."""
    server.answers(says(text(HOSTILE, "\x1b", "[2J", "\x1b]8;;http://x", "\x1b\\end")))
    screen = Screen(asking, "run", "Hello.")
    assert screen.close() == 0
    told = shown(screen)
    assert SPELLED in told
    assert r"\x1b[2J\x1b]8;;http://x\x1b\end" in told


def test_control_characters_in_a_reply_are_unchanged_in_a_pipe(
    asking: Terminal, server: MessagesServer
) -> None:
    server.answers(says(text(HOSTILE)))
    assert asking("run", "Hello.").done().out == f"{HOSTILE}\n"


def test_control_characters_in_a_chat_reply_are_escaped(
    asking: Terminal, server: MessagesServer
) -> None:
    server.answers(says(text("\x1b", f"[8m{HOSTILE} end")))
    screen = Screen(asking, "chat")
    screen.wait_for("you")
    screen.type("Hello.\n")
    screen.wait_for(" end")
    assert SPELLED in shown(screen)
    screen.type("/exit\n")
    assert screen.close() == 0


def test_control_characters_in_a_file_are_escaped_only_at_a_terminal(born: Terminal) -> None:
    born("write", "notes", "a.md", stdin=HOSTILE.encode()).done()
    assert born("cat", "notes", "a.md").done().stdout == HOSTILE.encode()
    screen = Screen(born, "cat", "notes", "a.md")
    assert screen.close() == 0
    assert SPELLED in shown(screen)
    document = born("cat", "notes", "a.md", "--json").done()
    assert HOSTILE in document.json.values()
    assert not re.search("[\x7f-\x9f\u202a-\u2069]", document.out)


def test_a_record_name_with_an_invisible_character_is_refused(born: Terminal) -> None:
    for name in ("a\u202eb", "a\x9bb", "a\u2066b", "a\u200bb", "a\u200eb", "a\u2028b"):
        told = born("workspace", "create", name)
        told.refused("contains", f"U+{ord(name[1]):04X}")
        assert name[1] not in told.stderr
    born("workspace", "create", "a\u3164b").refused("without a shape", "U+3164")
    commands = [("agent", "create"), ("user", "create"), ("account", "create")]
    for ended in born.all(*((*command, "a\u202eb") for command in commands)):
        ended.refused("U+202E")
    born("key", "create", "--label", "a\u202eb").refused("U+202E")
    born("workspace", "create", "مى\u200cخواهم 👩\u200d💻").done()


def test_a_name_in_square_brackets_is_not_interpreted_as_markup(born: Terminal) -> None:
    name = "[link=http://x]click[/link]"
    born("agent", "create", name).done()
    screen = Screen(born, "chat", name, TERM="xterm-256color")
    screen.wait_for("workspaces:")
    assert name in screen.shown.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert "\x1b]8" not in screen.shown
    screen.type("/exit\n")
    assert screen.close() == 0


def test_the_command_line_prints_only_through_the_escaping_console() -> None:
    """One that writes past it would let a name or a file through."""
    past = re.compile(r"sys\.std(out|err)\.write\(|typer\.echo\(|click\.echo\(|(?<![\w.])print\(")
    found = {
        str(file.relative_to(ROOT)): past.findall(file.read_text())
        for file in sorted(Path(ROOT, "harness", "cli").rglob("*.py"))
        if file.name != "console.py" and past.search(file.read_text())
    }
    assert found == {}
