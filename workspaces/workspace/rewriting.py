"""Take a text out of a workspace: out of its files first, then out of its past.

`Workspace.rewriting` has these steps, and each may be repeated:

    redact_files(redaction, by=, label=)    the present files, as a revision like every other
    rewrite_history(redaction, by=)         every revision
    erase(by=)                              then nothing of the old history is on this disk

`find(redaction)` looks at files and past and changes nothing. `workspaces.home.rewrite` calls the steps for a
workspace, with its share of the bucket.

The first step is an ordinary change. It reaches other machines as every change does, and it meets their
changes as every change does. So the second step changes the past alone: the newest revision has the same
files before and after it, and no file is touched. A machine that has heard of neither can only bring its own
changes, on top.

A file is replaced by the verified exchange. If a program saves it at that moment, the save is merged, and the
file is looked at again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from workspaces.errors import Failure, Unavailable
from workspaces.history.git.rewrite import Found, Redaction, RewrittenHistory, redacted_path
from workspaces.history.history import History
from workspaces.paths import WorkspacePath
from workspaces.revision import Author, RevisionId
from workspaces.tree.port import LiveTree
from workspaces.tree.safe_replace import SECOND_LOOK_S, Replacement, SafeReplace
from workspaces.workspace.manual_edits import ManualEdits

FORGOT = "Forgot"
"""Trailer of the revision that took a text out of the present files: the label of the request."""

REVISIONS_SEARCHED_MAX = 200
"""Newest revisions among which the one of a request is looked for, after a crash."""

ROUNDS_MAX = 20
"""Times that the files are looked at again, because programs keep saving them."""


@dataclass(frozen=True, slots=True)
class RedactedFiles:
    """The present files after a text was taken out of them."""

    found: tuple[Found, ...]
    unread: tuple[str, ...]
    """Entries that cannot be read as files of a workspace, such as links. Nobody looked at what they hold."""
    revision: RevisionId | None
    """The revision that says so. None if nothing was changed because the caller only looked."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a look at the present files has found."""

    found: list[Found]
    unread: list[str]
    problems: frozenset[str]
    """Files that are a problem. Those that can be read were looked at."""
    replacements: list[Replacement]
    """They take the text out."""
    held_back: str | None
    """A file that is held back, and whose last kept version has the text."""


class RebuildableIndex(Protocol):
    def empty(self) -> None: ...


