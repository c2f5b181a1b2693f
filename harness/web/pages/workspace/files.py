"""The files of a workspace: the tree, one file with who wrote each line, and editing it as text."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.web.http.caller import Caller, CallerWorkspace, address_of, application_of
from harness.web.pages.parts.form import Form, SentForm
from harness.web.pages.parts.markdown import rendered
from harness.web.pages.parts.rendering import led_to, link, shown, when
from harness.web.pages.parts.route import PageRoute
from harness.web.pages.workspace.file_tree import folder_of, is_folder
from harness.web.pages.workspace.line_notes import LineNotes, cut_lines
from harness.web.routes.files.files import FilePath
from workspaces.conditions import ABSENT, ANY, Wildcard
from workspaces.errors import Conflict, NotFound, Refused
from workspaces.file import File
from workspaces.history.diff import words_between
from workspaces.history.git.objects import blob_id
from workspaces.history.history import HEAD
from workspaces.ids import Version
from workspaces.paths import WorkspacePath
from workspaces.tree.conflict_copy import is_conflict
from workspaces.workspace.workspace import Workspace

router = APIRouter(route_class=PageRoute, include_in_schema=False, prefix="/w/{id}")

EDITED_CHARACTERS_MAX = 100_000
"""The longest file that the page edits. A text box with more is slow in every browser."""

FIRST_SHOWN = "MEMORY.md"
"""The file that is shown when none was chosen."""


@router.get("", response_model=None)
def workspace_page(request: Request, place: CallerWorkspace) -> Response:
    return led_to(request, f"/w/{place.record.id}/memory")


@router.get("/files", response_model=None)
def files_page(
    request: Request, caller: Caller, place: CallerWorkspace, after: str = ""
) -> Response:
    return _page(request, caller, place, "", after=after)


@router.get("/files/{path:path}", response_model=None)
def file_page(
    request: Request,
    caller: Caller,
    place: CallerWorkspace,
    path: FilePath,
    after: str = "",
    edit: str = "",
    line: int = 1,
    revision: str = HEAD,
    download: str = "",
) -> Response:
    if edit:
        return _editor(request, caller, place, path)
    if download:
        return _bytes(place, path, revision, as_file=download == "file")
    return _page(request, caller, place, path, after=after, line=max(1, line), view=revision)


@router.post("/files", response_model=None)
def add_files(request: Request, caller: Caller, place: CallerWorkspace, form: Form) -> Response:
    """Store uploaded files, or open the editor for a new one."""
    base = f"/w/{place.record.id}/files"
    if not form.files:
        path = WorkspacePath(form.text("path"))
        return led_to(request, f"{base}/{path}", edit="1")
    folder = form.text("folder").strip("/")
    by = caller.principal.author("api")
    expect: Wildcard = ANY if form.has("replace") else ABSENT
    for name, data in form.files:
        plain = name.replace("\\", "/").rpartition("/")[2]
        place.write(f"{folder}/{plain}" if folder else plain, data, by=by, expect=expect)
    return led_to(request, f"{base}/{folder}" if folder else base, said="uploaded")


@router.post("/files/{path:path}", response_model=None)
def change_file(
    request: Request, caller: Caller, place: CallerWorkspace, path: FilePath, form: Form
) -> Response:
    """Save or delete a file, if it is still the version that the form was made for."""
    base = f"/w/{place.record.id}/files"
    by = caller.principal.author("api")
    if form.text("do") == "delete":
        deleted = place.delete(path, by=by, expect=_expected(form))
        return led_to(request, base, said="deleted", undo=deleted.revision)
    text = form.lines("text")
    try:
        written = place.write(path, text, by=by, expect=_expected(form))
    except Conflict as conflict:
        if conflict.name == path:  # else another file is in the way of its name
            return _both_sides(request, caller, place, path, text)
        raise
    said = "saved" if written.revision else "unchanged"
    return led_to(request, f"{base}/{path}", said=said, undo=written.revision)


def _expected(form: SentForm) -> Version | Wildcard:
    version = form.text("version")
    return Version(version) if version else ABSENT


def _page(
    request: Request,
    caller: PrincipalServices,
    place: Workspace,
    path: str,
    *,
    after: str = "",
    line: int = 1,
    view: str = HEAD,
) -> Response:
    tree = place.tree.glance()
    sizes = {str(one): state.size for one, state in tree.files.items() if not is_conflict(one)}
    chosen = path or (FIRST_SHOWN if FIRST_SHOWN in sizes else "")
    is_of_folder = view == HEAD and is_folder(sizes, chosen)
    file = None if is_of_folder or not chosen else _find(place, chosen, view)
    if file is None and path and not is_of_folder:
        raise NotFound("file", path)
    state = tree.files.get(WorkspacePath(chosen)) if file is not None and view == HEAD else None
    recorded = place.history.find(place.history.tip(), WorkspacePath(chosen)) if state else None
    return shown(
        request,
        "files.html",
        caller=caller,
        record=place.record,
        tree=folder_of(sizes, path, after),
        path=path,
        chosen=chosen,
        count=len(sizes),
        bytes=tree.bytes,
        view=None if view == HEAD else view,
        file=None if file is None else _shown_file(request, place, file, line, view),
        is_pending=state is not None and file is not None and blob_id(file.data) != recorded,
        undo_path=f"/w/{place.record.id}/revert",
    )


def _find(place: Workspace, path: str, view: str) -> File | None:
    try:
        return place.read(path, view=view)
    except NotFound:
        return None


def _shown_file(
    request: Request, place: Workspace, file: File, line: int, view: str
) -> dict[str, object]:
    """Return the parts of a file that the page shows."""
    about: dict[str, object] = {"path": file.path, "size": len(file.data), "version": file.version}
    try:
        text = file.data.decode()
    except UnicodeDecodeError:
        return {**about, "kind": "binary", "editable": False}
    if "\x00" in text:
        return {**about, "kind": "binary", "editable": False}
    part, following, lines = cut_lines(text, line)
    notes = LineNotes(place, file.path, file.data, view)
    now = application_of(request).clock.now()
    history = address_of(request, f"/w/{place.record.id}/history")
    beside = notes.markup(history, partial(when, now=now), line - 1)
    is_markdown = file.path.lower().endswith((".md", ".markdown"))
    numbered = [] if is_markdown else list(enumerate(part.split("\n"), 1))
    return {
        **about,
        "kind": "markdown" if is_markdown else "text",
        "editable": view == HEAD and len(text) <= EDITED_CHARACTERS_MAX,
        "html": rendered(part, beside) if is_markdown else None,
        "lines": [(line - 1 + number, one, beside(number, number + 1)) for number, one in numbered],
        "first": line,
        "following": following,
        "all_lines": lines,
    }


def _editor(request: Request, caller: PrincipalServices, place: Workspace, path: str) -> Response:
    path = WorkspacePath(path)
    file = _find(place, path, HEAD)
    text = "" if file is None else file.data.decode(errors="replace")
    if file is not None and (len(text) > EDITED_CHARACTERS_MAX or text.encode() != file.data):
        rule = "is not a text, or is too long, for this page"
        raise Refused("path", path, rule, remedy="edit the file in its folder, or upload it again")
    return shown(
        request,
        "file-edit.html",
        caller=caller,
        record=place.record,
        path=path,
        text=text,
        version=file.version if file else "",
        theirs=None,
    )


def _both_sides(
    request: Request, caller: PrincipalServices, place: Workspace, path: str, mine: str
) -> Response:
    """Show the text that could not be saved beside the one that came first."""
    file = _find(place, path, HEAD)
    theirs = "" if file is None else file.data.decode(errors="replace")
    return shown(
        request,
        "file-edit.html",
        caller=caller,
        status=409,
        record=place.record,
        path=path,
        text=mine,
        version=file.version if file else "",
        theirs=theirs if file else None,
        is_conflict=True,
        spans=words_between(theirs, mine),
    )


def _bytes(place: Workspace, path: str, view: str, *, as_file: bool) -> Response:
    """Return the bytes of a file. A browser shows them as text, or stores them, and never runs them."""
    data = place.read(path, view=view).data
    if not as_file:
        return Response(data, headers={"Content-Type": "text/plain; charset=utf-8"})
    name = link(path.rpartition("/")[2])
    disposition = f"attachment; filename*=UTF-8''{name}"
    headers = {"Content-Type": "application/octet-stream", "Content-Disposition": disposition}
    return Response(data, headers=headers)
