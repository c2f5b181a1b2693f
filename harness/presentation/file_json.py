"""The JSON of files and histories, the same from the command line and over HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from workspaces.durability import HERE
from workspaces.history.diff import FileDifference, words
from workspaces.revision import Revision, RevisionId
from workspaces.tree.conflict_copy import is_conflict
from workspaces.workspace.remote_port import RemoteEntry

if TYPE_CHECKING:
    from harness.conversations.conversation import Conversation
    from harness.transcripts.session import Session
    from harness.transcripts.transcript import Transcript
    from workspaces.file import File
    from workspaces.history.blame import BlamedLine
    from workspaces.history.log import RevisionChanges
    from workspaces.problem import Problem
    from workspaces.tree.scan import Tree
    from workspaces.workspace.decided_files import FilesChange, Written

FileJson = dict[str, Any]


def listing(tree: Tree) -> list[FileJson]:
    """Return the files of a tree, without conflict copies: these are problems to be solved and no memory."""
    return entries_listing(
        RemoteEntry(path, state.size, state.version) for path, state in tree.files.items()
    )


def entries_listing(files: Iterable[RemoteEntry]) -> list[FileJson]:
    """Return the files that several servers share, as `listing` does."""
    return [
        {"path": file.path, "size": file.size, "version": file.version}
        for file in files
        if not is_conflict(file.path)
    ]


def file_document(file: File) -> FileJson:
    return {"path": file.path, "version": file.version, "content": file.text}


def written_document(written: Written) -> FileJson:
    return {
        "path": written.path,
        "version": written.version,
        "revision": written.revision,
        "durable": written.durable.as_json(),
    }


def reverted_document(reference: str, revision: RevisionId | None) -> FileJson:
    return {"reverted": reference, "revision": revision, "durable": HERE.as_json()}


def undone_document(reference: str, change: FilesChange) -> FileJson:
    """Return the files that an undo over an API changed, and those that it left."""
    return {
        **reverted_document(reference, change.revision),
        "files": [written.path for written in change.done],
        "left": [{"path": path, "message": str(failure)} for path, failure in change.left],
        "durable": change.durable.as_json(),
    }


def problem_document(problem: Problem) -> FileJson:
    return {"path": problem.path, "kind": problem.kind, "detail": problem.detail}


def conversation_document(conversation: Conversation, transcript: Transcript) -> FileJson:
    newest = transcript.newest()
    return {
        **conversation.as_json(),
        "updatedAt": newest.at if newest else conversation.created_at,
        "entries": newest.number if newest else 0,
    }


def session_document(session: Session) -> FileJson:
    return {"first": session.first, **session.as_json()}


def revision_document(revision: Revision) -> FileJson:
    return {
        "revision": revision.id,
        "at": revision.at,
        "author": revision.author,
        "subject": revision.subject,
        "trailers": dict(revision.trailers),
        "paths": list(revision.paths),
    }


def change_document(change: RevisionChanges, *, by_words: bool = False) -> FileJson:
    """Return a revision and the changes that it made."""
    files = [difference_document(file, by_words=by_words) for file in change.files]
    return {**revision_document(change.revision), "files": files}


def difference_document(file: FileDifference, *, by_words: bool = False) -> FileJson:
    document: FileJson = {
        "path": file.path,
        "kind": file.kind,
        "binary": file.binary,
        "added": file.added,
        "removed": file.removed,
        "patch": file.patch,
        **({"size": file.size} if file.size is not None else {}),
    }
    return {**document, "words": words(file.patch)} if by_words else document


def line_document(line: BlamedLine) -> FileJson:
    return {
        "line_number": line.number,
        "text": line.text,
        "revision": line.revision,
        "at": line.at,
        "author": line.author,
        "conversation": line.conversation,
        "turn": line.turn,
    }
