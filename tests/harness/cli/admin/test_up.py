"""`harness up` as a process: its address, its log, its signals and its exit codes."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import pytest

from harness import Harness
from harness.cli.admin import up
from tests.harness.cli.terminal import COMMAND, ROOT, Terminal
from tests.harness.messages_server import KEY, MessagesServer, says, text
from tests.harness.web.turning import said
from workspaces.coordination.writer_lock import WriterLock

WAIT_S_MAX = 120.0


@dataclass(frozen=True)
class Served:
    process: subprocess.Popen[str]
    line: str
    """What it printed first."""

    @property
    def url(self) -> str:
        return self.line.strip().partition("/?")[0]

    @property
    def token(self) -> str:
        (token,) = parse_qs(urlsplit(self.line.strip()).query)["token"]
        return token

    def ask(self, method: str, path: str, data: bytes | None = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.token}"}
        request = Request(self.url + path, data, headers, method=method)
        try:
            with urlopen(request, timeout=WAIT_S_MAX) as answer:
                return answer.status, json.load(answer)
        except HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    def ended(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=WAIT_S_MAX)
        return self.process.returncode, log


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path / "home", {})


@contextmanager
def served(terminal: Terminal, *arguments: str, **variables: str) -> Iterator[Served]:
    process = subprocess.Popen(
        [*COMMAND, "up", "--port", "0", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=terminal.environment(**variables),
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield Served(process, line)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def lines(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.splitlines()]


def test_up_prints_the_server_address_on_one_line_and_answers_requests(terminal: Terminal) -> None:
    with served(terminal, COLUMNS="20") as up:
        assert up.line.startswith("http://127.0.0.1:")
        assert len(up.token) >= 43
        assert up.ask("GET", "/healthz") == (200, {"status": "ok"})
        code, ready = up.ask("GET", "/readyz")
        assert (code, ready["status"], ready["records"]) == (200, "ready", "ok")
        assert {one["state"] for one in ready["residents"].values()} == {"running"}
        status, listed = up.ask("GET", "/accounts/me/workspaces")
        assert (status, [one["name"] for one in listed["workspaces"]]) == (200, ["notes"])
        code, log = up.ended()
    assert code == 0
    requests = [line for line in lines(log) if line["event"] == "request"]
    assert [line["route"] for line in requests] == [
        "/healthz",
        "/readyz",
        "/accounts/me/workspaces",
    ]
    assert {line["status"] for line in requests} == {200}
    assert requests[2]["account"].startswith("acct_")
    assert up.token not in log


def test_without_a_token_up_prints_its_bare_address_and_makes_none(terminal: Terminal) -> None:
    with served(terminal, "--no-token", "--log-level", "warning") as up:
        assert up.line.strip() == f"{up.url.rstrip('/')}/"
        assert not list((terminal.home / "start-tokens").glob("*"))
        with urlopen(f"{up.url.rstrip('/')}/healthz", timeout=WAIT_S_MAX) as answer:
            assert answer.status == 200
        code, log = up.ended()
    assert code == 0
    assert [line["event"] for line in lines(log)] == ["demo model"]


def test_plain_http_beyond_this_machine_is_a_warning(terminal: Terminal) -> None:
    with served(terminal, "--host", "0.0.0.0") as up:
        _, log = up.ended()
    (warned,) = [line for line in lines(log) if line["event"] == "plain HTTP"]
    assert (warned["level"], "proxy" in warned["remedy"]) == ("warning", True)


def test_the_admin_key_is_in_the_home_or_in_the_environment(terminal: Terminal) -> None:
    with served(terminal) as up:
        key = (terminal.home / "admin.key").read_text().strip()
        body = json.dumps({"name": "acme"}).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        with urlopen(Request(f"{up.url}/accounts", body, headers), timeout=WAIT_S_MAX) as answer:
            assert answer.status == 201
            assert json.load(answer)["key"].startswith("wh_")
    with served(terminal, HARNESS_ADMIN_KEY="another") as up:
        headers["Authorization"] = "Bearer another"
        body = json.dumps({"name": "bolt"}).encode()
        with urlopen(Request(f"{up.url}/accounts", body, headers), timeout=WAIT_S_MAX) as answer:
            assert answer.status == 201


def test_a_terminated_server_finishes_running_requests_and_revokes_its_start_token(
    terminal: Terminal,
) -> None:
    with Harness.open(terminal.home) as harness:
        workspace = harness.workspaces.get("notes")
        lock = WriterLock(harness.settings.home.lock(workspace.namespace))
        path = f"/v1/workspaces/{workspace.record.id}/files/late.md"
        with served(terminal) as up:
            address = urlsplit(up.url)
            with socket.create_connection((address.hostname, address.port), WAIT_S_MAX) as wire:
                with lock.hold("the test"):
                    head = (
                        f"PUT {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: 4\r\n"
                        f"Authorization: Bearer {up.token}\r\nExpect: 100-continue\r\n\r\n"
                    )
                    wire.sendall(head.encode())
                    assert wire.recv(65536).startswith(b"HTTP/1.1 100")  # it is being worked on
                    wire.sendall(b"late")
                    up.process.send_signal(signal.SIGTERM)
                    with pytest.raises(OSError):
                        while True:  # until it listens no more
                            socket.create_connection((address.hostname, address.port)).close()
                            time.sleep(0.01)
                assert wire.recv(65536).startswith(b"HTTP/1.1 201")
            _, log = up.process.communicate(timeout=WAIT_S_MAX)
            assert up.process.returncode == 0, log
        assert workspace.read("late.md").data == b"late"
        with served(terminal) as again:
            old = Served(again.process, f"{again.url}/?token={up.token}\n")
            assert old.ask("GET", "/accounts/me")[0] == 401
            assert again.ask("GET", "/accounts/me")[0] == 200


def test_a_server_terminated_while_starting_exits_cleanly(terminal: Terminal) -> None:
    """The signal comes while it starts."""
    with served(terminal) as up:
        code, log = up.ended()
    assert code == 0, log


def test_an_interrupted_server_exits_with_130_and_no_traceback(terminal: Terminal) -> None:
    with served(terminal) as up:
        assert up.ask("GET", "/healthz")[0] == 200
        code, log = up.ended(signal.SIGINT)
    assert code == 130
    assert "Traceback" not in log


def test_an_address_that_up_cannot_listen_on_is_an_error_with_the_reason(
    terminal: Terminal,
) -> None:
    with served(terminal) as up:
        taken = str(urlsplit(up.url).port)
        terminal("up", "--port", taken).refused("unavailable", taken, "another `harness up`")
    nowhere = terminal("up", "--host", "nonsense.invalid").refused("unavailable", "--host")
    assert "another" not in nowhere.stderr


def test_the_bound_host_and_the_public_url_are_accepted_hosts(terminal: Terminal) -> None:
    url = "https://memory.example.com"
    with served(terminal, "--host", "localhost", HARNESS_PUBLIC_URL=url) as up:
        assert up.line.startswith("http://localhost:")
        for host, status in (("memory.example.com", 200), ("evil.example.com", 421)):
            request = Request(f"{up.url}/healthz", headers={"Host": host})
            try:
                with urlopen(request, timeout=WAIT_S_MAX) as answer:
                    assert answer.status == status
            except HTTPError as refused:
                with refused:
                    assert refused.code == status
    up = terminal("up", "--port", "0", HARNESS_PUBLIC_URL="memory.example.com")
    up.refused("public_url", "https://")


def test_the_curl_commands_of_the_readme_work(terminal: Terminal) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    readme = (ROOT / "README.md").read_text()
    told = [
        line[4:] for line in readme.splitlines() if line.startswith(("    key=$(", "    curl "))
    ]
    assert len(told) == 2
    with served(terminal) as up:
        script = "\n".join(told).replace("http://127.0.0.1:8642", up.url)
        ended = terminal.shell(f'python() {{ "{sys.executable}" "$@"; }}; {script}').done()
    assert [one["name"] for one in ended.json["workspaces"]] == ["notes"]


def test_commands_other_than_up_do_not_import_the_web_framework(terminal: Terminal) -> None:
    code = "import sys, harness.cli.app; print('fastapi' in sys.modules, 'uvicorn' in sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code], env=terminal.environment(), capture_output=True, text=True
    )
    assert ended.stdout == "False False\n", ended.stderr


def test_a_manual_edit_while_the_server_runs_becomes_a_revision(terminal: Terminal) -> None:
    with served(terminal) as up:
        with Harness.open(terminal.home) as harness:
            notes = harness.workspaces.get("notes")
        before = notes.history.tip()
        (notes.root / "TASKS.md").write_text("- [ ] secret plans\n")
        assert up.process.stderr is not None
        for line in up.process.stderr:
            if json.loads(line)["event"] == "settled":
                break
        assert "secret" not in line
        revision = json.loads(line)["revision"]
        assert revision == notes.history.tip() != before
        assert notes.log(limit=1)[0].trailers["Source"] == "edit"
        assert up.ended()[0] == 0


def events(log: str, name: str) -> list[dict[str, Any]]:
    return [line for line in lines(log) if line["event"] == name]


def turn(up: Served, text: str, agent: str = "assistant") -> dict[str, Any]:
    """Say something and return the status of the event when it is over."""
    headers = {"Authorization": f"Bearer {up.token}", "Content-Type": "application/json"}
    body = json.dumps(said("e1", text)).encode()
    path = f"{up.url}/v1/agents/{agent}/turns"
    with urlopen(Request(path, body, headers), timeout=WAIT_S_MAX) as answer:
        accepted = json.load(answer)
    _, status = up.ask("GET", f"{accepted['statusUrl']}?wait=60")
    return status


def test_the_log_has_a_line_at_the_start_for_each_turn_and_at_the_end(terminal: Terminal) -> None:
    with served(terminal) as up:
        status = turn(up, "Remember that the boat is blue.")
        _, log = up.ended()
    (begun,), (told,), (ended,) = (events(log, name) for name in ("started", "turn", "ended"))
    assert set(begun) >= {"version", "home", "address", "model"}
    assert (begun["home"], begun["address"]) == (str(terminal.home), up.url)
    assert begun["model"] == "demo"
    assert (told["id"], told["status"], told["level"]) == (
        status["turnId"],
        "done",
        "info",
    )
    assert told["agent"].startswith("agent_")
    assert set(told["tokens"]) >= {"input", "output"}
    assert told["seconds"] > 0
    assert (ended["signal"], ended["address"]) == ("SIGTERM", up.url)
    assert "boat" not in log


def test_a_wrong_provider_key_is_a_warning_with_its_remedy_at_each_turn(
    terminal: Terminal, server: MessagesServer
) -> None:
    variables = {"ANTHROPIC_API_KEY": "sk-wrong", "ANTHROPIC_BASE_URL": server.url}
    with served(terminal, **variables) as up:
        assert up.ask("GET", "/readyz")[1]["model"] == "ok"
        assert turn(up, "Hello.")["status"] == "failed"
        _, log = up.ended()
    (told,) = events(log, "turn")
    assert (told["level"], told["status"], told["code"]) == ("warning", "failed", "key")
    assert "ANTHROPIC_API_KEY" in told["remedy"]
    assert "sk-wrong" not in log
    assert not events(log, "demo model")


def test_the_demo_model_is_announced_in_the_log_and_in_readyz(terminal: Terminal) -> None:
    with served(terminal) as up:
        code, ready = up.ask("GET", "/readyz")
        _, log = up.ended()
    assert (code, ready["status"], ready["model"]) == (200, "ready", "demo")
    (told,) = events(log, "demo model")
    assert told["level"] == "warning"
    assert "ANTHROPIC_API_KEY" in told["reason"]


def test_no_demo_refuses_to_start_without_a_provider_and_to_let_the_demo_model_answer(
    terminal: Terminal, server: MessagesServer
) -> None:
    terminal("up", "--no-demo", "--port", "0").refused("--no-demo", "ANTHROPIC_API_KEY")
    terminal("up", "--no-demo", "--port", "0", HARNESS_MODEL="demo").refused("--no-demo")
    terminal("agent", "create", "toy", "--model", "demo").done()
    server.answers(says(text("Hello.")))
    variables = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}
    with served(terminal, "--no-demo", **variables) as up:
        assert turn(up, "Hi.")["reply"] == "Hello."
        refused = turn(up, "Hi.", agent="toy")
    assert refused["status"] == "refused"
    assert "the demo model" in json.dumps(refused)


def test_a_home_whose_model_nothing_can_ask_does_not_start(terminal: Terminal) -> None:
    ended = terminal("up", "--port", "0", HARNESS_MODEL="clade-sonnet", ANTHROPIC_API_KEY=KEY)
    ended.refused("'clade-sonnet'", "claude-…", "demo")
    assert ended.out == ""


@pytest.mark.parametrize(
    ("is_terminal", "platform", "environment", "can"),
    [
        (True, "linux", {"DISPLAY": ":0"}, True),
        (True, "linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        (True, "darwin", {}, True),
        (True, "linux", {}, False),
        (True, "linux", {"DISPLAY": ""}, False),
        (False, "linux", {"DISPLAY": ":0"}, False),
    ],
)
def test_a_browser_is_opened_only_for_a_person_at_a_screen(
    is_terminal: bool, platform: str, environment: dict[str, str], can: bool
) -> None:
    assert up._can_show(is_terminal, platform, environment) is can
