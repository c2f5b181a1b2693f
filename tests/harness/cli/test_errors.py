"""Errors of the command line: message, code, remedy, exit code, and one JSON document."""

from __future__ import annotations

from tests.harness.cli.terminal import Terminal

NO_TEXT = b"na\xffme"

HUGE = "x" * 120_000
"""Linux takes no argument over 128 KiB."""

UNKNOWN = [
    ("ls", "nix"),
    ("path", "nix"),
    ("cat", "nix", "a.md"),
    ("write", "nix", "a.md"),
    ("log", "nix"),
    ("prompt", "--agent", "nix"),
    ("workspace", "show", "nix"),
    ("agent", "set", "nix", "--name", "x"),
    ("agent", "rm", "nix"),
    ("agent", "create", "x", "-w", "nix"),
    ("agent", "create", "x", "--sandbox", "nix"),
    ("run", "hi", "--agent", "nix"),
    ("cat", "notes", "nix.md"),
    ("ls", "notes", "--revision", "0123456789"),
]


def test_unknown_names_are_not_found_with_a_remedy(born: Terminal) -> None:
    for ended in born.all(*[(*command, "--json") for command in UNKNOWN]):
        error = ended.refused("not_found").json["error"]
        assert error["code"] == "not_found"
        assert error["message"]
        assert error["remedy"].endswith(" lists them")
        assert error["remedy"] in ended.stderr
    for ended in born.all(("chat", "nix"), UNKNOWN[0], UNKNOWN[-1]):
        assert ended.refused("not_found").out == ""


INVALID = [
    ("cat", "notes", "../../etc/passwd"),
    ("cat", "notes", NO_TEXT),
    ("path", "notes", ""),
    ("write", "notes", "a\nb.md"),
    ("write", "notes", ".git/config"),
    ("write", "notes", HUGE),
    ("ls", "notes", "--revision", "--all"),
    ("ls", "notes", "--revision", "HEAD~1"),
    ("run", ""),
    ("run", "-"),
    ("run", NO_TEXT),
    ("run", "hi", "-c", ""),
    ("run", "hi", "-c", HUGE),
    ("run", "hi", "-c", NO_TEXT),
    ("agent", "create", HUGE),
    ("agent", "create", NO_TEXT),
    ("agent", "create", "x", "--system", HUGE),
    ("workspace", "create", "x", "--template", "defualt"),
    ("prompt", "notes", "--agent", "assistant"),
]


def test_an_empty_message_is_refused(born: Terminal) -> None:
    ended = born("run", "").refused("invalid")
    assert ended.stderr.endswith("error (invalid): the message is empty\n")


def test_a_text_that_is_no_revision_is_refused_with_a_remedy(born: Terminal) -> None:
    ended = born("show", "notes", "HEAD~1").refused("invalid", "'HEAD~1' is not the hexadecimal id")
    assert ended.stderr.endswith("\n  → `harness log` lists them\n")


def test_a_missing_local_file_is_not_looked_for_in_a_workspace(born: Terminal) -> None:
    ended = born("conversation", "import", "/nix.jsonl").refused("not_found")
    assert "there is no local file '/nix.jsonl'" in ended.stderr
    assert "harness ls" not in ended.stderr


def test_an_invalid_value_is_refused_with_its_field(born: Terminal) -> None:
    for ended in born.all(*[(*command, "--json") for command in INVALID]):
        error = ended.refused("invalid").json["error"]
        assert error["code"] == "invalid"
        assert error["field"]
        assert len(ended.stderr) < 1000, "a refusal repeats all of what it refuses"
    for ended in born.all(INVALID[0], INVALID[-1]):
        assert ended.refused("invalid").out == ""
    names = [
        workspace["name"] for workspace in born("workspace", "list", "--json").json["workspaces"]
    ]
    assert names == ["notes"]


def test_an_invalid_conversation_key_is_refused_before_the_chat_starts(born: Terminal) -> None:
    for key in ("acct:x", ""):
        assert born("chat", "-c", key, stdin=b"hello\n").refused("invalid").out == ""


def test_very_long_or_non_text_names_are_not_found(born: Terminal) -> None:
    for ended in born.all(
        ("ls", HUGE), ("ls", NO_TEXT), ("ls", NO_TEXT, "--json"), ("chat", NO_TEXT), ("ls", "")
    ):
        assert len(ended.refused("not_found").stderr) < 1000


MISUSED = [
    (),
    ("nix",),
    ("cat",),
    ("ls", "notes", "--bad"),
    ("log", "notes", "-n", "0"),
    ("log", "notes", "-n", "many"),
    ("workspace",),
    ("workspace", "create", "x", "--harness", "maybe"),
    ("run", "hi", "--on-busy", "maybe"),
    ("run",),
]


def test_wrong_usage_is_reported_on_standard_error(born: Terminal) -> None:
    for ended in born.all(*MISUSED):
        assert (ended.code, ended.out) == (2, ""), ended
        assert ended.stderr
        assert "Value error" not in ended.stderr


NO_PATH = [
    ("import", ""),
    ("export", "notes", "--to", ""),
    ("use", "codex", "--project", ""),
    ("bench", "recall", ""),
    ("--home", "", "status"),
    ("status", "--home", ""),
]


def test_an_empty_path_is_refused_instead_of_meaning_the_current_directory(born: Terminal) -> None:
    for ended in born.all(*[(*command, "--json") for command in NO_PATH]):
        assert ended.code == 2, ended
        assert "use `.` for the current directory" in ended.json["error"]["message"]
        assert "use `.` for the current directory" in ended.stderr


def test_wrong_usage_with_the_json_option_is_one_json_document(born: Terminal) -> None:
    for ended in born.all(("cat", "--json"), ("log", "notes", "-n", "0", "--json")):
        assert ended.code == 2
        assert ended.json["error"]["code"] == "usage"
        assert ended.json["error"]["message"]
