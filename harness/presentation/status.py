"""The state of a home, for a person who starts the day: pending edits, conflicts, problems, due jobs.

A section is a function that yields rows. It changes nothing: files edited by hand are listed as pending, and
the next write or sync commits them. If a section fails, its failure is a row of its own, and the other
sections are still shown. A new kind of state adds its section to SECTIONS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from harness.agents.mounts import missing_mounts
from harness.bootstrap.adoption import orphans
from harness.learning.learning_jobs import LEARN
from harness.presentation.agent_memory import lines_left_out
from harness.presentation.call_text import CallLimit, CallText, call_text
from harness.presentation.learning_status import learning_lines
from workspaces.errors import Failure
from workspaces.home.layout import Home
from workspaces.home.trash import TrashEntry, trash_entries
from workspaces.home.unpushed import unpushed_files
from workspaces.timestamp import stamp_of
from workspaces.tree.merge_marks import REVISIONS_MAX, MergeMark, open_marks

if TYPE_CHECKING:
    from harness.harness import Harness
    from harness.messages.pending_call import PendingCall
    from workspaces.workspace.workspace import Workspace

StatusLevel = Literal["ok", "pending", "due", "merged", "conflict", "problem"]

CONVERSATIONS_MAX = 50
"""The newest conversations that are looked at. A call in an older one has waited for long, and `harness
conversation show` lists it."""

NAMES_MAX = 5
"""The most files named in one row; programs get all of them."""


NAMESPACE_SHOWN = 11
"""Characters of a namespace in a row: enough for `harness admin adopt --name`. Programs get all of them."""

CALL_SHOWN = CallLimit(lines=10, characters=600)
"""The part of a waiting call that a row shows."""


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One subject and its state."""

    subject: str
    state: StatusLevel
    told: str
    remedy: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The same for programs."""
    call: CallText | None = None
    """The call that waits. `facts` has all of it."""


@dataclass(frozen=True, slots=True)
class Section:
    """A named group of rows."""

    name: str
    lines: tuple[StatusRow, ...]


StatusSource = Callable[["Harness"], Iterator[StatusRow]]


def status(harness: Harness) -> list[Section]:
    """Return all sections. A section without rows is included too."""
    return [Section(name, tuple(_looked(look, harness))) for name, look in SECTIONS.items()]


def _looked(look: StatusSource, harness: Harness) -> Sequence[StatusRow]:
    lines: list[StatusRow] = []
    try:
        lines.extend(look(harness))
    except Failure as failure:
        lines.append(StatusRow("", "problem", str(failure), failure.remedy))
    return lines


def _workspaces(harness: Harness) -> Iterator[StatusRow]:
    """Yield rows of each workspace; of a private one only when it has more than its first row."""
    for record in harness.workspaces.list(private=True):
        try:
            lines = _workspace(harness.workspaces.open(record), harness.settings.home)
        except Failure as failure:
            lines = [StatusRow(record.name, "problem", str(failure), failure.remedy)]
        if ":" not in record.id or len(lines) > 1:
            yield from lines


def _workspace(workspace: Workspace, home: Home) -> list[StatusRow]:
    name, tree = workspace.record.name, workspace.tree.scan()
    revisions = workspace.log(limit=REVISIONS_MAX)
    newest = revisions[0] if revisions else None
    last = (
        {} if newest is None else {"revision": newest.id, "at": newest.at, "author": newest.author}
    )
    text = "nothing yet"
    if newest is not None:
        text = f"{newest.at[:16].replace('T', ' ')} {newest.author} · {newest.subject}"
    facts = {"id": workspace.record.id, "files": len(tree.files), "bytes": tree.bytes, "last": last}
    lines = [StatusRow(name, "ok", text, facts=facts)]
    if workspace.record.is_shared and (unpushed := unpushed_files(home, workspace, tree)):
        count = "1 file is" if len(unpushed) == 1 else f"{len(unpushed):,} files are"
        text = f"{count} only on this machine: {_named(unpushed)}"
        facts = {"onlyHere": list(unpushed)}
        lines.append(
            StatusRow(name, "pending", text, f"`harness sync {name}` sends what S3 lacks", facts)
        )
    pending = workspace.edits.pending()
    if pending:
        remedy = f"`harness log {name}` commits it; `harness watch` commits each save"
        text = f"{_named(pending)}: edited by hand, in no revision yet"
        lines.append(StatusRow(name, "pending", text, remedy, {"paths": pending}))
    merges = [(one.id, one.trailers) for one in revisions if len(one.parents) > 1]
    lines += [_merged(name, merge_mark) for merge_mark in open_marks(workspace.history, merges)]
    for problem in workspace.edits.problems(tree):
        state: StatusLevel = "conflict" if problem.kind == "conflict" else "problem"
        text = f"{problem.path!r} {problem.detail}"
        facts = {"path": problem.path, "kind": problem.kind}
        lines.append(StatusRow(name, state, text, REMEDIES.get(problem.kind), facts))
    return lines


def _merged(name: str, merge_mark: MergeMark) -> StatusRow:
    """Return the row of a merge by sync that no one has changed since."""
    text = f"{merge_mark.path!r} was changed by two at once and merged: {merge_mark.summary}"
    remedy = (
        f"check the merged text; `harness show {name} {merge_mark.revision[:10]}` shows the merge"
    )
    facts = {
        "path": merge_mark.path,
        "revision": merge_mark.revision,
        "pairs": [[list(pair.one), list(pair.other)] for pair in merge_mark.pairs],
    }
    return StatusRow(name, "merged", text, remedy, facts)


REMEDIES = {
    "bad_name": "rename it; under this name it is not in the history",
    "twin": "rename one of the two",
    "not_a_file": "put a plain file in its place, or remove it",
    "over_quota": "free some space, or set a larger quota with `harness workspace set`",
    "conflict": "merge the two files and remove this one",
    "clock": "correct the wrong clock, or use NTP; nothing is lost",
    "edited": "`harness restore` brings the first revision back; nothing is lost",
    "forbidden": "take the text out of the file; until then its last kept version counts, which others may "
    "change: then both are merged",
    "history": "`harness sync --check` shows details; files are still synced",
}

_OPEN = re.compile(r"\s*[-*+] \[ \]\s+(?:(\d{4}-\d\d-\d\d)\s+)?(.+)")


def _tasks(harness: Harness) -> Iterator[StatusRow]:
    """Yield rows for the open tasks of every TASKS.md: each one that is due, and their number."""
    today = stamp_of(harness.rooms.clock.now())[:10]
    for record in harness.workspaces.list():
        try:
            text = harness.workspaces.open(record).read("TASKS.md").text
        except Failure:  # no such file, or a failure that the section of workspaces shows
            continue
        tasks = [match for line in text.splitlines() if (match := _OPEN.match(line))]
        for match in tasks:
            if match[1] and match[1] <= today:
                yield StatusRow(
                    record.name, "due", f"{match[1]} {match[2]}", facts={"date": match[1]}
                )
        if tasks:
            yield StatusRow(record.name, "ok", f"{len(tasks)} open", facts={"open": len(tasks)})


def _jobs(harness: Harness) -> Iterator[StatusRow]:
    """Yield rows for jobs that are overdue, that wait for a resource, or that failed too often."""
    now = harness.rooms.clock.now()
    for one in harness.jobs.list():
        due = stamp_of(one.job.due)
        when, why = due[:16].replace("T", " "), f": {one.error}" if one.error else ""
        facts = {"kind": one.job.kind, "due": due, "attempts": one.attempts}
        if one.is_aside:
            remedy = f"`harness jobs retry {one.job.id}` retries it"
            yield StatusRow(one.job.id, "problem", f"set aside{why}", remedy, facts)
        elif one.process is not None or one.job.kind == LEARN:
            continue
        elif one.job.due <= now:
            yield StatusRow(
                one.job.id, "due", f"since {when}{why}", "`harness jobs run` runs it", facts
            )
        elif one.error:
            yield StatusRow(one.job.id, "pending", f"next attempt at {when}{why}", None, facts)


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - NAMES_MAX} more" if len(paths) > NAMES_MAX else ""
    return ", ".join(paths[:NAMES_MAX]) + more


def _agents(harness: Harness) -> Iterator[StatusRow]:
    """Yield rows for mounts whose workspace or sandbox was deleted, and for memory that no prompt shows."""
    for agent in harness.agents.list():
        try:
            mounts = harness.agents.bindings(agent, creates_private=False)
            gone = missing_mounts(agent, mounts)
            cut = lines_left_out(harness, agent, mounts)
        except Failure as failure:
            yield StatusRow(agent.name, "problem", str(failure), failure.remedy)
            continue
        for name in gone:
            text = f"mount {name!r} is gone: its workspace or sandbox was deleted"
            remedy = f"`harness agent set {agent.name} --workspace W` names the mounts anew"
            yield StatusRow(agent.name, "problem", text, remedy, {"missingMount": name})
        for one in cut:
            text = f"{one.text} of MEMORY.md in {one.mount!r} do not fit into the prompt"
            remedy = "move details to `notes/`, or raise `memory.maxLength` of agent session or workspace"
            facts = {"mount": one.mount, "linesLeftOut": one.lines}
            yield StatusRow(agent.name, "problem", text, remedy, facts)


def _home(harness: Harness) -> Iterator[StatusRow]:
    """Yield a row for each tree or history in the home that no record names."""
    for name in orphans(harness.house):
        text = "files or history without a record; no command reaches them"
        remedy = "`harness admin adopt --dry-run` shows how to get them back"
        yield StatusRow(name[:NAMESPACE_SHOWN], "problem", text, remedy, {"namespace": name})


def _machines(harness: Harness) -> Iterator[StatusRow]:
    """Yield rows for changes not yet published to other machines, for records that could not be synced,
    and for files that were only here, of workspaces that other machines deleted."""
    registry_sync = harness.following
    if registry_sync is not None:
        if pending := registry_sync.pending():
            text = f"{_named(pending)}: not published to other machines yet"
            yield StatusRow(
                "records", "pending", text, "`harness sync` publishes them", {"names": pending}
            )
        for trouble in registry_sync.state.troubles():
            facts = {"name": trouble.name}
            yield StatusRow(
                "records", "problem", f"{trouble.name}: {trouble.reason}", trouble.remedy, facts
            )
    for trash_entry in trash_entries(harness.settings.home):
        if trash_entry.unpushed:
            yield _unpushed(trash_entry)


def _unpushed(trash_entry: TrashEntry) -> StatusRow:
    event = (
        "was deleted on another machine" if trash_entry.why == "elsewhere" else "was created anew"
    )
    text = f"{event}; only in the trash: {_named(trash_entry.unpushed)}"
    remedy = f"take what you need from {trash_entry.files}, then remove {trash_entry.place}"
    facts = {
        "id": trash_entry.id,
        "paths": list(trash_entry.unpushed),
        "trash": str(trash_entry.place),
    }
    return StatusRow(trash_entry.name, "problem", text, remedy, facts)


def _conversations(harness: Harness) -> Iterator[StatusRow]:
    """Yield rows for calls in the newest conversations that wait for a person, or for a client."""
    for conversation in harness.conversations.list(limit=CONVERSATIONS_MAX):
        for one in harness.pending(conversation):
            facts = {"conversation": conversation.id, **one.as_json()}
            if one.asked.waits_for == "result":
                text, call = f"{one.call.name} waits for its client", _call(one)
                yield StatusRow(conversation.key, "pending", text, None, facts, call)
                continue
            where = f" in {one.asked.workspace}" if one.asked.workspace else ""
            text = f"{one.call.name}{where} waits for approval"
            call = _call(one)
            remedy = f"`harness approve {conversation.id} {one.id}` asks you about it"
            if call.left_out:
                remedy += f"; `--show` shows the {call.left_out:,} characters left out here"
            yield StatusRow(conversation.key, "pending", text, remedy, facts, call)


def _call(call: PendingCall) -> CallText:
    return call_text(call.call.input, CALL_SHOWN)


def _schedules(harness: Harness) -> Iterator[StatusRow]:
    """Yield a row for each agent with a schedule: when it runs next, and how its last run ended."""
    for agent in harness.agents.list():
        schedule, due = agent.config.schedule, harness.rooms.schedule_jobs.next_tick(agent)
        if schedule is None:
            continue
        remedy = None if due is not None else "`harness up` starts it again"
        at = None if due is None else stamp_of(due)
        when = "not planned" if at is None else f"next run {at[:16].replace('T', ' ')} UTC"
        text = f"{when} · {schedule.cron} {schedule.timezone}"
        facts = {"agent": agent.id, "cron": schedule.cron, "next": at}
        yield StatusRow(agent.name, "ok" if at else "problem", text, remedy, facts)
        newest = next(iter(harness.runs.list(agent.id, limit=1)), None)
        if newest is not None and newest.run.status in {"failed", "timed_out"}:
            run = newest.run
            why = f": {run.error.message}" if run.error else ""
            remedy = f"`harness runs show {run.id}` shows it"
            yield StatusRow(agent.name, "problem", f"last run {run.status}{why}", remedy)


def _learning(harness: Harness) -> Iterator[StatusRow]:
    """Yield rows for reading conversations in the background."""
    for state, text, remedy, facts in learning_lines(harness):
        yield StatusRow("learning", state, text, remedy, facts)


SECTIONS: dict[str, StatusSource] = {
    "workspaces": _workspaces,
    "agents": _agents,
    "tasks": _tasks,
    "conversations": _conversations,
    "schedules": _schedules,
    "jobs": _jobs,
    "learning": _learning,
    "machines": _machines,
    "home": _home,
}
