"""The state of a home, for a person who begins the day: what is pending, conflicted, a problem, due.

A section is a function that looks and says. Looking changes nothing: what was edited by hand is told as
pending, and becomes a revision when somebody settles it. What one section cannot say is a line of its own
and does not keep the others from being seen. Whoever adds a room to the house adds its section to SECTIONS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from workspaces.errors import Failure
from workspaces.home.trash import TrashEntry, trash_entries
from workspaces.timestamp import stamp_of
from workspaces.tree.merge_marks import REVISIONS_MAX, MergeMark, open_marks

if TYPE_CHECKING:
    from harness.harness import Harness
    from workspaces.workspace.workspace import Workspace

StatusLevel = Literal["ok", "pending", "due", "merged", "conflict", "problem"]

CONVERSATIONS_MAX = 50
"""The newest; what waits in older ones has waited for long, and `harness conversation show` tells it."""

NAMES_MAX = 5
"""So many files are named in one line; programs are told all of them."""


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One thing and how it stands."""

    subject: str
    state: StatusLevel
    told: str
    remedy: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The same for programs."""


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    lines: tuple[StatusRow, ...]


StatusSource = Callable[["Harness"], Iterator[StatusRow]]


def status(harness: Harness) -> list[Section]:
    """Sections that have nothing to say are there, without lines."""
    return [Section(name, tuple(_looked(look, harness))) for name, look in SECTIONS.items()]


def _looked(look: StatusSource, harness: Harness) -> Sequence[StatusRow]:
    lines: list[StatusRow] = []
    try:
        lines.extend(look(harness))
    except Failure as failure:
        lines.append(StatusRow("", "problem", str(failure), failure.remedy))
    return lines


def _workspaces(harness: Harness) -> Iterator[StatusRow]:
    """Private ones only when something is to be said of them."""
    for record in harness.workspaces.list(private=True):
        try:
            lines = _workspace(harness.workspaces.open(record))
        except Failure as failure:
            lines = [StatusRow(record.name, "problem", str(failure), failure.remedy)]
        if ":" not in record.id or len(lines) > 1:
            yield from lines


def _workspace(workspace: Workspace) -> list[StatusRow]:
    name, tree = workspace.record.name, workspace.scan()
    revisions = workspace.log(limit=REVISIONS_MAX)
    newest = revisions[0] if revisions else None
    last = (
        {} if newest is None else {"revision": newest.id, "at": newest.at, "author": newest.author}
    )
    told = "nothing yet"
    if newest is not None:
        told = f"{newest.at[:16].replace('T', ' ')} {newest.author} · {newest.subject}"
    facts = {"id": workspace.record.id, "files": len(tree.files), "bytes": tree.bytes, "last": last}
    lines = [StatusRow(name, "ok", told, facts=facts)]
    pending = workspace.pending()
    if pending:
        remedy = f"`harness log {name}` makes it one, `harness watch` makes each save one"
        told = f"{_named(pending)}: edited by hand, in no revision yet"
        lines.append(StatusRow(name, "pending", told, remedy, {"paths": pending}))
    merges = [(one.id, one.trailers) for one in revisions if len(one.parents) > 1]
    lines += [_merged(name, seam) for seam in open_marks(workspace.history, merges)]
    for problem in workspace.problems(tree):
        state: StatusLevel = "conflict" if problem.kind == "conflict" else "problem"
        told = f"{problem.path!r} {problem.detail}"
        facts = {"path": problem.path, "kind": problem.kind}
        lines.append(StatusRow(name, state, told, _REMEDIES.get(problem.kind), facts))
    return lines


def _merged(name: str, seam: MergeMark) -> StatusRow:
    """What sync has merged and nobody has changed since."""
    told = f"{seam.path!r} was changed by two at once and merged: {seam.summary}"
    remedy = (
        f"read it and correct what is not true; `harness show {name} {seam.revision[:10]}` tells"
    )
    facts = {
        "path": seam.path,
        "revision": seam.revision,
        "pairs": [[list(pair.one), list(pair.other)] for pair in seam.pairs],
    }
    return StatusRow(name, "merged", told, remedy, facts)


_REMEDIES = {
    "bad_name": "rename it: as it is, it is in no history",
    "twin": "rename one of the two",
    "not_a_file": "put a plain file in its place, or remove it",
    "over_quota": "make room, or `harness workspace set` a larger quota",
    "conflict": "bring the two files together and remove this one",
    "clock": "set the one that is wrong, or have it set by NTP; nothing is lost",
    "history": "`harness sync --check` says more; files go on being synced",
}

_OPEN = re.compile(r"\s*[-*+] \[ \]\s+(?:(\d{4}-\d\d-\d\d)\s+)?(.+)")


def _tasks(harness: Harness) -> Iterator[StatusRow]:
    """Open tasks of every TASKS.md: those that are due, and how many there are."""
    today = stamp_of(harness.rooms.clock.now())[:10]
    for record in harness.workspaces.list():
        try:
            text = harness.workspaces.open(record).read("TASKS.md").text
        except Failure:  # there is none; or it cannot be read, which is told of its workspace
            continue
        found = [match for line in text.splitlines() if (match := _OPEN.match(line))]
        for match in found:
            if match[1] and match[1] <= today:
                yield StatusRow(
                    record.name, "due", f"{match[1]} {match[2]}", facts={"date": match[1]}
                )
        if found:
            yield StatusRow(record.name, "ok", f"{len(found)} open", facts={"open": len(found)})


def _jobs(harness: Harness) -> Iterator[StatusRow]:
    """What is due and was not run, what could not be done yet, and what was tried too often."""
    now = harness.rooms.clock.now()
    for one in harness.jobs.list():
        due = stamp_of(one.job.due)
        when, why = due[:16].replace("T", " "), f": {one.error}" if one.error else ""
        facts = {"kind": one.job.kind, "due": due, "attempts": one.attempts}
        if one.is_aside:
            remedy = f"`harness jobs retry {one.job.id}` tries it again"
            yield StatusRow(one.job.id, "problem", f"set aside{why}", remedy, facts)
        elif one.process is not None:
            continue
        elif one.job.due <= now:
            yield StatusRow(
                one.job.id, "due", f"since {when}{why}", "`harness jobs run` runs it", facts
            )
        elif one.error:
            yield StatusRow(one.job.id, "pending", f"tried again at {when}{why}", None, facts)


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - NAMES_MAX} more" if len(paths) > NAMES_MAX else ""
    return ", ".join(paths[:NAMES_MAX]) + more


def _machines(harness: Harness) -> Iterator[StatusRow]:
    """What other machines have not been told, what could not be brought together with them, and what was
    here of workspaces that they deleted."""
    following = harness.following
    if following is not None:
        if pending := following.pending():
            told = f"{_named(pending)}: not told to other machines yet"
            yield StatusRow(
                "records", "pending", told, "`harness sync` tells them", {"names": pending}
            )
        for trouble in following.troubles():
            facts = {"name": trouble.name}
            yield StatusRow(
                "records", "problem", f"{trouble.name}: {trouble.reason}", trouble.remedy, facts
            )
    for buried in trash_entries(harness.settings.home):
        if buried.unpushed:
            yield _unpushed(buried)


def _unpushed(buried: TrashEntry) -> StatusRow:
    what = "was deleted on another machine" if buried.why == "elsewhere" else "began anew"
    told = f"{what}; in no other place: {_named(buried.unpushed)}"
    remedy = f"take what you need from {buried.files}, then remove {buried.place}"
    facts = {"id": buried.id, "paths": list(buried.unpushed), "trash": str(buried.place)}
    return StatusRow(buried.name, "problem", told, remedy, facts)


def _conversations(harness: Harness) -> Iterator[StatusRow]:
    """Those of the newest that wait for a person, or for a client."""
    for conversation in harness.conversations.list(limit=CONVERSATIONS_MAX):
        for one in harness.pending(conversation):
            facts = {"conversation": conversation.id, **one.as_json()}
            if one.asked.waits_for == "result":
                yield StatusRow(
                    conversation.key, "pending", f"{one.call.name} is its client's", None, facts
                )
                continue
            remedy = f"`harness approve {conversation.id} {one.id}`, or with `--deny`"
            told = f"{one.call.name} is waiting for approval"
            yield StatusRow(conversation.key, "pending", told, remedy, facts)


SECTIONS: dict[str, StatusSource] = {
    "workspaces": _workspaces,
    "tasks": _tasks,
    "conversations": _conversations,
    "jobs": _jobs,
    "machines": _machines,
}
