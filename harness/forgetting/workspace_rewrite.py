"""Forget in one workspace: from tombstones to what `rewrite_workspace` asks for, and back to places."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.forgetting.found import Findings, FoundPlace
from harness.forgetting.redaction import TextFinder, all_places, redact_bytes
from harness.forgetting.workspace_search import LineCount, files_below, matching_lines
from workspaces.errors import Failure
from workspaces.forgetting.matcher import Matcher, readings, with_marks
from workspaces.history.git.rewrite import RedactedFile, Redaction
from workspaces.home.layout import Home
from workspaces.home.rewrite import RewrittenWorkspace, rewrite_workspace
from workspaces.home.workspaces import Workspaces
from workspaces.revision import Author
from workspaces.tree.port import LABEL_PREFIX
from workspaces.workspace.workspace import Workspace
from workspaces.workspace_record import WorkspaceRecord

_OBJECT_DIGITS = 38
_FACTS = "facts/"
_HASH = re.compile(r"(\b(?:hash|body|request)['\"]?: *['\"]?)[0-9a-f]{64}\b")
"""Hashes in the front matter of a fact with proof: of the words that it cites, and of its text."""


@dataclass(frozen=True, slots=True)
class WorkspaceForgetting:
    """The workspaces of an account, for forgetting in them."""

    workspaces: Workspaces
    home: Home
    by: Author

    def find(self, record: WorkspaceRecord, finder: TextFinder, findings: Findings) -> LineCount:
        """Add the places in a workspace, and count the lines of its files. Nothing is changed."""
        workspace = self.workspaces.open(record)
        redaction = Redaction(partial(_redacted, finder), finder.replaced)
        done = rewrite_workspace(workspace, redaction, by=self.by, label="", is_dry=True)
        _note(record, done, findings, finder)
        directory = self.home.history(workspace.namespace)
        if not done.found and _has_loose_object(directory, finder):
            findings.add(FoundPlace("history", workspace=record.name), 1)
        displaced = _displaced_phrases(self.home.staging(workspace.namespace), finder)
        findings.add(FoundPlace("temporary file", workspace=record.name), displaced)
        return _lines_of(workspace, finder)

    def rewrite(
        self,
        record: WorkspaceRecord,
        matcher: Matcher,
        label: str,
        findings: Findings,
        *,
        is_begun: bool,
    ) -> Sequence[str]:
        """Replace the phrases, and return the paths in which something was replaced. A workspace that does
        not hold them is left alone, unless an earlier call has begun it.

        Raises: Busy; Unavailable if programs keep saving the text, or S3 does not answer.
        """
        workspace = self.workspaces.open(record)
        redaction = Redaction(partial(_redacted, matcher), matcher.replaced)
        if not is_begun and not self._holds(workspace, matcher, redaction):
            return ()
        done = rewrite_workspace(workspace, redaction, by=self.by, label=label)
        _note(record, done, findings, matcher)
        return sorted(done.paths)

    def _holds(self, workspace: Workspace, matcher: Matcher, redaction: Redaction) -> bool:
        """Return True if a workspace has anything of the text, or of a history that was replaced."""
        looked = rewrite_workspace(workspace, redaction, by=self.by, label="", is_dry=True)
        directory = self.home.history(workspace.namespace)
        return (
            bool(looked.found)
            or workspace.history.is_replaced
            or _displaced_phrases(self.home.staging(workspace.namespace), matcher) > 0
            or _has_loose_object(directory, matcher)
        )


def _displaced_phrases(staging: Path, finder: TextFinder) -> int:
    """Return the number of phrases in files that were replaced and lie aside until they are looked at once
    more, and in their labels."""
    count = 0
    for file in files_below(staging):
        if file.name.startswith(LABEL_PREFIX):
            with suppress(FileNotFoundError):  # looked at meanwhile
                count += redact_bytes(file.read_bytes(), finder)[1]
            count += len(finder.find(file.name))
    return count


def _has_loose_object(directory: Path, finder: TextFinder) -> bool:
    """Return True if an object that no revision may reach holds a phrase."""
    for file in files_below(directory / "objects"):
        with suppress(OSError, zlib.error):
            if len(file.name) == _OBJECT_DIGITS:
                data = zlib.decompress(file.read_bytes()).partition(b"\0")[2]
                if all_places(data.decode(errors="replace"), finder):
                    return True
    return False


def _redacted(finder: TextFinder, path: str, data: bytes) -> RedactedFile | None:
    """Return a file without the phrases; None if it holds none. One that is no UTF-8 goes whole."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        is_held = any(finder.find(one) for one in readings(data))
        return RedactedFile(None, 1) if is_held else None
    places = all_places(text, finder)
    if not places:
        return None
    redacted = with_marks(text, places)
    if path.startswith(_FACTS):
        redacted = _HASH.sub(rf"\1redacted-{places[0].tombstone_id}", redacted)
    return RedactedFile(redacted.encode(), len(places))


def _note(
    record: WorkspaceRecord, done: RewrittenWorkspace, findings: Findings, finder: TextFinder
) -> None:
    for one in done.found:
        is_past = one.revision is not None
        place = FoundPlace(
            "history" if is_past else "file",
            workspace=record.name,
            path=finder.replaced(one.path) or None,
            revision=one.revision,
        )
        findings.add(place, one.count)
    for path in done.unread:
        name = f"{record.name}/{finder.replaced(path)}"
        why = "cannot be read as a file of a workspace, so nobody looked at what it holds"
        findings.cannot("file", f"{name} {why}: remove it if it holds the text")
    for name in done.not_erased:
        named = finder.replaced(name) or "anything"
        findings.cannot("s3", f"the bucket does not delete past versions of {record.name}/{named}")


def _lines_of(workspace: Workspace, finder: TextFinder) -> LineCount:
    lines = LineCount()
    for path in workspace.files():
        with suppress(Failure):
            lines += matching_lines(workspace.read(path).text, finder)
    return lines
