"""README, tour and guides: every block is executed in order, as a reader would run the commands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.messages_server import KEY, MessagesServer, says, text, tool_use
from tests.harness.web.serving import home_at
from tests.servers import BUCKET, S3Server

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```(\w+)\n(.*?)```(?:\n\n((?:    [^\n]*\n)+))?", re.DOTALL)
GUIDES = sorted(f"docs/guides/{guide.name}" for guide in (ROOT / "docs/guides").glob("*.md"))
DOCUMENTS = ("README.md", "docs/tour.md", *GUIDES)
PAGES = (*DOCUMENTS, "docs/configuration.md", "docs/architecture.md", "docs/performance.md")
DOCUMENT_S_MAX = 300.0

FOUND = {
    ".claude/projects/-home-me-shop/memory/MEMORY.md": "- [Build](build.md): how\n",
    ".claude/projects/-home-me-shop/memory/build.md": "make all\n",
    "shop/CLAUDE.md": "# Shop\n\n- Run `make test` first.\n",
    "bakery/AGENTS.md": "# Shop\n\n- Run `make test` first.\n",
    "shop/.claude/rules/tests.md": "- Test first.\n",
    "vault/.obsidian/app.json": "{}",
    "vault/Tea.md": "green\n",
}
"""What a reader of the guides has already."""


def blocks(document: str) -> list[tuple[str, str, str]]:
    """Language, source, and the indented output that follows, if the document shows one."""
    found = BLOCK.findall((ROOT / document).read_text())
    return [
        (language, source, re.sub(r"^    ", "", shown, flags=re.MULTILINE))
        for language, source, shown in found
    ]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A new user's: an empty home directory, no key, `harness` and `python` on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    harness = programs / "harness"
    harness.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m harness.cli.app "$@"\n')
    harness.chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "LC_ALL": "C.UTF-8",
    }


def run(script: str, environment: dict[str, str], place: Path) -> tuple[int, str, str]:
    """Its exit code and what it printed; whatever it started ends with it."""
    with subprocess.Popen(
        ["sh", "-c", script],
        cwd=place,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            out, err = shell.communicate(timeout=DOCUMENT_S_MAX)
        except BaseException:
            os.killpg(shell.pid, signal.SIGKILL)
            raise
    return shell.returncode, out, err


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_shell_block_of_a_document_runs_in_order(
    document: str,
    environment: dict[str, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if f"s3://{BUCKET}/" in (ROOT / document).read_text():
        server: S3Server = request.getfixturevalue("seaweedfs")
        environment.update(server.environment())
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").write_text("")
    if document in GUIDES:
        environment["HARNESS_HOME"] = str(tmp_path / ".harness")
        for name, text in FOUND.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
    shell = [(source, shown) for language, source, shown in blocks(document) if language == "sh"]
    assert len(shell) >= 4
    script = "\n".join(f"{source}\necho '=== end'" for source, _ in shell)
    stop = "trap 'kill ${watching-} 2>/dev/null || true' EXIT"
    code, out, err = run(f"set -eu\n{stop}\n{script}", environment, tmp_path)
    assert code == 0, f"{out}\n{err}"
    assert "error (bug)" not in err
    printed = out.split("=== end\n")
    for (source, shown), output in zip(shell, printed, strict=False):
        assert shown in output, (
            f"after\n{source}\n{document} promises\n{shown}\nbut it printed\n{output}"
        )


def test_every_workspace_python_block_of_the_readme_runs(
    environment: dict[str, str], tmp_path: Path
) -> None:
    for source in python_blocks("harness.workspaces") * 2:  # a reader runs an example again
        environment["HARNESS_HOME"] = ""
        source = source.replace("~/.harness", str(tmp_path / "home"))
        ended = subprocess.run(
            [sys.executable, "-c", source],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr
        assert "- I like short answers" in ended.stdout


def test_the_readmes_agent_loop_calls_the_provider_and_writes_a_note(
    environment: dict[str, str], tmp_path: Path, server: MessagesServer
) -> None:
    note = {"path": "notes/tea.md", "content": "# Tea\n\n- likes it green\n"}
    server.answers(
        says(text("Let me note that."), tool_use("t1", "write", json.dumps(note))),
        says(text("I have noted it.")),
    )
    (source,) = python_blocks("anthropic.Anthropic")
    home = tmp_path / "home"
    ended = subprocess.run(
        [sys.executable, "-c", source.replace("~/.harness", str(home))],
        cwd=tmp_path,
        env={**environment, "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (0, "I have noted it.\n"), ended.stderr
    (kept,) = home.glob("workspaces/*/notes/tea.md")
    assert kept.read_text() == note["content"]


def client_block(document: str, environment: dict[str, str], tmp_path: Path) -> list[str]:
    """Run the client's example of a document against a server; return the lines that it printed."""
    (source,) = python_blocks("harness.client", document)
    home = home_at(tmp_path / "home")
    with home.served() as server:
        source = source.replace("http://127.0.0.1:8642", server.url).replace("wh_…", server.key)
        ended = subprocess.run(
            [sys.executable, "-c", source],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_the_readmes_client_example_asks_a_server(
    environment: dict[str, str], tmp_path: Path
) -> None:
    reply, *file = client_block("README.md", environment, tmp_path)
    assert "green tea" in reply
    assert "- I like green tea" in file


def test_the_tours_client_example_runs_a_client_tool(
    environment: dict[str, str], tmp_path: Path
) -> None:
    first, *entries = client_block("docs/tour.md", environment, tmp_path)
    assert "green tea" in first
    assert entries[:2] == ["1 user", "2 assistant"]
    assert "- I like green tea" in entries
    assert "green tea" in entries[-1]


def test_every_python_block_is_covered_by_a_test() -> None:
    known = ("harness.workspaces", "anthropic.Anthropic", "harness.client")
    assert sorted(source for one in known for source in python_blocks(one)) == sorted(
        python_blocks("")
    )
    assert python_blocks("", "docs/tour.md") == python_blocks("harness.client", "docs/tour.md")


def python_blocks(known_by: str, document: str = "README.md") -> list[str]:
    found = [source for language, source, _ in blocks(document) if language == "python"]
    return [source for source in found if known_by in source]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_example_parses_json_with_a_python_one_liner(document: str) -> None:
    assert "python -c" not in (ROOT / document).read_text()


def test_the_hashes_in_docs_data_md_are_correct(environment: dict[str, str]) -> None:
    ((source, shown),) = [
        (source, shown)
        for language, source, shown in blocks("docs/data.md")
        if shown and language == "sh"
    ]
    ended = subprocess.run(["sh", "-c", source], env=environment, capture_output=True, text=True)
    assert ended.stdout == shown


@pytest.mark.parametrize("document", PAGES)
def test_every_relative_link_of_a_document_exists(document: str) -> None:
    file = ROOT / document
    links = re.findall(r"\]\(([^)#]+)\)", file.read_text())
    assert links or document not in ("README.md", "docs/configuration.md")
    assert [link for link in links if not (file.parent / link).exists()] == []
