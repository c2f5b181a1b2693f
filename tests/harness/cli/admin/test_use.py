"""`harness use`, and the real programs where they are installed: `claude` and `codex` on the path."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cli.terminal import Terminal

REAL_S_MAX = 120.0


@pytest.fixture
def harness(tmp_path: Path) -> Terminal:
    (tmp_path / "user").mkdir()
    return Terminal(tmp_path / "home", {"HOME": str(tmp_path / "user")})


def test_use_shows_the_settings_change_applies_and_reverts_the_change(
    harness: Terminal, tmp_path: Path
) -> None:
    file = tmp_path / "user/.claude/settings.json"
    file.parent.mkdir()
    file.write_text('{\n  "model": "opus"\n}\n')
    asked = harness("use", "claude-code")
    asked.refused("Nothing was changed.", "Run again with --yes to apply it.")
    assert '+  "autoMemoryDirectory": "' in asked.out
    assert file.read_text() == '{\n  "model": "opus"\n}\n'
    root = harness("path", "notes").out.strip()
    told = harness("use", "claude-code", "--yes", "--json").done().json
    assert (told["applied"], told["file"]) == (True, str(file))
    settings = json.loads(file.read_text())
    assert settings["autoMemoryDirectory"] == root
    assert hooked(harness, settings, "SessionStart") == harness("prompt", "notes").out.strip()
    again = harness("use", "claude-code").done()
    assert "already has this setting" in again.stderr
    harness("use", "claude-code", "--undo", "--yes").done()
    assert file.read_text() == '{\n  "model": "opus"\n}\n'
    harness("use", "claude-code", "--undo", "--yes").refused("not_found")


def hooked(harness: Terminal, settings: Any, event: str, session: str | None = None) -> str | None:
    """Call the hook of an event as the programs do, and return what their model is told."""
    (entry,) = settings["hooks"][event]
    stated = {"hook_event_name": event, "prompt": "hello", "cwd": "/"}
    ended = subprocess.run(
        ["sh", "-c", entry["hooks"][0]["command"]],
        env=harness.environment(),
        input=json.dumps(stated | ({} if session is None else {"session_id": session})),
        capture_output=True,
        text=True,
        timeout=REAL_S_MAX,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    if not ended.stdout:
        return None
    answer = json.loads(ended.stdout)["hookSpecificOutput"]
    assert set(answer) == {"hookEventName", "additionalContext"}
    assert answer["hookEventName"] == event
    return answer["additionalContext"]


def test_what_one_program_writes_is_told_to_the_others_before_their_next_prompt(
    harness: Terminal, tmp_path: Path
) -> None:
    harness("use", "claude-code", "--yes").done()
    harness("use", "codex", "--yes").done()
    claude = json.loads((tmp_path / "user/.claude/settings.json").read_text())
    codex = tomllib.loads((tmp_path / "user/.codex/config.toml").read_text())
    root = Path(harness("path", "notes").done().out.strip())
    assert str(root) in str(hooked(harness, codex, "SessionStart", "a"))
    assert hooked(harness, claude, "SessionStart", "b")
    assert hooked(harness, codex, "UserPromptSubmit", "a") is None  # nothing is new
    with (root / "MEMORY.md").open("a") as memory:  # as Claude Code saves
        memory.write("- the staging server is called heron\n")
    told = hooked(harness, codex, "UserPromptSubmit", "a")
    assert told is not None and "+ - the staging server is called heron" in told
    assert "never an" in told and "<memory-change" in told
    assert hooked(harness, codex, "UserPromptSubmit", "a") is None
    harness("memory", "add", "tea", "Likes green tea.", "-w", "notes").done()
    told = hooked(harness, claude, "UserPromptSubmit", "b")
    assert told is not None and "green tea" in told and "heron" in told
    assert "green tea" in str(hooked(harness, codex, "UserPromptSubmit", "a"))
    assert "heron" in str(hooked(harness, codex, "UserPromptSubmit", "new"))  # it began elsewhere
    assert hooked(harness, codex, "UserPromptSubmit") is None  # nobody can tell what it knows


def test_a_project_can_use_a_workspace_of_its_own(harness: Terminal, tmp_path: Path) -> None:
    harness("workspace", "create", "shop").done()
    project = tmp_path / "shop"
    project.mkdir()
    made = harness("use", "claude-code", "-w", "shop", "--project", str(project), "--yes").done()
    settings = json.loads((project / ".claude/settings.local.json").read_text())
    assert settings["autoMemoryDirectory"] == harness("path", "shop").out.strip()
    assert f"trust {project}" in made.stderr
    harness("use", "codex", "--project", str(project), "--yes").refused("Codex")


def test_use_codex_adds_the_workspace_to_the_writable_roots(
    harness: Terminal, tmp_path: Path
) -> None:
    harness("use", "codex", "--yes", CODEX_HOME=str(tmp_path / "codex")).done()
    config = (tmp_path / "codex/config.toml").read_text()
    root = harness("path", "notes").out.strip()
    assert f'writable_roots = ["{root}"]' in config
    prompt = harness("prompt", "notes", "--where").done().out
    assert prompt.endswith(
        f"The files of the workspace `notes` lie in {root}: read and edit them there with your own tools.\n"
    )


# --- the real programs ------------------------------------------------------------------------------


class Provider(BaseHTTPRequestHandler):
    """Says hello to whoever asks a model something, in the words of either provider, and keeps what it
    was asked."""

    asked: list[str]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer([{"data": [], "models": []}], "application/json")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        self.asked.append(body)
        if "/responses" in self.path:
            self._answer(RESPONSES, "text/event-stream")
        elif self.path.startswith("/v1/messages?") or self.path == "/v1/messages":
            self._answer(MESSAGES, "text/event-stream")
        else:
            self._answer([{"input_tokens": 1}], "application/json")

    def _answer(self, events: list[dict[str, Any]], kind: str) -> None:
        told = [json.dumps(event) for event in events]
        if kind == "text/event-stream":
            pairs = zip(events, told, strict=True)
            told = [f"event: {event['type']}\ndata: {text}\n\n" for event, text in pairs]
        data = "".join(told).encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


_HELLO = {
    "type": "message",
    "role": "assistant",
    "id": "m",
    "content": [{"type": "output_text", "text": "hello"}],
}
_USAGE = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
RESPONSES: list[dict[str, Any]] = [
    {"type": "response.created", "response": {"id": "r"}},
    {"type": "response.output_item.done", "output_index": 0, "item": _HELLO},
    {"type": "response.completed", "response": {"id": "r", "output": [_HELLO], "usage": _USAGE}},
]
_MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "usage": _USAGE,
}
MESSAGES: list[dict[str, Any]] = [
    {"type": "message_start", "message": _MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]


@contextmanager
def provider() -> Generator[tuple[str, list[str]]]:
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Asked", (Provider,), {"asked": asked}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def remember(harness: Terminal) -> str:
    memory = "# Memory\n\n- the sea is made of velvet\n"
    harness("write", "notes", "MEMORY.md", stdin=memory.encode()).done()
    return harness("path", "notes").out.strip()


def run(harness: Terminal, *command: str, cwd: Path, **variables: str) -> None:
    ended = subprocess.run(
        command,
        cwd=cwd,
        env=harness.environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=REAL_S_MAX,
    )
    assert ended.returncode == 0, ended.stderr
    assert "hello" in ended.stdout


@pytest.mark.skipif(shutil.which("claude") is None, reason="needs claude on the path")
@pytest.mark.parametrize("where", ["user", "project"])
def test_claude_code_sends_the_workspace_memory_to_the_model(
    where: str, harness: Terminal, tmp_path: Path
) -> None:
    root = remember(harness)
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    scope = ["--project", str(project)] if where == "project" else []
    if scope:  # as a person answers Claude Code's question
        trusted = {"projects": {str(project): {"hasTrustDialogAccepted": True}}}
        (tmp_path / "user/.claude.json").write_text(json.dumps(trusted))
    harness("use", "claude-code", "--yes", *scope).done()
    with provider() as (url, asked):
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        key = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-test"}
        run(harness, "claude", "-p", "hi", cwd=project, **quiet, **key)
    (body,) = [body for body in asked if "velvet" in body]
    assert root in body  # it says where its memory lies
    assert "## Your workspaces" in body  # the hook's output
    assert body.count("the sea is made of velvet") == 2  # its own reading, and the prompt's


@pytest.mark.skipif(shutil.which("codex") is None, reason="needs codex on the path")
def test_codex_sends_the_workspace_memory_to_the_model(harness: Terminal, tmp_path: Path) -> None:
    root = remember(harness)
    codex = tmp_path / "codex"
    codex.mkdir()
    with provider() as (url, asked):
        (codex / "config.toml").write_text(
            f'model = "m"\nmodel_provider = "p"\n\n[model_providers.p]\nname = "p"\n'
            f'base_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "P_KEY"\n'
        )
        variables = {"CODEX_HOME": str(codex), "P_KEY": "x"}
        harness("use", "codex", "--yes", **variables).done()
        trusting = ("--dangerously-bypass-hook-trust", "--skip-git-repo-check")
        command = ("codex", "exec", "--strict-config", *trusting, "-s", "workspace-write", "hi")
        run(harness, *command, cwd=tmp_path, **variables)
    (body,) = [body for body in asked if "velvet" in body]
    assert f"lie in {root}" in body
    assert body.count(root) > body.count(f"lie in {root}")  # it may write there
