from __future__ import annotations

import re
import sqlite3
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.workspaces.conftest import AGENT
from workspaces.history.git.rewrite import RedactedFile, Redaction
from workspaces.home.layout import Home
from workspaces.home.rewrite import RewrittenWorkspace, rewrite_workspace
from workspaces.home.workspaces import Workspaces
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.workspace.workspace import Workspace

PERSON = Author("owner", "usr_1", "api")
SECRET = "card 4111 2222"
MARK = "[forgotten f_00000001]"


def redact(text: str) -> str:
    return re.sub(r"card[ -]4111[ -]2222", MARK, text, flags=re.IGNORECASE)


def redact_file(path: str, data: bytes) -> RedactedFile | None:
    del path
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return RedactedFile(None, 1) if SECRET.encode() in data else None
    new = redact(text)
    return None if new == text else RedactedFile(new.encode(), text.lower().count("4111"))


REDACTION = Redaction(redact_file, redact)


def held_bytes(root: Path) -> bytes:
    """Everything below a directory: the names, the raw bytes, what is compressed, every git object."""
    held: list[bytes] = []
    for path in root.rglob("*"):
        held.append(str(path.relative_to(root)).encode())
        if path.is_file():
            data = path.read_bytes()
            held.append(data)
            try:
                held.append(zlib.decompress(data))
            except zlib.error:
                continue
    show = ("cat-file", "--batch-all-objects", "--batch")
    held += (
        subprocess.run(["git", f"--git-dir={git}", *show], check=True, capture_output=True).stdout
        for git in root.rglob("*.git")
    )
    return b"\n".join(held)


def forget(workspace: Workspace) -> RewrittenWorkspace:
    return rewrite_workspace(workspace, REDACTION, by=PERSON, label="f_00000001")


def test_what_others_have_open_is_emptied_and_made_again(
    open_workspaces: Callable[[], Workspaces], home: Home
) -> None:
    ours = open_workspaces()
    workspace = ours.create("notes")
    workspace.write("a.md", f"one\nmy {SECRET} here\n", by=AGENT)
    others = open_workspaces().get("notes")
    for one in (workspace, others):
        assert {hit.path for hit in one.recall.find("4111", limit=5)} == {"a.md"}
        assert one.file_origins.origin_of(WorkspacePath("a.md")).author
        assert one.origins.times(WorkspacePath("a.md"))
    index = home.search(workspace.namespace)
    database = sqlite3.connect(index)
    database.execute("CREATE TABLE fact_file (path TEXT, value TEXT)")
    database.execute("INSERT INTO fact_file VALUES ('facts/a.md', ?)", (SECRET,))
    database.commit()
    number = index.stat().st_ino

    forget(workspace)
    assert index.stat().st_ino == number, "who has the file open would write to another"
    assert database.execute("SELECT count(*) FROM fact_file").fetchone() == (0,)
    assert SECRET.encode() not in held_bytes(home.root)
    for one in (workspace, others):
        assert not [hit for hit in one.recall.find("4111", limit=5) if "4111" in hit.content]
        assert "forgotten" in one.recall.find("forgotten", limit=5)[0].content
        origin = one.file_origins.origin_of(WorkspacePath("a.md"))
        assert origin.revision == workspace.log("a.md")[0].id
    database.close()


def test_a_text_goes_from_files_history_and_disk(workspace: Workspace, home: Home) -> None:
    workspace.write("a.md", "one\n", by=AGENT)
    first = workspace.history.tip()
    workspace.write("a.md", f"one\nmy {SECRET} here\nthree\n", by=AGENT)
    second = workspace.history.tip()
    workspace.write("a.md", "one\nnothing\nthree\nfour\n", by=AGENT)
    workspace.write("people/card-4111-2222.md", "a name alone\n", by=AGENT)
    workspace.write("binary.bin", b"\xff\xfe" + SECRET.encode(), by=AGENT)
    workspace.write("b.md", f"last line: CARD 4111\t2222\n{SECRET}\n", by=AGENT)
    (home.tree(workspace.namespace) / "c.md").write_text(f"by hand: {SECRET}")
    assert workspace.recall.find("4111") is not None
    assert SECRET.encode() in held_bytes(home.root)
    assert first is not None and second is not None

    dry = rewrite_workspace(workspace, REDACTION, by=PERSON, label="f_00000001", is_dry=True)
    assert SECRET.encode() in held_bytes(home.root)
    assert {(one.place, one.path) for one in dry.found} >= {
        ("file", "a.md"),
        ("file", "b.md"),
        ("file", "c.md"),
        ("file", "binary.bin"),
        ("path", "people/card-4111-2222.md"),
        ("message", ""),
    }
    forget(workspace)

    held = held_bytes(home.root)
    assert re.search(rb"card[ -]4111[ -]2222", held, re.IGNORECASE) is None
    tree = home.tree(workspace.namespace)
    assert (tree / "c.md").read_text() == f"by hand: {MARK}"
    assert (tree / f"people/{MARK}.md").read_text() == "a name alone\n"
    assert not (tree / "binary.bin").exists()
    assert workspace.read("a.md", view=second).text == f"one\nmy {MARK} here\nthree\n"
    assert workspace.read("a.md", view=second[:10]).text == f"one\nmy {MARK} here\nthree\n"
    assert workspace.history.holds(first)  # nothing before the first touched revision changes
    subprocess.run(
        ["git", f"--git-dir={home.history(workspace.namespace)}", "fsck", "--strict"], check=True
    )
