"""`harness up --no-auth`: the rows by curl as their document shows it, and what stays closed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from tests.harness.cli.terminal import COMMAND, Terminal

WAIT_S_MAX = 120.0
CURL = """\
curl -sS -X POST http://localhost:$PORT/api/agents/$AGENT_ID/memories \\
-H 'Content-Type: application/json' $AUTHORIZATION \\
-d '{"key":"deploy-cmd","value":"Deploy with npm run deploy from repo root","pinned":true,"importance":80}'
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    home = tmp_path / "home"
    with Harness.open(home):
        pass
    return Terminal(home, {})


@contextmanager
def served(terminal: Terminal, *options: str) -> Iterator[tuple[int, list[str]]]:
    """A server, its port and its first lines."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*COMMAND, "up", "--port", str(port), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=terminal.environment(),
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        if "token=" not in lines[0]:
            lines.append(process.stdout.readline())
        yield port, lines
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_S_MAX)


def curled(*arguments: str) -> tuple[int, Any]:
    command = ["curl", "-sS", "-w", "\n%{http_code}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S_MAX)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)


pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")


def test_the_curl_of_the_rows_runs_without_a_key_and_with_one(terminal: Terminal) -> None:
    def run(port: int, authorization: str = "") -> Any:
        line = CURL.replace("$AUTHORIZATION", authorization)
        variables = {**os.environ, "PORT": str(port), "AGENT_ID": "assistant"}
        done = subprocess.run(
            ["bash", "-c", line], env=variables, capture_output=True, check=True, timeout=WAIT_S_MAX
        )
        return json.loads(done.stdout)

    with served(terminal, "--no-auth") as (port, lines):
        assert "No key is required" in lines[0]
        made = run(port)
        assert made["success"] is True
        assert (made["data"]["key"], made["data"]["pinned"]) == ("deploy-cmd", True)
        doctor = terminal("doctor")
        assert f"http://127.0.0.1:{port} requires no key (--no-auth)" in doctor.out
    assert "requires no key" not in terminal("doctor").out
    with served(terminal) as (port, _):
        assert run(port)["success"] is False
        with Harness.open(terminal.home) as harness:
            _, key = harness.rooms.keys.create()
        again = run(port, f"-H 'Authorization: Bearer {key}'")
        assert again["data"]["id"] == made["data"]["id"]


def test_without_keys_nothing_gives_one_out_and_no_foreign_page_gets_in(
    terminal: Terminal,
) -> None:
    with served(terminal, "--no-auth") as (port, _):
        base = f"http://127.0.0.1:{port}"
        data = ("-X", "POST", "-H", "Content-Type: application/json", "-d", "{}")
        for path in ("/accounts", "/accounts/me/keys", "/accounts/me/users/usr_1/keys", "/mcp"):
            assert curled(*data, base + path)[0] == 403, path
        assert curled(f"{base}/accounts/me/keys")[0] == 403
        assert curled(f"{base}/accounts/me")[0] == 200
        rows = f"{base}/api/agents/assistant/memories"
        assert curled(rows) == (200, {"success": True, "data": []})
        foreign = ("-H", "Origin: https://evil.example")
        assert curled(*data, *foreign, rows)[0] == 403
        assert curled("-H", "Host: evil.example", rows)[0] == 421
        assert curled("-H", "Authorization: Bearer wh_wrong", rows)[0] == 401


def test_no_auth_is_refused_on_an_address_that_others_reach(terminal: Terminal) -> None:
    done = terminal("up", "--no-auth", "--host", "0.0.0.0", "--port", "0")
    assert done.code == 1
    assert "is reachable from other machines" in done.stderr
