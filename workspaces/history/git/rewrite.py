"""Rewrite a history without a text: every version of every file, every name of a file, every message.

    git rev-list --objects  →  git cat-file --batch  →  new blobs, trees and commits  →  a new newest revision

One pass reads each object that the newest revision reaches once, parents before children. A `Redaction`
says what becomes of a file and of a message. What it leaves alone keeps its id. So the revisions before the
first touched one stay what they are. Every revision from that one on gets a new id, because it names its
parents.

A rewritten revision keeps its stamp, its dates and its place. It says which revision it was in the trailer
`Was`, so that an old id can be looked up (`renamed`). The same history and the same redaction give the same
ids on every machine.

The branch is not moved here, and nothing is removed: `erase_unreachable` (`repack`) does that later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Literal, NamedTuple

from workspaces.errors import Unavailable
from workspaces.history.git.objects import (
    TREE_MODE,
    GitObjects,
    ObjectBatch,
    ObjectId,
    object_id,
)
from workspaces.history.git.program import open_git_session
from workspaces.history.git.tree_edit import replace_files
from workspaces.paths import WorkspacePath, broken_rule
from workspaces.revision import SUBJECT_CHARACTERS_MAX, RevisionId, quote_of, shortened

WAS = "Was"
"""Trailer of a rewritten revision: the ids that it had before, the newest last."""

SECONDS_MAX = 3600.0
"""Seconds after which git is killed. A hundred thousand revisions take some minutes."""

ID_DIGITS = 40
"""Digits of a revision's id."""

BATCH_BYTES_MAX = 32 * 2**20
"""Bytes of new objects that are held in memory before they become a pack."""

_ENTRY = re.compile(rb"([0-7]++) ([^\0]++)\0(.{20})|.+", re.DOTALL)
"""An entry of a tree; or the rest of a damaged one, without groups."""
_TREE, _LINKED_COMMIT = TREE_MODE.encode(), b"160000"
_KEPT_HEADERS = (b"author", b"committer", b"encoding")
"""Headers that a rewritten commit keeps, beside its tree and parents. A signature would be invalid."""
_KEPT_TRAILERS = frozenset({"At", "Source", WAS})
"""Trailers that only this program writes, and that hold no text of anybody."""


@dataclass(frozen=True, slots=True)
class RedactedFile:
    """A file after the text was taken out of it."""

    data: bytes | None
    """The new content. None: the file goes whole."""
    count: int
    """Places at which the text was found."""


