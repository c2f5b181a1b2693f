"""The modules that each command must not import, so that no command waits for another one's libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.cli.terminal import Terminal

HEAVY = {
    "git",
    "rich.table",
    "boto3",
    "botocore",
    "psycopg",
    "anthropic",
    "fastapi",
    "starlette",
    "mcp",
}
"""Libraries that take longer than all else in a command."""

SHORT = {
    "path": ("path", "notes"),
    "ls": ("ls", "notes"),
    "ls, all": ("ls",),
    "workspace list": ("workspace", "list"),
    "prompt --hook": ("prompt", "--hook", "plans"),
    "cat": ("cat", "notes", "MEMORY.md"),
    "log": ("log", "notes"),
    "write": ("write", "notes", "a.md"),
    "recall": ("recall", "memory"),
    "prompt": ("prompt",),
    "prompt of a workspace": ("prompt", "notes"),
    "run": ("run", "hello"),
    "status": ("status",),
}

WHOLE = {
    "harness.harness",
    "harness.bootstrap.composition",
    "harness.agents.record",
    "harness.conversations.conversation",
    "harness.models.port",
    "harness.sync.registry_sync",
    "jinja2",
    "yaml",
}
"""The rest of the harness, which a command on files does not need."""

VALIDATION = {
    "pydantic",
    "typer._adapters",
    "workspaces.validation",
    "workspaces.workspace_record",
    "workspaces.accounts.account",
}
"""What validates a record, or an argument. A stored record was validated when it was written, and a text of
the command line is a text."""

APART = {
    "harness.bootstrap.job_kinds",
    "harness.conversations.export",
    "harness.forgetting",
    "harness.jobs.runner",
    "harness.learning.learner",
    "harness.memorize",
    "harness.memory.decisions",
    "harness.models.anthropic",
    "harness.runs.chain",
    "harness.runs.runs",
    "harness.sync.background_sync",
    "harness.sync.record_deletion",
    "harness.sync.registry_sync",
    "harness.webhooks.delivery",
    "workspaces.history.git.quarantine",
    "workspaces.remote.bucket",
    "workspaces.search.index",
    "workspaces.sync.engine",
}
"""Parts that take part in no turn and in no prompt, unless they are asked for."""

TURN = {
    "harness.conversations.conversation",
    "harness.models.demo",
    "harness.models.metered",
    "harness.learning",
    "harness.runs",
    "harness.webhooks",
    "harness.conversations.event_queue",
    "harness.turns.dispatcher",
}
"""What begins and ends a turn. A prompt that is only shown needs none of it."""

AGENT = {
    "harness.turns",
    "harness.agents.catalog",
    "harness.models",
    "harness.sandboxes.bubblewrap",
}
"""What a prompt of one workspace needs nothing of: it is no agent's."""

FORBIDDEN = {
    "path": HEAVY | WHOLE | VALIDATION,
    "ls": HEAVY | WHOLE | VALIDATION,
    "ls, all": HEAVY | WHOLE | VALIDATION,
    "workspace list": HEAVY | WHOLE | VALIDATION,
    "prompt --hook": HEAVY | WHOLE | VALIDATION,
    "cat": HEAVY | WHOLE | VALIDATION,
    "log": HEAVY | WHOLE | VALIDATION,
    "write": HEAVY | WHOLE | VALIDATION,
    "recall": HEAVY | WHOLE | VALIDATION,
    "prompt": HEAVY | APART | TURN,
    "prompt of a workspace": HEAVY | APART | TURN | AGENT,
    "run": HEAVY | APART,
    "status": HEAVY | APART | {"harness.turns", "harness.tools.bash"},
}

CALL = json.dumps({"hook_event_name": "UserPromptSubmit", "session_id": "s1"})
"""What a program writes to its hook before a message."""

REPORT = """
import sys
from harness.cli.app import main
try:
    main()
finally:
    print("\\n".join(sys.modules), file=open(sys.argv[0], "w"))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    terminal = Terminal(tmp_path_factory.mktemp("imports") / "home", {})
    terminal("path", "notes").done()
    terminal("workspace", "create", "plans").done()
    terminal("prompt", "--hook", "plans", stdin=CALL.encode()).done()  # now nothing is new
    return terminal


def imported(home: Terminal, *arguments: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    told = Path(home.home.parent) / "modules"
    code = f"import sys; sys.argv[0] = {str(told)!r}\n{REPORT}"
    command = [sys.executable, "-c", code, "--home", str(home.home), *arguments]
    subprocess.run(
        command, input=CALL.encode(), capture_output=True, env=home.environment(), check=True
    )
    return set(told.read_text().split())


@pytest.mark.parametrize("name", SHORT)
def test_a_command_imports_no_library_that_it_does_not_need(home: Terminal, name: str) -> None:
    modules = imported(home, *SHORT[name])
    assert "harness.cli.app" in modules
    assert modules & FORBIDDEN[name] == set()


FEW = {
    "harness.memory.facts.fact_protection",
    "harness.models.demo",
    "harness.models.demo_reader",
    "harness.models.demo_wish",
    "harness.models.metered",
    "workspaces.history.combined_log",
}
"""Small modules, imported by the first request that needs them."""

SERVED = """
import sys
import harness.web.app
from harness import Harness
from harness.bootstrap.composition import background_tasks

with Harness.open(sys.argv[1]) as harness:
    harness.house.build_all(harness.rooms.principal)
    background_tasks(harness.house)
    built = set(sys.modules)
    harness.run("Remember that tea is green.")
    harness.preview()
    harness.run_jobs()
    print(*set(sys.modules) - built)
"""


def test_nothing_of_the_harness_is_imported_once_all_services_are_built(home: Terminal) -> None:
    command = [sys.executable, "-c", SERVED, str(home.home)]
    done = subprocess.run(
        command, capture_output=True, env=home.environment(), check=True, text=True
    )
    late = {one for one in done.stdout.split() if one.startswith(("harness.", "workspaces."))}
    assert late <= FEW


@pytest.mark.parametrize("name", ["path", "ls", "cat", "log"])
def test_a_command_on_files_imports_no_command_of_another_folder(home: Terminal, name: str) -> None:
    folders = {
        one.split(".")[2] for one in imported(home, *SHORT[name]) if one.startswith("harness.cli.")
    }
    assert "files" in folders
    assert not folders & {"admin", "talk"}
