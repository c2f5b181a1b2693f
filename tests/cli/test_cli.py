"""Every command as a process: results on standard output, messages on standard error, exit codes."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.terminal import COMMAND, COMMAND_S_MAX, Ended, Terminal, told
from tests.harness.messages_server import (
    KEY,
    Hold,
    MessagesServer,
    Refusal,
    breaks_off,
    says,
    text,
    tool_use,
)
from workspaces.ids import version_of

NO_TEXT = b"na\xffme"
HUGE = "x" * 120_000
"""Linux takes no argument over 128 KiB."""

REVISION = re.compile(r"[0-9a-f]{40}")


@pytest.fixture
def harness(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path / "home", {})


@pytest.fixture
def born(harness: Terminal) -> Terminal:
    """On a home that is there already, so that commands may run side by side."""
    harness("ls", "notes").done()
    return harness


@pytest.fixture
def asking(born: Terminal, server: MessagesServer) -> Terminal:
    """With the provider's model."""
    variables = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}
    return Terminal(born.home, variables)


@dataclass(frozen=True)
class Begun:
    """Commands that wait for long, begun before the first test so that nobody waits for them."""

    locked: Future[list[Ended]]
    unreachable: Future[Ended]


@pytest.fixture(scope="module", autouse=True)
def begun(tmp_path_factory: pytest.TempPathFactory) -> Generator[Begun]:
    place = tmp_path_factory.mktemp("begun")
    with ThreadPoolExecutor(2) as pool:
        locked = pool.submit(_while_locked, Terminal(place / "locked", {}))
        nobody = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
        unreachable = pool.submit(Terminal(place / "unreachable", nobody), "run", "Hi")
        yield Begun(locked, unreachable)


def _while_locked(harness: Terminal) -> list[Ended]:
    """What commands come to while another connection holds the lock, and one after it let go."""
    harness("ls", "notes").done()
    said = ("run", "remember that tea is green", "--json")
    with closing(sqlite3.connect(harness.home / "state.db", isolation_level=None)) as holder:
        holder.execute("begin immediate")
        held = harness.all(("cat", "notes", "MEMORY.md"), said, ("workspace", "create", "other"))
    return [*held, harness(*said)]


# --- what each command prints -----------------------------------------------------------------------


def test_what_was_remembered_is_a_file_a_revision_and_a_part_of_the_prompt(
    harness: Terminal,
) -> None:
    said = harness("run", "Remember that the sky is blue.").done()
    assert said.out == "I have written to MEMORY.md: the sky is blue.\n"
    assert said.stderr == ""
    cat, log, prompt, asked = harness.all(
        ("cat", "notes", "MEMORY.md"),
        ("log", "notes"),
        ("prompt",),
        ("run", "What colour is the sky?"),
    )
    assert cat.done().out.endswith("- the sky is blue\n")
    assert "the sky is blue" in log.done().out.splitlines()[1]
    assert "- the sky is blue" in prompt.done().out
    assert asked.done().out == "From my memory: the sky is blue.\n"
    assert [ended.stderr for ended in (cat, log, asked)] == [""] * 3
    assert "tokens with the tools" in prompt.stderr


def test_run_tells_its_outcome_as_json(harness: Terminal) -> None:
    told = harness("run", "remember that tea is green", "-c", "c1", "--json").done().json
    assert set(told) == {
        "outcome",
        "reply",
        "conversation",
        "turn",
        "usage",
        "revisions",
        "durable",
    }
    assert told["outcome"] == "done"
    assert set(told["usage"]) >= {"input", "output", "cacheRead", "cacheWrite"}
    assert not any(told["usage"].values())
    (change,) = told["revisions"]
    assert change["workspace"] == "notes"
    assert REVISION.fullmatch(change["revision"])


def test_run_reads_what_to_say_from_standard_input(harness: Terminal) -> None:
    said = harness("run", "-", stdin="remember that Zoë drinks 茶".encode())
    assert "Zoë drinks 茶" in said.done().out


