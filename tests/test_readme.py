"""The README is executed: every block, in order, as someone would who follows it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```(\w+)\n(.*?)```(?:\n\n((?:    [^\n]*\n)+))?", re.DOTALL)


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


def test_every_shell_block_of_the_readme_works_in_order(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").write_text("")
    shell = [(source, shown) for language, source, shown in blocks("README.md") if language == "sh"]
    assert len(shell) >= 8
    script = "set -eu\n" + "\n".join(f"{source}\necho '=== end'" for source, _ in shell)
    ended = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    printed = ended.stdout.split("=== end\n")
    for (source, shown), output in zip(shell, printed, strict=False):
        assert shown in output, (
            f"after\n{source}\nthe README promises\n{shown}\nbut it printed\n{output}"
        )


def test_every_python_block_of_the_readme_works(
    environment: dict[str, str], tmp_path: Path
) -> None:
    for source in (source for language, source, _ in blocks("README.md") if language == "python"):
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


def test_the_hashes_of_the_data_page_are_right(environment: dict[str, str]) -> None:
    ((source, shown),) = [
        (source, shown)
        for language, source, shown in blocks("docs/data.md")
        if shown and language == "sh"
    ]
    ended = subprocess.run(["sh", "-c", source], env=environment, capture_output=True, text=True)
    assert ended.stdout == shown


def test_every_link_of_the_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
