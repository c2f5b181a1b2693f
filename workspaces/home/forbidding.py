"""Forbid texts, as the people of an account do it: rules are made, listed and lifted."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from workspaces.accounts.principal import Principal
from workspaces.errors import Refused
from workspaces.forgetting.gate import ForbiddenTexts
from workspaces.forgetting.rule import PATTERN_CHARACTERS_MAX, ForbiddenRule
from workspaces.forgetting.tombstone import TEXT_CHARACTERS_MAX
from workspaces.home.workspaces import Workspaces
from workspaces.paths import WorkspacePath
from workspaces.validation import StrictModel, parse


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
        new = parse(NewRule, fields)
        given = [name for name in ("text", "match", "detect") if getattr(new, name) is not None]
        if len(given) != 1:
            raise Refused(
                "rule", ", ".join(given) or None, "must have one of `text`, `match` and `detect`"
            )
        workspace_id = None if new.workspace is None else self._workspaces.record(new.workspace).id
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

    def list(self) -> list[ForbiddenRule]:
        """Return the rules that count, oldest first."""
        return self.texts.records.list()

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
