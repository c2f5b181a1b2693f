"""The history of a workspace: chapters of revisions, what each changed, and undoing it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from harness.presentation.history_view import TurnReasons, account_of, chapters
from harness.web.http.caller import Caller, CallerWorkspace
from harness.web.pages.parts.form import Form
from harness.web.pages.parts.rendering import led_to, shown
from harness.web.pages.parts.route import PageRoute
from workspaces.errors import WorkspaceBusy
from workspaces.history.diff import FileDifference, Span, words
from workspaces.history.history import HEAD, History
from workspaces.paths import WorkspacePath
from workspaces.revision import Revision
from workspaces.workspace.workspace import Workspace

router = APIRouter(route_class=PageRoute, include_in_schema=False, prefix="/w/{id}")

REVISIONS_MAX = 40
"""Revisions on one page."""

SEARCHED_MAX = 800
"""Revisions that one page looks through for an author or a conversation. A link goes on from there."""

READ_AT_ONCE = 200

DIFFERENCE_CHARACTERS_MAX = 12_000
"""Characters of one file's difference. `harness show` prints the rest."""

PAGE_CHARACTERS_MAX = 60_000
"""Characters of all differences on a page."""

WORDS_MAX = 6_000
"""Characters of a difference that is compared word by word; a longer one is shown line by line."""


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """The revisions that a reader asks for."""

    path: str
    author: str
    conversation: str

    def includes(self, revision: Revision) -> bool:
        stated = revision.trailers.get("Conversation", "")
        return (not self.author or self.author.casefold() in revision.author.casefold()) and (
            not self.conversation
            or self.conversation in stated.split(" ", 1)
            or self.conversation == stated
        )


@dataclass(frozen=True, slots=True)
class ShownDifference:
    """The difference of one file, as far as it is shown."""

    path: str
    kind: str
    binary: bool
    size: int | None
    added: int
    removed: int
    spans: Sequence[Span]
    is_cut: bool
    was_there: bool
    """True if the file existed before this revision, so that its former state can be restored."""


@router.get("/history", response_model=None)
def history_page(
    request: Request,
    caller: Caller,
    place: CallerWorkspace,
    path: str = "",
    author: str = "",
    conversation: str = "",
    start: str = HEAD,
) -> Response:
    _commit_edits(place)
    wanted = HistoryFilter(path.strip(), author.strip(), conversation.strip())
    found, following, is_whole = _find(place.history, wanted, start)
    reasons = TurnReasons(lambda: caller.conversations)
    return shown(
        request,
        "history.html",
        caller=caller,
        record=place.record,
        chapters=chapters(found),
        why={revision.id: reasons.why(revision) for revision in found},
        wanted=wanted,
        following=following,
        is_whole=is_whole,
        start=start,
        undo_path="",
    )


@router.get("/history/{revision}", response_model=None)
def revision_page(
    request: Request,
    caller: Caller,
    place: CallerWorkspace,
    revision: Annotated[str, Path(max_length=64)],
) -> Response:
    changes = place.history.show(revision)
    one = changes.revision
    conversation_id, _, key = one.trailers.get("Conversation", "").partition(" ")
    return shown(
        request,
        "revision.html",
        caller=caller,
        record=place.record,
        revision=one,
        source=account_of(one),
        conversation_id=conversation_id,
        conversation_key=key,
        agent_id=one.trailers.get("Agent", "").partition(" ")[0],
        why=TurnReasons(lambda: caller.conversations).why(one),
        files=list(_differences(changes.files)),
        before=one.parents[0] if one.parents else None,
    )


@router.post("/restore", response_model=None)
def restore(request: Request, caller: Caller, place: CallerWorkspace, form: Form) -> Response:
    """Restore a file as it was at a revision."""
    by = caller.principal.author("api")
    written = place.restore(form.fields.get("path", ""), form.text("revision"), by=by)
    if written.version is None:
        return led_to(request, f"/w/{place.record.id}/history", said="restored")
    said = "restored" if written.revision else "unchanged"
    path = f"/w/{place.record.id}/files/{written.path}"
    return led_to(request, path, said=said, undo=written.revision)


@router.post("/revert", response_model=None)
def revert(request: Request, caller: Caller, place: CallerWorkspace, form: Form) -> Response:
    """Undo the changes of one revision, and keep later ones."""
    made = place.revert(form.text("revision"), by=caller.principal.author("api"))
    back = f"/w/{place.record.id}/history"
    if made is None:
        return led_to(request, back, said="already")
    return led_to(request, f"{back}/{made[:12]}", said="reverted")


def _find(
    history: History, wanted: HistoryFilter, start: str
) -> tuple[list[Revision], str | None, bool]:
    """Return the revisions of a page, where the next page begins, and False if the search ended early."""
    found: list[Revision] = []
    for looked, revision in enumerate(_walk(history, wanted, start)):
        if len(found) == REVISIONS_MAX:
            return found, revision.id, True
        if looked == SEARCHED_MAX:
            return found, revision.id, False
        if wanted.includes(revision):
            found.append(revision)
    return found, None, True


def _walk(history: History, wanted: HistoryFilter, start: str) -> Iterator[Revision]:
    file = WorkspacePath(wanted.path) if wanted.path else None
    is_filtered = bool(wanted.author or wanted.conversation)
    at_once = READ_AT_ONCE if is_filtered else REVISIONS_MAX + 1
    view = start if start == HEAD else history.resolve(start) or HEAD
    is_first = True
    while True:
        page = history.log(path=file, start=view, limit=at_once)
        yield from page if is_first else page[1:]  # the first was the last of the page before
        if len(page) < at_once:
            return
        view, is_first = page[-1].id, False


def _differences(files: Sequence[FileDifference]) -> Iterator[ShownDifference]:
    room = PAGE_CHARACTERS_MAX
    for file in files:
        cut = min(DIFFERENCE_CHARACTERS_MAX, room)
        patch = file.patch[:cut]
        room -= len(patch)
        by_words = len(patch) <= WORDS_MAX
        spans = words(patch) if by_words else [_as_line(line) for line in patch.split("\n")]
        yield ShownDifference(
            file.path,
            file.kind,
            file.binary,
            file.size,
            added=file.added,
            removed=file.removed,
            spans=spans,
            is_cut=len(patch) < len(file.patch),
            was_there=file.kind != "added",
        )


def _as_line(line: str) -> Span:
    if line.startswith("+"):
        return "+", f"{line}\n"
    return ("-" if line.startswith("-") else " "), f"{line}\n"


def _commit_edits(place: Workspace) -> None:
    """Commit edits by hand, so that they are in the list. A busy workspace shows them later."""
    try:
        place.edits.commit()
    except WorkspaceBusy:
        return