def test_log_tells_revisions_as_json_newest_first(harness: Terminal) -> None:
    harness("run", "remember that tea is green", "-c", "c1").done()
    harness("write", "notes", "notes/a.md", stdin=b"a\n").done()
    log, one, none, limited = harness.all(
        ("log", "notes", "--json"),
        ("log", "notes", "MEMORY.md", "--json"),
        ("log", "notes", "nix.md", "--json"),
        ("log", "notes", "-n", "1", "--json"),
    )
    revisions = log.done().json
    assert [set(revision) for revision in revisions] == [
        {"revision", "at", "author", "subject", "trailers", "paths"}
    ] * 3
    assert [revision["author"] for revision in revisions] == ["owner", "assistant", "owner"]
    assert [revision["paths"] for revision in revisions] == [
        ["notes/a.md"],
        ["MEMORY.md"],
        ["MEMORY.md", "TASKS.md", "notes/README.md"],
    ]
    assert revisions[1]["trailers"]["Conversation"].endswith(" c1")
    assert all(REVISION.fullmatch(revision["revision"]) for revision in revisions)
    assert [r["at"] for r in revisions] == sorted((r["at"] for r in revisions), reverse=True)
    assert [r["revision"] for r in one.done().json] == [r["revision"] for r in revisions[1:]]
    assert [r["paths"] for r in one.json] == [["MEMORY.md"]] * 2
    assert none.done().json == []
    assert limited.done().json == revisions[:1]


def test_files_are_listed_found_and_printed(harness: Terminal) -> None:
    data = b"\x00\xff binary\r\n"
    harness("write", "notes", "notes/b.bin", stdin=data).done()
    ls, names, path, where, as_json, cat, shown = harness.all(
        ("ls", "notes"),
        ("ls", "notes", "--json"),
        ("path", "notes"),
        ("path", "notes", "notes/b.bin"),
        ("path", "notes", "--json"),
        ("cat", "notes", "notes/b.bin"),
        ("cat", "notes", "notes/b.bin", "--json"),
    )
    assert [line.split()[-1] for line in ls.done().out.splitlines()] == [
        "path",
        "MEMORY.md",
        "TASKS.md",
        "notes/README.md",
        "notes/b.bin",
    ]
    assert names.done().json[-1] == {
        "path": "notes/b.bin",
        "size": len(data),
        "version": version_of(data),
    }
    root = Path(path.done().out.removesuffix("\n"))
    assert (root / "notes/b.bin").read_bytes() == data
    assert where.done().out == f"{root}/notes/b.bin\n"
    assert as_json.done().json == {"path": str(root)}
    assert cat.done().stdout == data
    assert shown.done().json["version"] == version_of(data)


def test_a_file_is_printed_as_it_was(harness: Terminal) -> None:
    first = harness("write", "notes", "a.md", "--json", stdin=b"one").done().json
    harness("write", "notes", "a.md", stdin=b"two").done()
    then, short, now, listed, never = harness.all(
        ("cat", "notes", "a.md", "-r", first["revision"]),
        ("cat", "notes", "a.md", "-r", first["revision"][:8]),
        ("cat", "notes", "a.md"),
        ("ls", "notes", "-r", first["revision"], "--json"),
        ("cat", "notes", "a.md", "-r", "0" * 40),
    )
    assert (then.out, short.out, now.out) == ("one", "one", "two")
    assert {"path": "a.md"} in listed.done().json
    never.refused("not_found", "→ `harness log` lists them")


def test_write_tells_on_standard_error_unless_asked_for_json(harness: Terminal) -> None:
    plain = harness("write", "notes", "a.md", stdin=b"one").done()
    assert plain.out == ""
    assert re.fullmatch(r"a\.md: [0-9a-f]{12}\n", plain.stderr)
    again = harness("write", "notes", "a.md", "--json", stdin=b"one").done()
    assert again.json == {
        "path": "a.md",
        "version": version_of(b"one"),
        "revision": None,
        "durable": {"local": True, "files": False, "history": False},
    }


def test_a_write_over_what_was_not_seen_is_a_conflict(harness: Terminal) -> None:
    seen = harness("write", "notes", "a.md", "--json", stdin=b"one").done().json["version"]
    conditional = ("write", "notes", "a.md", "--if-version")
    harness(*conditional, seen, stdin=b"two").done()
    stale = harness(*conditional, seen, stdin=b"three").refused("conflict", "→ read it again")
    assert stale.out == ""
    as_json = harness(*conditional, seen, "--json", stdin=b"three").refused()
    assert as_json.json["error"]["code"] == "conflict"
    harness(*conditional, "none", stdin=b"three").refused("already_exists")
    assert harness("cat", "notes", "a.md").out == "two"


