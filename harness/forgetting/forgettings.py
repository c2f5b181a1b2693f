"""Forget a text everywhere: look for it, then take it out of one kind of place after the other.

    intent → tombstones → turns that hold the text end → records and large values → other files of the home
    → workspaces: files, histories, indexes, S3 → records of other machines → databases → look again → done

The intent holds the tombstones, so every step works without the text. Each step may be repeated: it looks for
what is still there. A process that dies leaves the job, and the next one begins with the first step again.
The last step looks everywhere once more. A job that was in flight may have written the text again: then the
steps begin anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from harness.conversations.conversation import Conversation, Conversations
from harness.forgetting.bucket_past import BucketPast
from harness.forgetting.forgetting import (
    Forgetting,
    ForgettingRecords,
    TombstonePhrases,
)
from harness.forgetting.found import Findings, FoundPlace
from harness.forgetting.home_files import HomeFiles
from harness.forgetting.other_copies import OtherCopies, leaves_tombstones
from harness.forgetting.record_places import AccountPlaces, Where
from harness.forgetting.records import RecordRedaction
from harness.forgetting.redaction import TextFinder
from harness.forgetting.selection import (
    ForgettingRequest,
    Phrase,
    line_phrases,
    match_phrases,
    revision_phrases,
    text_phrases,
    worth_forgetting,
)
from harness.forgetting.workspace_search import LineCount, find_in_indexes
from harness.jobs.job import Job, Jobs
from harness.memorize.archive.archives import Archives
from harness.transcripts.transcript import Transcript
from workspaces.accounts.principal import DEFAULT_ACCOUNT, Person, Principal
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import Busy, Conflict, Failure, Forbidden, NotFound, Refused, Unavailable
from workspaces.forgetting.matcher import Matcher, mark_of
from workspaces.forgetting.rule import ForbiddenRule, new_key
from workspaces.forgetting.rule_records import RuleRecords
from workspaces.forgetting.tombstone import KEY_BYTES, check_word_counts, tombstone_of
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.ids import ConversationId, namespace, new_id
from workspaces.remote.bucket import SharedBucket
from workspaces.remote.machine_notes import MachineNote
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import RecordStore
from workspaces.timestamp import stamp_of
from workspaces.workspace_record import WorkspaceRecord

FORGET = "forget"
"""The kind of the job that takes a text out of a home. Machines that share their records share their jobs.
There the kind ends with the machine's id, because only that machine has the home."""

SHARE_OF_LINES_MAX = 0.2
ROUNDS_MAX = 5
"""Times that the steps are done because the text was written again. The tombstones refuse it from the first
on, so only what was in flight can write it."""

PREFIX = "forgetting"
LOG_MAX = 1_000
"""Newest revisions of a workspace that are looked through for what was learned from a conversation."""

LISTED_MAX = 100
TOUCHED_MAX = 200
"""Files of a workspace of which a record keeps the names."""

LOOK_AFTER_S = 5.0
"""Seconds until the job runs, if the process that asked does not do it."""

_STORED: tuple[Where, ...] = ("object", "pack", "version")
_LEARNED = frozenset(("extract", "sleep", "director", "memorize"))


