"""Forbid texts, as the people of an account do it: rules are made, listed and lifted."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from workspaces.accounts.principal import Principal
from workspaces.errors import Failure, ForbiddenPlace, NotFound, Refused
from workspaces.forgetting.gate import ForbiddenTexts
from workspaces.forgetting.matcher import FoundText, merged_places
from workspaces.forgetting.rule import PATTERN_CHARACTERS_MAX, ForbiddenRule
from workspaces.forgetting.rule_records import RuleStops
from workspaces.forgetting.tombstone import TEXT_CHARACTERS_MAX
from workspaces.home.workspaces import Workspaces
from workspaces.paths import WorkspacePath
from workspaces.storage.records import JsonObject
from workspaces.validation import StrictModel, parse
from workspaces.workspace_record import WorkspaceRecord


class NewRule(StrictModel):
    """A rule to make: one of `text`, `match` and `detect`."""

    text: Annotated[str, Field(min_length=1, max_length=TEXT_CHARACTERS_MAX)] | None = None
    """A text. Only a keyed hash of its words is stored."""
    match: Annotated[str, Field(min_length=1, max_length=PATTERN_CHARACTERS_MAX)] | None = None
    """A regular expression, as ripgrep takes it."""
    detect: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """A detector: `keys` or `cards`."""
    workspace: Annotated[str, Field(min_length=1)] | None = None
    """The id or name of the only workspace for which it counts."""
    forbid_short: bool = False
    """Whether the text may have fewer than 3 words and 12 letters."""


class NewPass(StrictModel):
    """A file for which a rule is passed once."""

    workspace: Annotated[str, Field(min_length=1)]
    path: Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class HeldBackFile:
    """A file that stays on this disk and is in no revision, because of a forbidden text."""

    workspace: WorkspaceRecord
    path: str
    places: tuple[ForbiddenPlace, ...]


@dataclass(frozen=True, slots=True)
class TriedPlace:
    """A place of a text that would be refused."""

    start: int
    end: int
    line: int
    is_new: bool
    """True if the rule that is tried finds it."""
    rule_ids: tuple[str, ...]
    """The rules that count already and find it."""


class Forbidding:
    """The rules of an account, for its owner."""

    def __init__(self, texts: ForbiddenTexts, workspaces: Workspaces, principal: Principal) -> None:
        self.texts = texts
        self._workspaces = workspaces
        self._principal = principal

    def forbid(self, fields: object) -> ForbiddenRule:
        """Make a rule and return it. It counts for everything that is written from now on.

        Raises: Refused, OverLimit, NotFound for an unknown workspace, Forbidden without the right.
        """
        self.texts.records.check_right("forbid texts")
        new = _parsed(fields)
        workspace_id = self._workspace_id(new.workspace)
        by = self._principal.user.name
        if new.text is not None:
            made = self.texts.records.forbid_texts(
                [new.text], by=by, allow_short=new.forbid_short, workspace_id=workspace_id
            )
            rule_id = made[0].id
        elif new.match is not None:
            rule_id = self.texts.forbid_pattern(new.match, by=by, workspace_id=workspace_id)
        else:
            rule_id = self.texts.forbid_detected(new.detect or "", by=by, workspace_id=workspace_id)
        return self.texts.records.known().rules[rule_id]

    def try_on(
        self, text: str, fields: object | None = None, *, workspace: str | None = None
    ) -> list[TriedPlace]:
        """Return the places of a text that would be refused in a workspace, in order. Nothing is stored.

        `fields` is a rule that is not made yet. None: only the rules that count already are tried.

        Raises: what `forbid` raises for the rule.
        """
        self.texts.records.check_right("try what is forbidden")
        known = self.texts.rules(self._workspace_id(workspace)).find(text)
        drafted: Sequence[FoundText] = ()
        if fields is not None:
            new = _parsed(fields)
            if new.text is not None:
                draft = self.texts.text_draft(new.text, allow_short=new.forbid_short)
            elif new.match is not None:
                draft = self.texts.pattern_draft(new.match)
            else:
                draft = self.texts.detector_draft(new.detect or "")
            drafted = draft.find(text)
        return _tried(text, known, drafted)

    def list(self) -> list[ForbiddenRule]:
        """Return the rules that count, oldest first."""
        return self.texts.records.list()

    def stops(self) -> dict[str, RuleStops]:
        """Return the number of writes refused and messages marked in this home, by rule."""
        self.texts.records.check_right("see what is forbidden")
        return self.texts.records.stops()

    def shown(self, *rules: ForbiddenRule) -> Sequence[JsonObject]:
        """Return rules for people: without the hashes of a text, and with what they have stopped."""
        stops = self.stops()
        return [
            {
                **rule.shown(),
                "stopped": stops[rule.id].count if rule.id in stops else 0,
                "stoppedAt": stops[rule.id].at if rule.id in stops else None,
            }
            for rule in rules
        ]

    def held_back(self) -> Iterator[HeldBackFile]:
        """Yield the files that are held back now. A workspace that cannot be read is left out."""
        self.texts.records.check_right("see what is forbidden")
        if not self.texts.records.known().version:
            return
        for record in self._workspaces.list():
            with suppress(Failure):
                for problem in self._workspaces.open(record).tree.scan().problems:
                    if problem.kind == "forbidden":
                        yield HeldBackFile(record, problem.path, problem.places)

    def lift(self, rule_id: str) -> ForbiddenRule:
        """Forbid something no longer. What was forgotten stays forgotten.

        Raises: NotFound.
        """
        return self.texts.records.lift(rule_id, by=self._principal.user.name)

    def allow(self, rule_id: str, fields: object) -> None:
        """Let the next change of a file pass a rule, within ten minutes.

        Raises: NotFound for an unknown rule or workspace.
        """
        self.texts.records.check_right("let a text pass")
        new = parse(NewPass, fields)
        workspace_id = self._workspaces.record(new.workspace).id
        self.texts.records.pass_once(rule_id, workspace_id, WorkspacePath(new.path))

    def keep_once(self, fields: object) -> None:
        """Let a file that is held back pass every rule that holds it back, and commit it.

        Raises: NotFound if the file is not held back.
        """
        self.texts.records.check_right("let a text pass")
        new = parse(NewPass, fields)
        workspace = self._workspaces.get(new.workspace)
        problems = (one for one in workspace.tree.scan().problems if one.kind == "forbidden")
        places = next((one.places for one in problems if one.path == new.path), ())
        if not places:
            raise NotFound("held-back file", new.path)
        for rule_id in {place.rule_id for place in places}:
            self.texts.records.pass_once(rule_id, workspace.record.id, new.path)
        workspace.edits.commit()

    def _workspace_id(self, reference: str | None) -> str | None:
        return None if reference is None else self._workspaces.record(reference).id


def _parsed(fields: object) -> NewRule:
    """Return a rule to make.

    Raises: Refused.
    """
    new = parse(NewRule, fields)
    given = [name for name in ("text", "match", "detect") if getattr(new, name) is not None]
    if len(given) != 1:
        raise Refused(
            "rule", ", ".join(given) or None, "must have one of `text`, `match` and `detect`"
        )
    return new


def _tried(text: str, known: Sequence[FoundText], drafted: Sequence[FoundText]) -> list[TriedPlace]:
    """Return the places of both, in order. Places that overlap are one."""
    whole = merged_places([*known, *drafted])
    starts = [place.start for place in whole]
    # each place lies in one of these, so no pair of places is compared
    new = {bisect_right(starts, place.start) for place in drafted}
    rules: dict[int, dict[str, None]] = {}
    for place in known:
        rules.setdefault(bisect_right(starts, place.start), {})[place.tombstone_id] = None
    tried: list[TriedPlace] = []
    line, at = 1, 0
    for number, (start, end, _) in enumerate(whole, 1):
        line, at = line + text.count("\n", at, start), start
        tried.append(TriedPlace(start, end, line, number in new, tuple(rules.get(number, ()))))
    return tried