class Rewriting:
    """Taking texts out of one workspace."""

    def __init__(
        self,
        edits: ManualEdits,
        history: History,
        blobs: LiveTree,
        replacements: SafeReplace,
        *,
        indexes: Sequence[RebuildableIndex],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`indexes` were made of the files and the history. Each question makes them again."""
        self._edits = edits
        self._history = history
        self._blobs = blobs
        self._safe_replace = replacements
        self._indexes = indexes
        self._pause = pause

    def find(self, redaction: Redaction) -> tuple[RedactedFiles, RewrittenHistory | None]:
        """Look for the text as the first two steps do, without a change. Manual edits are not committed."""
        looked = self._look(redaction)
        files = RedactedFiles(tuple(looked.found), tuple(looked.unread), None)
        return files, self._history.rewrite(redaction, is_dry=True)

    def redact_files(self, redaction: Redaction, *, by: Author, label: str) -> RedactedFiles:
        """Take a text out of the present files, as a revision by `by`. The revision is made even if no file
        has the text: it tells the other machines. `label` names the request, and is no part of the text.

        Raises: Unavailable when programs keep saving the text."""
        by = by.saying(FORGOT, label)
        found: list[Found] = []
        self._let_go(by, redaction)  # what a dead process has replaced
        for _ in range(ROUNDS_MAX):
            with self._edits.hold(by) as held:
                self._edits.record_whole()
                looked = self._look(redaction)
                replacements = looked.replacements
                if not replacements and looked.held_back is not None:
                    raise _held_back(looked.held_back)
                if not replacements and self._is_told(label):
                    return RedactedFiles(tuple(found), tuple(looked.unread), self._history.tip())
                found += looked.found
                held.intend(by, [one.path for one in replacements])
                replaced = self._safe_replace.put(replacements)
                # a file that is a problem is not recorded here: the next round finds out if it is one still;
                # it may have become one after the scan, when somebody saved what is forbidden
                done = {
                    one.path: one.data
                    for one in replacements
                    if one.path in replaced.done
                    and one.path not in looked.problems
                    and self._edits.held_back.refusal(one.path, one.data) is None
                }
                self._history.record(done, by)
                held.fulfilled()
                self._safe_replace.restore(replaced.concurrent_saves.values())
            self._let_go(by, redaction)
        raise Unavailable(
            "files of the workspace", "other programs keep saving the text", remedy="end them"
        )

    def rewrite_history(self, redaction: Redaction, *, by: Author) -> RewrittenHistory | None:
        """Rewrite every revision. `erase` must follow. `by` holds the lock; it writes nothing.

        Return None, and change nothing, if the newest revision has the text: somebody has written it again,
        and `redact_files` must come first."""
        with self._edits.hold(by):
            before, rewritten = self._history.tip(), self._history.rewrite(redaction)
            if before is None or rewritten is None:
                return None
            if self._history.differences(before, rewritten.tip):
                return None
            self._history.replace(rewritten.tip, expect=before)
        return rewritten

    def erase(self, *, by: Author, also: Callable[[], None] = lambda: None) -> None:
        """Erase a history that was replaced from this disk, with what was made of it. `also` erases what lies
        elsewhere. If it fails, the note of the erasure stays."""
        with self._edits.hold(by):
            self._blobs.unstage()
            for index in self._indexes:  # the search last: it also erases what the others deleted
                index.empty()
            self._history.erase_replaced()
            also()
            self._history.end_erasure()

    def _let_go(self, by: Author, redaction: Redaction) -> None:
        """Look at the replaced files once more, after a pause in which a program that had them open can
        write. Then they are gone. One that can neither be merged nor go back stays, without the text."""
        if not self._blobs.labels():
            return
        self._pause(SECOND_LOOK_S)
        with self._edits.hold(by):
            labels = self._blobs.labels()
            paths = {path for label in labels if (path := self._safe_replace.path_of(label))}
            self._edits.record(paths)
            late = [path for one in labels if (path := self._safe_replace.check_late_writes(one))]
            self._edits.record(late)
            for label in self._blobs.labels():
                data = self._blobs.look(label)
                redacted = None if data is None else redaction.file(label, data)
                if redacted is not None:
                    self._blobs.prepare({label: redacted.data or b""})

    def _is_told(self, label: str) -> bool:
        """Return True if the revision of this request was made already."""
        recent = self._history.log(limit=REVISIONS_SEARCHED_MAX)
        return any(one.trailers.get(FORGOT) == label for one in recent)

    def _look(self, redaction: Redaction) -> _Looked:
        """Find the places where the present files have the text."""
        found: list[Found] = []
        unread: list[str] = []
        replacements: list[Replacement] = []
        tree = self._edits.tree.scan()
        problems = frozenset(problem.path for problem in tree.problems)
        taken: set[str] = set(tree.files) | problems
        for name in sorted(taken):
            try:
                path = WorkspacePath(name)
                blob = self._edits.blob(path)
            except Failure:
                unread.append(name)
                continue
            if blob is None:
                continue
            redacted = redaction.file(path, blob.data)
            data = blob.data if redacted is None else redacted.data
            if redacted is not None:
                found.append(Found("file", path, None, redacted.count))
            new_path = WorkspacePath(redacted_path(path, redaction.text, taken))
            if new_path == path:
                if redacted is not None:
                    replacements.append(Replacement(path, data, blob.data))
                continue
            found.append(Found("path", path, None, 1))
            taken.add(new_path)
            replacements.append(Replacement(path, None, blob.data))
            if data is not None:
                replacements.append(Replacement(new_path, data, None))
        held_back = (one.path for one in tree.problems if one.kind == "forbidden")
        last_kept = next((one for one in held_back if self._is_kept_with(redaction, one)), None)
        return _Looked(found, unread, problems, replacements, last_kept)

    def _is_kept_with(self, redaction: Redaction, name: str) -> bool:
        """Return True if the newest version of a file in the history has the text."""
        kept = self._history.find(self._history.tip(), WorkspacePath(name))
        return kept is not None and redaction.file(name, self._history.read(kept)) is not None


def _held_back(name: str) -> Unavailable:
    """Return the failure for a file whose last kept version cannot be replaced, because what is on the disk
    cannot be recorded."""
    reason = "it is held back because of another text, and its last kept version has this one"
    return Unavailable(f"file {name}", reason, remedy="take out of it what is forbidden")