def _same(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Redaction:
    """What is taken out of files, names and messages. Both functions are deterministic."""

    file: Callable[[str, bytes], RedactedFile | None]
    """Returns the new state of a file, or None if nothing in it has to go. Lines keep their numbers."""
    text: Callable[[str], str] = _same
    """Returns a subject, a trailer's value, an author's name or a path without the text."""


@dataclass(frozen=True, slots=True)
class Found:
    """One place where the text was found."""

    place: Literal["file", "path", "message"]
    path: str
    """The path of the file. Empty for a message."""
    revision: RevisionId | None
    """The revision that brought it, by its old id. None for the present file."""
    count: int


@dataclass(frozen=True, slots=True)
class RewrittenHistory:
    tip: RevisionId
    """The newest revision afterwards. It is the same as before if nothing was found."""
    found: tuple[Found, ...]
    renamed: Mapping[RevisionId, RevisionId]
    """The revisions that have another id now: old id → new id."""
    paths: frozenset[str]
    """Every path that had a version which was rewritten, by its old name and by its new one."""


class _Moved(NamedTuple):
    path: str
    blob: ObjectId


class _Redacted(NamedTuple):
    """A tree after its rewriting."""

    tree: ObjectId | None
    """None if nothing is left in it."""
    moved: tuple[_Moved, ...] = ()
    """The files that get another path."""


@dataclass(slots=True)
class _Read:
    """The objects that one revision brought, as they are read."""

    revision: RevisionId | None = None
    commit: bytes = b""
    trees: dict[ObjectId, bytes] = field(default_factory=dict[ObjectId, bytes])
    quotes: dict[str, str] = field(default_factory=dict[str, str])
    """The beginnings of lines that were changed, as a subject quotes them: old → new."""


def rewrite_history(
    git_directory: Path, tip: RevisionId, redaction: Redaction, *, is_dry: bool = False
) -> RewrittenHistory:
    """Write the objects of a history without the text, and return its newest revision. If `is_dry`, only
    look.

    Raises: Unavailable when git fails or the disk cannot be written."""
    rewriter = _Rewriter(git_directory, redaction, is_dry=is_dry)
    for kind, name, path, data in _read_objects(git_directory, tip):
        rewriter.take(kind, name, path, data)
    return rewriter.finish(tip)


class _Rewriter:
    def __init__(self, git_directory: Path, redaction: Redaction, *, is_dry: bool) -> None:
        self._directory = git_directory / "objects"
        self._objects = GitObjects(self._directory)
        self._redaction = redaction
        self._is_dry = is_dry
        self._batch = ObjectBatch(self._directory)
        self._batch_bytes = 0
        self._read = _Read()
        self._blobs: dict[tuple[str, ObjectId], ObjectId | None] = {}
        """The new id of each version of a file; None if it goes whole."""
        self._trees: dict[tuple[str, ObjectId], _Redacted] = {}
        self._paths: dict[str, str] = {}
        """The new path of each file."""
        self._taken: set[str] = set()
        self._renamed: dict[RevisionId, RevisionId] = {}
        self._found: list[Found] = []
        self._touched: set[str] = set()

    def take(self, kind: str, name: ObjectId, path: str, data: bytes) -> None:
        """Take the next object. A revision comes before what it brought."""
        match kind:
            case "commit":
                self._finish_revision()
                self._read = _Read(RevisionId(name), data)
            case "tree":
                self._read.trees[name] = data
            case _:
                self._redact_blob(path, name, data)

    def finish(self, tip: RevisionId) -> RewrittenHistory:
        self._finish_revision()
        if not self._is_dry:
            self._batch.sync()
        return RewrittenHistory(
            self._renamed.get(tip, tip),
            tuple(self._found),
            self._renamed,
            frozenset(self._touched),
        )

    def _finish_revision(self) -> None:
        """Write the revision whose objects were all read, if it changes."""
        read = self._read
        if read.revision is None:
            return
        lines, _, body = read.commit.partition(b"\n\n")
        headers = [line.partition(b" ")[::2] for line in lines.split(b"\n")]
        tree = ObjectId(next(value for key, value in headers if key == b"tree").decode())
        parents = [RevisionId(value.decode()) for key, value in headers if key == b"parent"]
        new_tree = self._redact_root(tree, read)
        new_parents = [self._renamed.get(parent, parent) for parent in parents]
        people = [
            (key, self._redact_person(value) if key in _KEPT_HEADERS[:2] else value)
            for key, value in headers
            if key in _KEPT_HEADERS
        ]
        message = body.decode(errors="replace")
        new_message = self._redact_message(message, read.quotes)
        is_told = new_message != message or people != [
            (key, value) for key, value in headers if key in _KEPT_HEADERS
        ]
        if is_told:
            self._found.append(Found("message", "", read.revision, 1))
        if new_tree == tree and new_parents == parents and not is_told:
            return
        renamed = self._with_new_ids(new_message, parents)
        text = renamed.encode() if renamed != message else body
        head = [
            b"tree " + new_tree.encode(),
            *(b"parent " + parent.encode() for parent in new_parents),
            *(key + b" " + value for key, value in people),
        ]
        data = b"\n".join(head) + b"\n\n" + _saying_what_it_was(text, read.revision)
        self._renamed[read.revision] = RevisionId(self._add("commit", data))

    def _redact_root(self, root: ObjectId, read: _Read) -> ObjectId:
        redacted = self._redact_tree("", root, read)
        tree = redacted.tree
        if redacted.moved:
            self._flush()  # the tree is read again to put the files at their new paths
            if self._is_dry:
                return root
            moved = {WorkspacePath(one.path): one.blob for one in redacted.moved}
            batch = self._objects.batch()
            tree = replace_files(moved, tree, self._objects, batch)
            batch.sync()
        return tree or self._add("tree", b"")

    def _redact_tree(self, prefix: str, tree: ObjectId, read: _Read) -> _Redacted:
        """Return a directory without the text. Each is looked at once for each path at which it lies."""
        key = (prefix, tree)
        known = self._trees.get(key)
        if known is not None:
            return known
        entries: list[bytes] = []
        moved: list[_Moved] = []
        is_changed = False
        for mode, name, raw in self._entries(tree, read):
            before = ObjectId(raw.hex())
            path = prefix + name.decode(errors="replace")
            after: ObjectId | None = before
            if mode == _TREE:
                after, moved_below = self._redact_tree(f"{path}/", before, read)
                moved += moved_below
            elif mode != _LINKED_COMMIT:
                after = self._redacted_blob(path, before)
                new_path = self._new_path(path, read)
                if after is not None and new_path != path:
                    moved.append(_Moved(new_path, after))
                    after = None
            if after == before:
                entries.append(b"%s %s\0%s" % (mode, name, raw))
                continue
            is_changed = True
            if after is not None:
                entries.append(b"%s %s\0%s" % (mode, name, bytes.fromhex(after)))
        result = _Redacted(tree, tuple(moved))
        if is_changed:  # a directory that is empty now goes, too
            result = _Redacted(
                self._add("tree", b"".join(entries)) if entries else None, tuple(moved)
            )
        self._trees[key] = result
        return result

    def _entries(self, tree: ObjectId, read: _Read) -> list[tuple[bytes, bytes, bytes]]:
        """Return mode, name and id of each entry of a directory.

        Raises: Unavailable if the directory is damaged.
        """
        data = read.trees.get(tree)
        if data is None:  # a directory that lies at another path, too
            data = self._objects.read(tree)
        entries: list[tuple[bytes, bytes, bytes]] = _ENTRY.findall(data)
        if not all(mode for mode, _, _ in entries):
            raise Unavailable("the history", f"the directory {tree} in it is damaged")
        return entries

    def _redacted_blob(self, path: str, blob: ObjectId) -> ObjectId | None:
        key = (path, blob)
        if key not in self._blobs:  # a version that lies at another path, too
            self._redact_blob(path, blob, self._objects.read(blob))
        return self._blobs[key]

    def _redact_blob(self, path: str, blob: ObjectId, data: bytes) -> None:
        key = (path, blob)
        if key in self._blobs:
            return
        redacted = self._redaction.file(path, data)
        if redacted is None:
            self._blobs[key] = blob
            return
        self._touched.add(path)
        self._found.append(Found("file", path, self._read.revision, redacted.count))
        if redacted.data is None:
            self._blobs[key] = None
            return
        self._read.quotes.update(_changed_quotes(data, redacted.data))
        self._blobs[key] = self._add("blob", redacted.data)

    def _new_path(self, path: str, read: _Read) -> str:
        """Return the path of a file without the text. Two that become the same get different numbers."""
        known = self._paths.get(path)
        if known is not None:
            return known
        new = redacted_path(path, self._redaction.text, self._taken)
        self._paths[path] = new
        self._taken.add(new)
        if new != path:
            self._touched |= {path, new}
            self._found.append(Found("path", path, read.revision, 1))
        return new

    def _redact_message(self, message: str, quotes: Mapping[str, str]) -> str:
        """Return a message without the text: subject and body as one text, each trailer by itself."""
        text = message.removesuffix("\n")
        told, blank, last = text.rpartition("\n\n")
        if not blank or "\nAt: " not in f"\n{last}":  # another program's message has no trailers
            return self._redaction.text(message)
        subject, line_end, body = told.partition("\n")
        if quotes:
            subject = _requoted(subject, quotes)
        told = self._redaction.text(subject + line_end + body)
        trailers = [self._redact_trailer(line) for line in last.split("\n")]
        return told + blank + "\n".join(trailers) + message[len(text) :]

    def _redact_trailer(self, line: str) -> str:
        key, colon, value = line.partition(": ")
        if key in _KEPT_TRAILERS:
            return line
        kind, blank, path = key.partition(" ")
        if path in self._paths:  # a key that names a path
            key = kind + blank + self._paths[path]
        value = self._paths[value] if value in self._paths else self._redaction.text(value)
        return key + colon + value.replace("\n", " ")

    def _with_new_ids(self, message: str, parents: Sequence[RevisionId]) -> str:
        """Return a message that names other revisions by their new ids: a merge its parents in the subject,
        others the one that they restore or revert in a trailer."""
        lines = message.split("\n")
        if lines[0].startswith("merge of "):
            for parent in parents:
                lines[0] = lines[0].replace(parent[:8], self._renamed.get(parent, parent)[:8])
        for number, line in enumerate(lines):
            key, colon, value = line.partition(": ")
            if colon and len(value) == ID_DIGITS and key not in _KEPT_TRAILERS:
                lines[number] = key + colon + self._renamed.get(RevisionId(value), value)
        return "\n".join(lines)

    def _redact_person(self, line: bytes) -> bytes:
        """Return the value of an author or committer line without the text."""
        text = line.decode(errors="replace")
        name, open_bracket, rest = text.partition(" <")
        email, close_bracket, date = rest.rpartition("> ")
        new_name = self._redaction.text(name).replace("<", "").replace(">", "").replace("\n", " ")
        new_email = self._redaction.text(email)
        if (new_name, new_email) == (name, email):
            return line
        new_email = re.sub(r"[<>\s]", "-", new_email)
        return (new_name + open_bracket + new_email + close_bracket + date).encode()

    def _add(self, kind: str, data: bytes) -> ObjectId:
        if self._is_dry:
            return object_id(kind, data)
        self._batch_bytes += len(data)
        added = self._batch.add(kind, data)
        if self._batch_bytes > BATCH_BYTES_MAX:
            self._flush()
        return added

    def _flush(self) -> None:
        if not self._is_dry:
            self._batch.sync()
        self._batch, self._batch_bytes = ObjectBatch(self._directory), 0


def redacted_path(path: str, text: Callable[[str], str], taken: Collection[str]) -> str:
    """Return a path without the text. If that is one of the `taken` paths, it gets a number."""
    new = text(path)
    if new == path:
        return path
    if broken_rule(new) is not None:  # the text went over the end of a directory's name
        new = text(path.replace("/", " ")).replace("/", "-")
    directory, slash, name = new.rpartition("/")
    stem, dot, suffix = name.rpartition(".") if "." in name[1:] else (name, "", "")
    numbered, number = new, 1
    while numbered in taken:
        number += 1
        numbered = f"{directory}{slash}{stem} {number}{dot}{suffix}"
    return numbered


def _read_objects(
    git_directory: Path, tip: RevisionId
) -> Iterator[tuple[str, ObjectId, str, bytes]]:
    """Yield each object that a revision reaches, with its first path. Revisions come after their parents and
    before what they brought."""
    git = f"--git-dir={git_directory}"
    walk = ("--objects", "--in-commit-order", "--topo-order", "--reverse", "--end-of-options")
    listed: SimpleQueue[tuple[bytes, bytes] | None] = SimpleQueue()

    def request(stdin: BinaryIO) -> None:
        try:
            with (
                suppress(BrokenPipeError),
                stdin,
                open_git_session(
                    git, "rev-list", *walk, tip, "--", seconds_max=SECONDS_MAX
                ) as git_list,
            ):
                git_list.stdin.close()
                for line in git_list.stdout:
                    name, _, path = line.rstrip(b"\n").partition(b" ")
                    listed.put((name, path))
                    stdin.write(name + b"\n")
        finally:
            listed.put(None)

    command = (git, "cat-file", "--batch", "--buffer")
    with (
        ThreadPoolExecutor(1) as executor,
        open_git_session(*command, seconds_max=SECONDS_MAX) as git_read,
    ):
        requesting = executor.submit(request, git_read.stdin)
        while (item := listed.get()) is not None:
            name, path = item
            head = git_read.stdout.readline().split()
            if len(head) != 3 or head[0] != name:
                raise Unavailable("git cat-file", f"did not print {name.decode()}")
            size = int(head[2])
            data = git_read.stdout.read(size + 1)
            if len(data) != size + 1:
                raise Unavailable("git cat-file", f"ended within {name.decode()}")
            yield (
                head[1].decode(),
                ObjectId(name.decode()),
                path.decode(errors="replace"),
                data[:-1],
            )
        requesting.result()


def _saying_what_it_was(text: bytes, revision: RevisionId) -> bytes:
    """Return a message whose trailer names the revision."""
    told = text.rstrip(b"\n")
    lines = told.rpartition(b"\n\n")[2].split(b"\n")
    if lines[-1].startswith(b"Was: "):
        return told + b" " + revision.encode() + b"\n"
    has_trailers = any(line.startswith(b"At: ") for line in lines)
    return told + (b"\n" if has_trailers else b"\n\n") + b"Was: " + revision.encode() + b"\n"


def _changed_quotes(before: bytes, after: bytes) -> Iterator[tuple[str, str]]:
    """Yield the changed lines as a subject quotes them: cut, and so perhaps in the middle of the text."""
    old = before.decode(errors="replace").split("\n")
    new = after.decode(errors="replace").split("\n")
    for one, other in zip(old, new, strict=False):
        if one != other:
            yield quote_of(one), quote_of(other)


def _requoted(subject: str, quotes: Mapping[str, str]) -> str:
    """Return a subject that quotes the new line where it quoted the old one."""
    told, dot, quote = subject.rpartition(" · ")
    quote = quote.removesuffix("…").rstrip()
    for old, new in quotes.items():
        if dot and quote and old.startswith(quote):
            return shortened(told + dot + new, SUBJECT_CHARACTERS_MAX)
    return subject