def test_agents_are_made_changed_and_deleted(born: Terminal) -> None:
    created = born("agent", "create", "scribe", "-w", "notes", "--model", "demo", "--json")
    record = created.done().json
    assert record["config"]["workspaces"][0]["name"] == "notes"
    patched = born("agent", "set", "scribe", "--system", "Be brief.", "--name", "poet", "--json")
    assert patched.done().json["config"]["system"] == "Be brief."
    listed, shown, plain, said = born.all(
        ("agent", "list", "--json"),
        ("agent", "show", record["id"], "--json"),
        ("agent", "list"),
        ("run", "remember that ink is black", "-a", "poet"),
    )
    assert [agent["name"] for agent in listed.done().json["agents"]] == ["assistant", "poet"]
    assert shown.done().json["name"] == "poet"
    assert plain.done().out.splitlines()[2].split() == ["poet", record["id"], "demo", "notes"]
    said.done()
    assert born("agent", "rm", "poet", "--json").done().json["deleted"] is True
    born("agent", "show", "poet").refused("not_found")


def test_an_agent_without_a_sandbox_can_only_read(born: Terminal) -> None:
    born("agent", "create", "reader", "-w", "notes", "--sandbox", "none").done()
    assert "no workspace is mounted writable" in born("run", "remember x", "-a", "reader").out


def test_workspaces_are_made_changed_and_shown(born: Terminal) -> None:
    made = born("workspace", "create", "journal", "--description", "Days.", "--json").done().json
    assert {"id", "name", "namespace", "path"} <= set(made)
    assert Path(made["path"], "MEMORY.md").is_file()
    born("workspace", "set", "journal", "--harness", "off", "--name", "diary").done()
    listed, plain, prompt = born.all(
        ("workspace", "list", "--json"),
        ("workspace", "show", "diary"),
        ("prompt", "diary", "--json"),
    )
    assert [w["name"] for w in listed.done().json["workspaces"]] == ["diary", "notes"]
    assert made["id"] in plain.done().out
    assert [part["source"] for part in prompt.done().json] == ["memory", "memory/diary", "date"]


def test_prompt_tells_its_parts(born: Terminal) -> None:
    parts = born("prompt", "--agent", "assistant", "--json").done().json
    assert [(part["source"], part["trusted"]) for part in parts] == [
        ("guidance", True),
        ("memory", True),
        ("memory/notes", False),
        ("date", True),
    ]
    assert all(part["characters"] == len(part["text"]) for part in parts)


def test_doctor_tells_what_works(born: Terminal) -> None:
    plain, as_json, without_git = (
        born("doctor"),
        born("doctor", "--json"),
        born("doctor", "--json", PATH="/nonexistent"),
    )
    assert "✓ git" in plain.done().out
    states = {finding["check"]: finding["state"] for finding in as_json.done().json}
    assert states.pop("model") == "note"
    sandbox = next(found for found in as_json.json if found["check"] == "sandbox")
    assert states.pop("sandbox") == "ok" or sandbox["remedy"]
    assert set(states.values()) == {"ok"}
    assert without_git.code == 1
    broken = [finding for finding in without_git.json if finding["state"] == "broken"]
    assert [(finding["check"], bool(finding["remedy"])) for finding in broken] == [("git", True)]


def test_help_and_version_go_to_standard_output(harness: Terminal) -> None:
    version, full, short, sub = harness.all(("--version",), ("--help",), ("-h",), ("run", "--help"))
    assert re.fullmatch(r"harness \d+\.\d+\.\d+\n", version.done().out)
    assert full.done().out == short.done().out
    assert "--conversation" in sub.done().out
    assert not harness.home.exists()


GROUPS = [
    "agent",
    "workspace",
    "sandbox",
    "account",
    "user",
    "key",
    "conversation",
    "jobs",
    "admin",
]


