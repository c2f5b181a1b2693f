"""The pages of a workspace without a browser: what they show, and what their forms change."""

from __future__ import annotations

import pytest

from tests.harness.web.pages.visitor import Visitor, visitor
from tests.harness.web.site import Site
from workspaces.workspace.workspace import Workspace


@pytest.fixture
def ada(site: Site) -> Visitor:
    return visitor(site)


@pytest.fixture
def notes(site: Site) -> Workspace:
    workspace = site.harness.workspaces.get("notes")
    by = site.harness.rooms.principal.author("api")
    workspace.write("notes/tea.md", "# Tea\n\n- black\n- green\n", by=by)
    return workspace


def test_a_file_shows_who_wrote_each_line(ada: Visitor, notes: Workspace) -> None:
    (notes.root / "notes" / "tea.md").write_text("# Tea\n\n- black\n- green\n- white\n")
    page = ada.get(f"/w/{notes.record.id}/files/notes/tea.md")
    assert page.count('class="by') == 4
    assert page.count("not in the history yet") == 1
    revision = notes.history.tip()
    assert revision is not None
    assert f"/history/{revision[:12]}" in page


def test_a_save_over_a_newer_version_shows_both_sides_and_loses_nothing(
    site: Site, ada: Visitor, notes: Workspace
) -> None:
    path = f"/w/{notes.record.id}/files/notes/tea.md"
    version = notes.read("notes/tea.md").version
    by = site.harness.rooms.principal.author("api")
    notes.write("notes/tea.md", "# Tea\n\n- theirs\n", by=by)
    answer = ada.post(path, do="save", version=version, text="# Tea\r\n\r\n- mine\r\n")
    assert answer.status_code == 409
    assert "<del>- theirs\n</del><ins>- mine\n</ins>" in answer.text
    assert notes.read("notes/tea.md").text == "# Tea\n\n- theirs\n"
    version = notes.read("notes/tea.md").version
    assert f'value="{version}"' in answer.text
    ada.done(path, do="save", version=version, text="# Tea\r\n\r\n- mine\r\n")
    assert notes.read("notes/tea.md").text == "# Tea\n\n- mine\n"


def test_a_new_file_a_delete_and_its_undo(ada: Visitor, notes: Workspace) -> None:
    base = f"/w/{notes.record.id}"
    assert ada.done(f"{base}/files", path="notes/new.md").endswith("/notes/new.md?edit=1")
    assert "<textarea" in ada.get(f"{base}/files/notes/new.md?edit=1")
    ada.done(f"{base}/files/notes/new.md", do="save", version="", text="new\r\n")
    assert (
        ada.post(f"{base}/files/notes/new.md", do="save", version="", text="x").status_code == 409
    )
    version = notes.read("notes/new.md").version
    address = ada.done(f"{base}/files/notes/new.md", do="delete", version=version)
    assert "notes/new.md" not in notes.files()
    undo = address.partition("undo=")[2]
    assert f'value="{undo}"' in ada.get(address)
    ada.done(f"{base}/revert", revision=undo)
    assert notes.read("notes/new.md").text == "new\n"


def test_uploads_replace_nothing_unless_asked(ada: Visitor, notes: Workspace) -> None:
    base = f"/w/{notes.record.id}/files"
    files = [("files", ("tea.md", b"other\n")), ("files", ("bytes.bin", b"\x00\xff\r\n"))]
    assert ada.post(base, files[1:] + files[:1], folder="notes").status_code == 409
    assert notes.read("notes/tea.md").text.startswith("# Tea")
    ada.done(base, files, folder="notes", replace="1")
    assert notes.read("notes/tea.md").data == b"other\n"
    assert notes.read("notes/bytes.bin").data == b"\x00\xff\r\n"
    assert "no text" in ada.get(f"{base}/notes/bytes.bin")
    raw = ada.client.get(f"{base}/notes/bytes.bin?download=file")
    assert raw.content == b"\x00\xff\r\n"
    assert raw.headers["content-disposition"] == "attachment; filename*=UTF-8''bytes.bin"
    assert "sandbox" in raw.headers["content-security-policy"]


def test_a_revision_is_shown_by_words_undone_and_restored(
    site: Site, ada: Visitor, notes: Workspace
) -> None:
    base, by = f"/w/{notes.record.id}", site.harness.rooms.principal.author("api")
    made = notes.write("notes/tea.md", "# Tea\n\n- black\n- green leaves\n", by=by).revision
    assert made is not None
    page = ada.get(f"{base}/history/{made[:12]}")
    assert "<ins> leaves</ins>" in page
    assert ada.done(f"{base}/revert", revision=made).endswith("said=reverted")
    assert notes.read("notes/tea.md").text == "# Tea\n\n- black\n- green\n"
    ada.done(f"{base}/restore", path="notes/tea.md", revision=made)
    assert "leaves" in notes.read("notes/tea.md").text
    ada.get(f"{base}/history/{'0' * 12}", 404)


def test_the_history_is_filtered_and_comes_in_pages(
    site: Site, ada: Visitor, notes: Workspace
) -> None:
    principal = site.harness.rooms.principal
    for number in range(90):
        notes.write("notes/many.md", f"line {number}\n", by=principal.author("api"))
    base = f"/w/{notes.record.id}/history"
    seen, address = 0, base
    while address:
        page = ada.get(address)
        seen += page.count('class="revision"')
        address = (
            page.partition('">Older</a>')[0].rpartition('href="')[2] if "Older</a>" in page else ""
        )
        address = address.replace("&amp;", "&")
    assert seen == len(notes.log(limit=1000))
    assert ada.get(f"{base}?path=notes/tea.md").count('class="revision"') == 1
    assert "No revision here matches" in ada.get(f"{base}?author=nobody")


@pytest.mark.parametrize(("keep", "left"), [("file", "mine\n"), ("copy", "theirs\n")])
def test_a_conflict_is_decided_by_choosing_a_side(
    ada: Visitor, notes: Workspace, keep: str, left: str
) -> None:
    copy = "notes/plan.conflict-0123456789ab.md"
    (notes.root / "notes" / "plan.md").write_text("mine\n")
    (notes.root / copy).write_text("theirs\n")
    base = f"/w/{notes.record.id}/problems"
    assert "<del>mine" in ada.get(base)
    fields = {
        "copy": copy,
        "keep": keep,
        "version": notes.read("notes/plan.md").version,
        "copy_version": notes.read(copy).version,
    }
    assert ada.post(base, **{**fields, "version": "0" * 64}).status_code == 409
    ada.done(base, **fields)
    assert notes.read("notes/plan.md").text == left
    assert not (notes.root / copy).exists()
    assert "No problems" in ada.get(base)


def test_recall_shows_the_line_and_why(ada: Visitor, notes: Workspace) -> None:
    base = f"/w/{notes.record.id}/recall"
    page = ada.get(f"{base}?q=green")
    assert "notes/tea.md:4" in page
    assert "found by" in page
    assert "is not a date" in ada.get(f"{base}?q=green&since=soon", 400)
    assert "No line is about this" in ada.get(f"{base}?q=zebra")