class WorkspaceRewriter(Protocol):
    """Takes phrases out of one workspace: its files, history and indexes here, and all of it in S3."""

    def find(self, record: WorkspaceRecord, finder: TextFinder, findings: Findings) -> LineCount:
        """Add the places in a workspace. Nothing is changed."""
        ...

    def rewrite(
        self,
        record: WorkspaceRecord,
        matcher: Matcher,
        label: str,
        findings: Findings,
        *,
        is_begun: bool,
    ) -> Sequence[str]:
        """Replace the phrases, and return the paths in which something was replaced. With `is_begun`, finish
        what an earlier call may have left, also if no phrase is found any more.

        Raises: Busy; Unavailable if a store does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Planned:
    """What a forgetting would do, before anything is changed."""

    forgetting: Forgetting
    lines: LineCount


@dataclass(frozen=True, slots=True)
class Forgettings:
    """The forgettings of one account on this machine."""

    principal: Principal
    home: Home
    records: RecordStore
    large: BlobStore
    clock: Clock
    jobs: Jobs
    workspaces: Workspaces
    conversations: Conversations
    rules: RuleRecords
    """What is forbidden in the account."""
    rewriter: WorkspaceRewriter
    state: Path | None
    """The SQLite file of the records. None where they are not on this machine."""
    wipe_records: Callable[[Path, float], None]
    """Removes the bytes of deleted items from that file, and of those that have expired by then."""
    ripgrep: Callable[[], Path | None]
    place: SharedBucket | None = None
    """The bucket that the machines of the account share."""
    publish: Callable[[], None] = lambda: None
    """Publishes records to other machines."""
    records_keep: str = ""
    """What the database of the records keeps of earlier states, and what a person can do about it."""

    @property
    def stored(self) -> ForgettingRecords:
        return ForgettingRecords(self.principal.account_id, self.records)

    @property
    def _heard(self) -> ForgettingRecords:
        """The forgettings of other machines, as this one does them. Machines that share their records have
        one list each."""
        machine = None if self.state is not None else self.home.machine
        return ForgettingRecords(self.principal.account_id, self.records, machine)

    def _records_of(self, forgetting_id: str) -> ForgettingRecords:
        return self._heard if self._heard.has(forgetting_id) else self.stored

    def plan(self, request: ForgettingRequest) -> Planned:
        """Look everywhere, and change nothing.

        Raises: Forbidden for a user's key. Refused; OverLimit; NotFound; Unavailable.
        """
        if not self.principal.may_configure:
            raise Forbidden("forget")
        selector = request.selector
        findings = Findings()
        conversation = None
        if selector == "conversation":
            conversation = self._conversation(str(request.conversation))
            phrases = None
            self._count_conversation(conversation, findings)
            self._copies.note_forks(findings, conversation, self.conversations.of_account())
            lines = LineCount()
        else:
            phrases = self._tombstones(request)
            lines = self._find(phrases.matcher(), findings)
            if lines.matching > lines.all * SHARE_OF_LINES_MAX and not request.many:
                rule = f"is in {lines.matching:,} of {lines.all:,} lines"
                raise Refused(selector, None, rule, remedy="say so with `--many` (`many`)")
        self._copies.note_backups(findings, selector)
        self._copies.note_machines(findings, selector)
        self._note_stores(findings, phrases)
        forgetting = Forgetting(
            id=new_id(PREFIX),
            status="planned",
            selector=selector,
            by=self.principal.user_id,
            at=stamp_of(self.clock.now()),
            reason=phrases.matcher().replaced(request.reason) if phrases else request.reason,
            tombstones=() if phrases is None else tuple(one.id for one in phrases.tombstones),
            phrases=phrases,
            machine=self.home.machine,
            machines=self._copies.machines("", selector),
            conversation=None if conversation is None else conversation.id,
        ).with_findings(findings)
        return Planned(replace(forgetting, may_repeat=self._may_repeat(forgetting)), lines)

    def start(self, planned: Planned) -> Forgetting:
        """Store what was planned, and its job. From then on it goes on by itself, whatever happens."""
        forgetting = planned.forgetting
        put = self.stored.put(forgetting)
        self.records.write(put, *self.jobs.wanted(self._job(forgetting)))
        self._forbid(forgetting)
        return self.stored.get(forgetting.id)

    def run(self, forgetting_id: str) -> Forgetting:
        """Do all steps of a forgetting. May be repeated.

        Raises: Busy while a turn holds the text. Unavailable while a store does not answer.
        """
        stored = self._records_of(forgetting_id)
        forgetting = stored.get(forgetting_id)
        if forgetting.status == "done":
            return forgetting
        forgetting = stored.write(replace(forgetting, status="running", waits_for=None))
        findings = Findings()
        try:
            for _ in range(ROUNDS_MAX):
                forgetting = self._round(forgetting, findings)
                left = self._left(forgetting)
                if not left:
                    break
            else:
                raise Busy("the text", holder="a program that writes it again")
        except Failure as failure:
            self._wait(stored, forgetting_id, findings, failure)
            raise
        self._copies.tell_backups(findings)
        now = stamp_of(self.clock.now())
        done = replace(forgetting.with_findings(findings), status="done", done_at=now, phrases=None)
        done = stored.write(done)
        self.note_machine()
        machines = self._copies.machines(done.id, done.selector)
        return stored.write(replace(done, machines=machines))

    def _wait(
        self, stored: ForgettingRecords, forgetting_id: str, findings: Findings, failure: Failure
    ) -> None:
        """Note what a forgetting waits for, unless another process is further."""
        forgetting = stored.get(forgetting_id)
        if forgetting.status == "running":
            waiting = replace(forgetting.with_findings(findings), status="waiting")
            with suppress(Conflict):
                stored.write(replace(waiting, waits_for=str(failure)))

    def show(self, forgetting_id: str) -> Forgetting:
        """Return a forgetting, with the machines that have heard of it by now.

        Raises: NotFound.
        """
        forgetting = self.stored.get(forgetting_id)
        machines = self._copies.machines(forgetting_id, forgetting.selector)
        return replace(forgetting, machines=machines or forgetting.machines)

    def run_pending(self) -> list[Forgetting]:
        """Do all forgettings that are not done, one after the other. Return them."""
        own = [one for one in self.stored.list() if one.machine == self.home.machine]
        every = {one.id: one for one in (*own, *self._heard.list())}
        return [self.run_here(one.id) for one in every.values() if one.status != "done"]

    def note_machine(self) -> None:
        """Note in the bucket what was forgotten on this machine. If it does not answer, the next one does."""
        if self.place is None:
            return
        own = [one for one in self.stored.list() if one.machine == self.home.machine]
        done = {one.id: one.done_at for one in (*own, *self._heard.list())}
        heard = {forgetting_id: at for forgetting_id, at in done.items() if at is not None}
        with suppress(Unavailable):
            notes = self.place.machine_notes(self.principal.account_id)
            notes.write(MachineNote(self.home.machine, heard))

    def run_here(self, forgetting_id: str) -> Forgetting:
        """Do the job of a forgetting now. If it must wait, leave it to the runner of jobs."""
        try:
            done = self.run(forgetting_id)
        except Failure:
            return self._records_of(forgetting_id).get(forgetting_id)
        self.records.write(*self.jobs.unwanted(self._job(done).id))
        return done

    def erase(self) -> None:
        """Delete the forgettings of an account that is being deleted, and what is forbidden in it."""
        self.rules.forget()
        self.stored.erase()
        if self.place is not None:
            self.place.rules(self.principal.account_id, self.rules).erase()

    def hear(self) -> list[Forgetting]:
        """Begin here what other machines of the account have forgotten. Return what was begun."""
        known = self.rules.known()
        heard: dict[str, list[ForbiddenRule]] = {}
        for rule in known.rules.values():
            is_whole = rule.tombstone is not None and rule.key_id in known.keys
            if rule.forgetting_id is not None and is_whole and not rule.is_lifted:
                heard.setdefault(rule.forgetting_id, []).append(rule)
        begun = {one.id: one for one in self._heard.list() if heard}
        own = {one.id for one in self.stored.list() if heard and one.machine == self.home.machine}
        return [
            self._begin_heard(forgetting_id, rules, known.keys, begun.get(forgetting_id))
            for forgetting_id, rules in heard.items()
            if forgetting_id not in own and _is_more(rules, begun.get(forgetting_id))
        ]

    def _begin_heard(
        self,
        forgetting_id: str,
        rules: Sequence[ForbiddenRule],
        keys: Mapping[str, bytes],
        before: Forgetting | None,
    ) -> Forgetting:
        """Store a forgetting of another machine, and its job. More of it may have arrived since `before`."""
        first = rules[0]
        own = (one.tombstone for one in rules if one.key_id == first.key_id)
        tombstones = tuple(one for one in own if one is not None)
        forgetting = Forgetting(
            id=forgetting_id,
            status="planned",
            selector="heard",
            by=first.by,
            at=first.at,
            tombstones=tuple(one.id for one in tombstones),
            phrases=TombstonePhrases(keys[str(first.key_id)], tombstones),
            counter=ABSENT if before is None else before.counter,
        )
        with suppress(Conflict):  # another process was faster
            put = self._heard.put(forgetting)
            self.records.write(put, *self.jobs.wanted(self._job(forgetting)))
        return self._heard.get(forgetting_id)

    def _round(self, forgetting: Forgetting, findings: Findings) -> Forgetting:
        """Do every step once."""
        if forgetting.phrases is None:
            self._delete_conversation(str(forgetting.conversation))
            self._wipe()
            return forgetting
        matcher = forgetting.phrases.matcher()
        self._forbid(forgetting)
        busy = self._redaction(forgetting, matcher).rewrite(self.conversations, findings)
        self._home_files(matcher).rewrite(findings)
        touched = dict.fromkeys(forgetting.touched)
        for record in self.workspaces.list(private=True):
            name = namespace(self.principal.account_id, record.id)
            is_begun = any(one.place.workspace == record.name for one in forgetting.found)
            paths = self.rewriter.rewrite(
                record, matcher, forgetting.id, findings, is_begun=is_begun
            )
            touched |= dict.fromkeys(_touched(name, paths, matcher))
        if len(touched) > len(forgetting.touched):  # versions of these files go from conversations
            stored = self._records_of(forgetting.id)
            forgetting = stored.write(replace(forgetting, touched=tuple(touched)))
            again = self._redaction(forgetting, matcher).rewrite(self.conversations, findings)
            busy += again
        self._publish(matcher, findings)
        self._wipe()
        if busy:
            raise busy[0]
        return forgetting

    def _left(self, forgetting: Forgetting) -> bool:
        """Return True if there is anything to take out once more."""
        if forgetting.phrases is None:
            return False
        findings = Findings()
        self._find(forgetting.phrases.matcher(), findings)
        return bool(findings.found)

    def _find(self, finder: TextFinder, findings: Findings) -> LineCount:
        self._redaction(None, finder).find(findings)
        self._home_files(finder).find(findings)
        lines = LineCount()
        for record in self.workspaces.list(private=True):
            lines += self.rewriter.find(record, finder, findings)
            name = namespace(self.principal.account_id, record.id)
            count = find_in_indexes(self.home, name, finder)
            findings.add(FoundPlace("index", workspace=record.name), count)
        return lines

    def _tombstones(self, request: ForgettingRequest) -> TombstonePhrases:
        phrases = worth_forgetting(self._phrases(request), allow_short=request.forbid_short)
        if not phrases and request.match is None:
            raise Refused(
                request.selector,
                None,
                "added no line of at least 3 words or 12 letters",
                remedy="name the text itself, or allow short ones with `--forbid-short`",
            )
        known = self.rules.known()
        key = known.keys[min(known.keys)] if known.keys else secrets.token_bytes(KEY_BYTES)
        made = (tombstone_of(one.text, key, allow_short=request.forbid_short) for one in phrases)
        tombstones = {one.id: one for one in made}
        here = (one.tombstone for one in known.rules.values() if not one.is_lifted)
        if leaves_tombstones(request.selector):
            check_word_counts([*tombstones.values(), *(one for one in here if one is not None)])
        return TombstonePhrases(key, tuple(tombstones.values()))

    def _forbid(self, forgetting: Forgetting) -> None:
        """Refuse the phrases from now on, here and on other machines. May be repeated."""
        phrases = forgetting.phrases
        if phrases is None or not leaves_tombstones(forgetting.selector):
            return
        key = new_key(phrases.key)
        rules = [
            ForbiddenRule(
                tombstone.id,
                "text",
                forgetting.at,
                forgetting.by,
                forgetting_id=forgetting.id,
                key_id=key.id,
                tombstone=tombstone,
            )
            for tombstone in phrases.tombstones
        ]
        self.rules.adopt([key, *rules])

    def _phrases(self, request: ForgettingRequest) -> list[Phrase]:
        if request.text is not None:
            return text_phrases(request.text)
        if request.line is not None:
            return line_phrases(request.line, self.workspaces)
        if request.revision is not None:
            return revision_phrases(request.revision, self.workspaces)
        pattern = str(request.match)
        return match_phrases(pattern, self.ripgrep(), self._show)

    def _show(self, finder: TextFinder) -> None:
        """Show all texts to a finder."""
        self._find(finder, Findings())

    def _conversation(self, reference: str) -> Conversation:
        """Return the conversation with this id or key.

        Raises: NotFound if there is none, or several have the key.
        """
        every = self.conversations.of_account()
        found = [one for one in every if one.id == reference]
        found = found or [one for one in every if one.key == reference]
        if len(found) != 1:
            kind = "single conversation with the key" if found else "conversation"
            raise NotFound(kind, reference, remedy="`harness conversation list` shows their ids")
        return found[0]

    def _count_conversation(self, conversation: Conversation, findings: Findings) -> None:
        places = AccountPlaces(self.principal.account_id, self.records)
        for partition in places.of_conversation(conversation.id):
            place = FoundPlace(partition.where, conversation=conversation.id)
            findings.add(place, len(partition.items(self.records)))
        for _, archive_id in places.archives_of(conversation.id):
            findings.add(FoundPlace("archive", path=archive_id), 1)
        values = sum(1 for _ in self.large.scan(f"{conversation.id}/"))
        findings.add(FoundPlace("large value", conversation=conversation.id), values)

    def _delete_conversation(self, conversation_id: str) -> None:
        """Delete a conversation, and what was archived of it. May be repeated."""
        places = AccountPlaces(self.principal.account_id, self.records)
        for user_id, archive_id in places.archives_of(conversation_id):
            owner = replace(self.principal, user=Person(user_id, ""))
            Archives(owner, self.records, self.large, self.clock).delete(archive_id)
        found = (one for one in self.conversations.of_account() if one.id == conversation_id)
        conversation = next(found, None)
        if conversation is not None:
            self.conversations.delete(conversation)

    def _may_repeat(self, forgetting: Forgetting) -> tuple[str, ...]:
        """Name what was made from a conversation that held the text: it may say it in other words."""
        touched = {one.place.conversation for one in forgetting.found} - {None}
        named: list[str] = []
        for conversation_id in sorted(one for one in touched if one is not None):
            named += [
                f"summary: entry {entry.number} of {conversation_id}"
                for entry in Transcript(
                    ConversationId(conversation_id), self.records, self.large
                ).entries()
                if entry.kind == "summary"
            ]
            places = AccountPlaces(self.principal.account_id, self.records)
            named += [f"run: {run_id}" for run_id in places.runs_in(conversation_id)]
            named += [f"fact: {fact_id}" for fact_id in places.facts_citing(conversation_id)]
        for record in self.workspaces.list(private=True) if touched else ():
            for revision in self.workspaces.open(record).history.log(limit=LOG_MAX):
                conversation = (revision.trailers.get("Conversation") or "").partition(" ")[0]
                if conversation in touched and revision.trailers.get("Source") in _LEARNED:
                    named.append(f"learned: {revision.id[:12]} in {record.name}")
        return tuple(named[:LISTED_MAX])

    def _note_stores(self, findings: Findings, phrases: TombstonePhrases | None) -> None:
        """Count the objects in the bucket, and name what stores keep of earlier states."""
        if self.records_keep:
            findings.cannot("database", self.records_keep)
        if self.place is None:
            return
        paths: dict[str, set[str]] = {}
        for one in findings.found:
            if one.place.where in ("file", "history") and one.place.workspace is not None:
                paths.setdefault(one.place.workspace, set()).add(one.place.path or "")
        for record in self.workspaces.list(private=True):
            if record.is_shared and record.name in paths:
                name = namespace(self.principal.account_id, record.id)
                census = self.place.census(name, paths[record.name])
                for where, count in zip(_STORED, census, strict=True):
                    findings.add(FoundPlace(where, workspace=record.name), count)
        if phrases is not None:
            self._bucket_past(self.place).find(phrases.matcher(), findings)

    def _redaction(self, forgetting: Forgetting | None, finder: TextFinder) -> RecordRedaction:
        return RecordRedaction(
            places=AccountPlaces(self.principal.account_id, self.records),
            records=self.records,
            large=self.large,
            finder=finder,
            marks=frozenset()
            if forgetting is None
            else frozenset(map(mark_of, forgetting.tombstones)),
            touched_files=frozenset() if forgetting is None else frozenset(forgetting.touched),
        )

    @property
    def _copies(self) -> OtherCopies:
        return OtherCopies(self.home, self.rules, self.place, self.state is not None)

    @property
    def _is_default(self) -> bool:
        """True for the account that the home first had."""
        default = self.records.get(DEFAULT_ACCOUNT)
        return default is None or default.value["id"] == self.principal.account_id

    def _home_files(self, finder: TextFinder) -> HomeFiles:
        account_id = self.principal.account_id
        names = (namespace(account_id, one.id) for one in self.workspaces.list(private=True))
        return HomeFiles(
            self.home, finder, account_id, frozenset(names), self._is_default, self.state
        )

    def _publish(self, finder: TextFinder, findings: Findings) -> None:
        """Publish the changed records, and delete what the bucket still holds of earlier states."""
        self.publish()
        if self.place is not None:
            self._bucket_past(self.place).erase(finder, findings)

    def _bucket_past(self, place: SharedBucket) -> BucketPast:
        account_id = self.principal.account_id
        places = AccountPlaces(account_id, self.records)
        return BucketPast(place, account_id, places, has_values=self.state is None)

    def _wipe(self) -> None:
        """Remove the bytes of deleted rows from the database of the records."""
        if self.state is not None:
            self.wipe_records(self.state, self.clock.now().timestamp())

    def _job(self, forgetting: Forgetting) -> Job:
        payload = {
            "accountId": self.principal.account_id,
            "userId": self.principal.user_id,
            "forgettingId": forgetting.id,
        }
        kind = FORGET if self.state is not None else f"{FORGET}:{self.home.machine}"
        due = self.clock.now() + timedelta(seconds=LOOK_AFTER_S)
        return Job(f"{kind}:{forgetting.id}", kind, due, payload)


def _is_more(rules: Sequence[ForbiddenRule], before: Forgetting | None) -> bool:
    """Return True if a forgetting of another machine has not begun here with all of its tombstones."""
    return before is None or not {one.id for one in rules} <= {*before.tombstones}


def _touched(name: str, paths: Sequence[str], finder: TextFinder) -> list[str]:
    """Return the files of a workspace in which something was replaced. Many are all of them, and so is one
    whose name holds a phrase."""
    if len(paths) > TOUCHED_MAX or any(map(finder.find, paths)):
        return [f"{name}/"]
    return [f"{name}/{path}" for path in paths]