def test_no_line_of_a_list_of_commands_is_cut_short(harness: Terminal) -> None:
    listed = [("--help",), *((group, "--help") for group in [*GROUPS, "bench"])]
    for ended in harness.all(*listed, COLUMNS="80"):
        lines = ended.done().out.split("Commands:")[1].splitlines()
        assert [line for line in lines if line.endswith("...")] == []


# --- what is refused --------------------------------------------------------------------------------

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


def test_names_that_nothing_has_are_not_found(born: Terminal) -> None:
    for ended in born.all(*[(*command, "--json") for command in UNKNOWN]):
        error = ended.refused("not_found").json["error"]
        assert error["code"] == "not_found"
        assert error["message"]
        if "no file" not in error["message"]:
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


def test_what_breaks_a_rule_is_refused_with_the_field(born: Terminal) -> None:
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


def test_a_chat_is_refused_its_key_before_anything_is_said(born: Terminal) -> None:
    for key in ("acct:x", ""):
        assert born("chat", "-c", key, stdin=b"hello\n").refused("invalid").out == ""


def test_names_without_end_or_text_are_not_found(born: Terminal) -> None:
    for ended in born.all(
        ("ls", HUGE), ("ls", NO_TEXT), ("ls", NO_TEXT, "--json"), ("chat", NO_TEXT), ("ls", "")
    ):
        assert len(ended.refused("not_found").stderr) < 1000


MISUSED = [
    (),
    ("nix",),
    ("ls",),
    ("ls", "notes", "--bad"),
    ("log", "notes", "-n", "0"),
    ("log", "notes", "-n", "many"),
    ("workspace",),
    ("workspace", "create", "x", "--harness", "maybe"),
    ("run", "hi", "--on-busy", "maybe"),
    ("run",),
]


def test_wrong_usage_is_told_on_standard_error(born: Terminal) -> None:
    for ended in born.all(*MISUSED):
        assert (ended.code, ended.out) == (2, ""), ended
        assert ended.stderr
        assert "Value error" not in ended.stderr


def test_wrong_usage_is_one_json_document_too(born: Terminal) -> None:
    for ended in born.all(("ls", "--json"), ("log", "notes", "-n", "0", "--json")):
        assert ended.code == 2
        assert ended.json["error"]["code"] == "usage"
        assert ended.json["error"]["message"]


def test_input_that_is_no_text_cannot_be_said_but_can_be_kept(born: Terminal) -> None:
    data = bytes(range(256)) * 8
    run, chat, write = (
        born("run", "-", stdin=data),
        born("chat", stdin=data),
        born("write", "notes", "b.bin", stdin=data),
    )
    run.refused("standard input", "not UTF-8")
    chat.refused("standard input", "not UTF-8")
    write.done()
    assert born("cat", "notes", "b.bin").stdout == data


def test_a_nul_in_what_is_said_is_only_a_character(born: Terminal) -> None:
    assert born("run", "-", "--json", stdin=b"remember that a\0b").done().json["outcome"] == "done"


def test_input_without_end_is_refused(born: Terminal) -> None:
    ended = born.shell("harness write notes big.md < /dev/zero")
    ended.refused("over_limit")


def test_closed_input_is_not_empty_input(born: Terminal) -> None:
    born("write", "notes", "a.md", stdin=b"kept").done()
    born.shell("harness write notes a.md <&-").refused("standard input")
    born.shell("harness run - <&-").refused("standard input")
    born.shell("harness chat <&-").done()
    assert born("cat", "notes", "a.md").out == "kept"


# --- pipes, signals, locks, disks -------------------------------------------------------------------


def test_a_reader_that_has_gone_is_no_error(born: Terminal) -> None:
    commands = ["log notes", "log notes --json", "ls notes", "cat notes MEMORY.md", "path notes"]
    commands += ["prompt", "run hello", "doctor", "--help"]
    for command in commands:
        born.shell(f"harness {command} | head -c 0").done()
    assert born.shell("harness ls nix --json | head -c 0").code == 1


def test_output_that_cannot_be_written_is_told(born: Terminal) -> None:
    for command in ("log notes", "log notes --json", "cat notes MEMORY.md"):
        born.shell(f"harness {command} > /dev/full").refused("cannot write", "No space left")


def test_output_and_messages_may_be_closed(born: Terminal) -> None:
    assert born.shell("harness path notes >&-").code == 0
    assert born.shell("harness ls nix 2>&-").code == 1
    assert born.shell("harness run hello 2>&- | cat").out


def test_commands_that_are_first_at_the_same_instant_all_succeed(harness: Terminal) -> None:
    said = [("run", f"remember that {name} is here") for name in ("Ada", "Bob", "Cleo", "Dora")]
    for ended in harness.all(*said):
        ended.done()
    memory = harness("cat", "notes", "MEMORY.md").out
    assert all(f"- {name} is here\n" in memory for name in ("Ada", "Bob", "Cleo", "Dora"))
    assert len(harness("workspace", "list", "--json").json["workspaces"]) == 1


def test_an_interrupted_turn_ends_with_130_and_the_conversation_goes_on(
    asking: Terminal, server: MessagesServer
) -> None:
    hold = Hold()
    call = tool_use("toolu_1", "write", '{"path": "kept.md", "content": "kept"}')
    server.answers(says(call), breaks_off(text("Once"), ending=[hold]))
    with subprocess.Popen(
        [*COMMAND, "run", "Write and tell.", "-c", "c1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=asking.environment(),
    ) as run:
        assert hold.reached.wait(COMMAND_S_MAX)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=COMMAND_S_MAX)
    told(errors)
    assert run.returncode == 130
    server.answers(says(text("The end.")))
    assert asking("run", "Go on.", "-c", "c1").done().out == "The end.\n"
    assert asking("cat", "notes", "kept.md").out == "kept"


def test_a_locked_record_store_is_told_and_nothing_is_lost(begun: Begun) -> None:
    cat, run, created, after = begun.locked.result(COMMAND_S_MAX)
    cat.done()
    error = run.refused("unavailable", "locked by another process", "→ end the process").json
    assert error["error"]["code"] == "unavailable"
    created.refused("locked by another process")
    after.done()


def test_a_home_that_cannot_be_made_is_refused_with_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no directory")
    harness = Terminal(file / "home", {})
    commands = [("ls", "notes"), ("run", "hi"), ("workspace", "list"), ("chat",)]
    for ended in harness.all(*commands):
        ended.refused("unavailable", "Not a directory", "--home or HARNESS_HOME")
    doctor = harness("doctor", "--json")
    assert (doctor.code, doctor.json[-1]["check"], doctor.json[-1]["state"]) == (
        1,
        "home",
        "broken",
    )
    harness("--home", "~nobody-of-this-name", "ls", "notes").refused("--home or HARNESS_HOME")


def test_a_home_that_cannot_be_written_can_still_be_read(born: Terminal) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere: permissions keep nobody out")
    born.home.chmod(0o500)
    try:
        born("write", "notes", "a.md", stdin=b"x").refused("unavailable")
    finally:
        born.home.chmod(0o700)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Generator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)],
            capture_output=True,
            check=False,
        ).returncode
    )
    if not mounted:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_on_a_full_disk_what_was_written_stays_readable(tiny_disk: Path) -> None:
    harness = Terminal(tiny_disk / "home", {})
    harness("write", "notes", "a.md", stdin=b"before").done()
    file = Path(harness("path", "notes", "a.md").out.strip())
    with (tiny_disk / "filler").open("wb", buffering=0) as filler:
        try:
            while filler.write(b"x" * 4096):
                pass
        except OSError:
            pass
    writing, said, made = (
        harness("write", "notes", "a.md", "--json", stdin=b"after" * 5000),
        harness("run", "remember that tea is green"),
        harness("workspace", "create", "other"),
    )
    assert writing.refused("unavailable").json["error"]["code"] == "unavailable"
    said.refused("unavailable")
    made.refused("unavailable")
    assert file.read_text() == "before"
    (tiny_disk / "filler").unlink()
    harness("write", "notes", "a.md", stdin=b"after").done()
    harness("run", "remember that tea is green").done()
    assert harness("cat", "notes", "a.md").out == "after"


# --- settings ---------------------------------------------------------------------------------------

SETTINGS = [
    ("format: 2\n", ("newer than this version", "→ use the version")),
    (f"format: {'9' * 5000}\n", ("format", "must be a number")),
    ("modle: demo\n", ("'modle' is unknown", "→ did you mean 'model'?")),
    ("model: [demo]\n", ("model", "must be a text")),
    ('records: "sqlite:a\\0b"\n', ("records", "must be a text")),
    ("records: postgres:x\n", ("records", "sqlite:")),
    ("records: sqlite:/nonexistent/x.db\n", ("unavailable", "cannot be written")),
    ("- a list\n", ("`key: value`",)),
    ("[" * 5000, ("not valid",)),
    ("\ufffe\x07", ("harness.yaml",)),
]


def test_settings_that_make_no_sense_are_refused_by_name(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for number, (settings, words) in enumerate(SETTINGS):
        place = tmp_path / f"home{number}"
        place.mkdir()
        (place / "harness.yaml").write_text(settings)
        Terminal(place, {})("run", "hi").refused(*words)
        assert (place / "harness.yaml").read_text() == settings


def test_a_newer_home_is_not_touched(born: Terminal) -> None:
    (born.home / "harness.yaml").write_text("format: 2\n")
    before = (born.home / "state.db").read_bytes()
    as_json = born("run", "remember x", "--json").refused()
    assert as_json.json["error"]["field"].endswith("harness.yaml: format")
    assert born("doctor").code == 1
    assert (born.home / "state.db").read_bytes() == before


def test_a_damaged_record_store_is_told_by_name(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "state.db").write_bytes(bytes(range(256)) * 64)
    harness = Terminal(home, {})
    harness("ls", "notes").refused("state.db", "damaged", "→")
    doctor = harness("doctor", "--json")
    assert doctor.code == 1
    assert "records" in {f["check"] for f in doctor.json if f["state"] == "broken"}


# --- the provider -----------------------------------------------------------------------------------


def test_the_provider_s_model_answers_when_there_is_a_key(
    asking: Terminal, server: MessagesServer
) -> None:
    server.answers(says(text("Hel", "lo.")), says(text("Again.")))
    assert asking("run", "Hi", "--json").done().json["usage"]["input"] == 11
    chat = asking("chat", stdin=b"Hi\n").done()
    assert chat.out == "Again.\n"
    assert "offline" not in chat.stderr


def test_a_wrong_key_fails_with_a_remedy_and_nothing_is_lost(
    asking: Terminal, server: MessagesServer
) -> None:
    failed = asking("run", "My name is Ada.", "-c", "c1", ANTHROPIC_API_KEY="sk-wrong")
    failed.refused("error (key)", "→ set ANTHROPIC_API_KEY")
    assert failed.out == ""
    assert "sk-wrong" not in failed.stderr
    as_json = asking("run", "I am Ada.", "-c", "c1", "--json", ANTHROPIC_API_KEY="sk-wrong")
    told = as_json.json
    assert as_json.code == 1
    assert (told["outcome"], told["error"]["code"]) == ("failed", "key")
    assert told["error"]["remedy"]
    server.answers(says(text("Hello, Ada.")))
    asking("run", "Hi.", "-c", "c1").done()
    (message,) = server.requests[-1]["messages"]
    assert [block["text"] for block in message["content"]] == [
        "My name is Ada.",
        "I am Ada.",
        "Hi.",
    ]


def test_an_unreachable_provider_fails_with_a_remedy(begun: Begun) -> None:
    failed = begun.unreachable.result(COMMAND_S_MAX)
    failed.refused("error (unreachable)", "→ check the network and ANTHROPIC_BASE_URL")
    assert failed.out == ""


def test_an_address_that_is_none_fails_with_a_remedy(born: Terminal) -> None:
    failed = born("run", "Hi", ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL="nowhere")
    failed.refused("error (refused)", "'nowhere'", "ANTHROPIC_BASE_URL")


def test_an_unknown_model_fails_with_a_remedy(asking: Terminal, server: MessagesServer) -> None:
    server.answers(Refusal(404, "not_found_error", "model: nix"))
    asking("run", "Hi", HARNESS_MODEL="nix").refused("error (refused)", "model: nix", "→ check")
