"""All errors of an operation. Each is named by the precondition that did not hold.

`code` is stable and meant for programs. The facts are attributes. `str()` is one sentence for a person.
`remedy`, if there is one, says what to do. Adapters translate the exceptions of their library into these
errors at their edge. Each face (HTTP, command line, model) shows them through one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil


class Failure(Exception):
    """The root of all errors. Only the tables of the faces catch it as such."""

    code = "failure"

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


class NotFound(Failure):
    """The named object does not exist, or the caller may not see it.

    A caller can never tell the two cases apart.
    """

    code = "not_found"

    def __init__(self, what: str, name: str, *, remedy: str | None = None) -> None:
        super().__init__(f"there is no {what} {_shown(name)}", remedy=remedy)
        self.what = what
        self.name = name


class Unauthorized(Failure):
    """The caller sent no key, an unknown key or an expired key."""

    code = "unauthorized"

    def __init__(self) -> None:
        super().__init__(
            "Missing or invalid API key.", remedy="Send `Authorization: Bearer <key>`."
        )


class Forbidden(Failure):
    """The caller is known but may not do this."""

    code = "forbidden"

    def __init__(self, deed: str) -> None:
        super().__init__(f"User keys cannot {deed}.", remedy="Use an account key.")
        self.deed = deed


class Conflict(Failure):
    """A stale precondition: another writer has changed the state since the caller read it."""

    code = "conflict"

    def __init__(self, what: str, name: str, *, expected: object, actual: object) -> None:
        super().__init__(
            f"{what} {name!r} has changed: expected {_state(expected)}, found {_state(actual)}",
            remedy="read it again and repeat the change on the current state",
        )
        self.what = what
        self.name = name
        self.expected = expected
        self.actual = actual


class AnotherBody(Conflict):
    """An id was reused with a different body."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(what, name, expected="the same body", actual="another one")
        self.args = (f"the {what} {_shown(name)} was already sent with a different body",)
        self.remedy = f"use a new id for another {what}"


class Deleted(Failure):
    """The object of the operation was deleted on another machine."""

    code = "deleted"

    def __init__(self, what: str, name: str) -> None:
        super().__init__(
            f"{what} {_shown(name)} was deleted on another machine",
            remedy="`harness sync` moves the local files to the trash, where you can look at them",
        )
        self.what = what
        self.name = name


class AlreadyExists(Conflict):
    """The name must be unique and is already taken."""

    code = "already_exists"

    def __init__(self, what: str, name: str) -> None:
        super().__init__(what, name, expected=None, actual="one")
        article = "an" if what[:1] in "aeio" else "a"
        self.args = (f"{article} {what} named {name!r} already exists",)
        self.remedy = "choose another name, or use the existing one"


class InUse(Conflict):
    """The object cannot be deleted because other records refer to it."""

    code = "in_use"

    def __init__(self, what: str, name: str, users: Sequence[str]) -> None:
        super().__init__(what, name, expected=None, actual=users)
        self.args = (f"{what} {name!r} is used by {', '.join(users)}",)
        self.remedy = "remove those references first, or force the deletion"


class AgentRunning(Conflict):
    """The agent has an active run already, and the caller did not want to wait for it."""

    code = "agent_running"

    def __init__(self, agent: str, run_id: str) -> None:
        super().__init__("agent", agent, expected="no active run", actual=run_id)
        self.args = (f"the agent {_shown(agent)} already runs: {run_id}",)
        self.remedy = "wait for that run, cancel it, or queue behind it"
        self.run_id = run_id


@dataclass(frozen=True, slots=True)
class ChangedLine:
    """A line that stands in the way of an undo."""

    path: str
    number: int | None
    """Its place in the present file. None if the line is not there any more."""
    text: str

    def as_json(self) -> dict[str, str | int | None]:
        return {"path": self.path, "line": self.number, "text": self.text}


class LinesChanged(Conflict):
    """A revision cannot be undone, because its lines were rewritten since. Nothing was undone."""

    def __init__(self, revision: str, lines: Sequence[ChangedLine]) -> None:
        super().__init__("revision", revision, expected="its lines", actual="rewritten lines")
        paths = ", ".join(dict.fromkeys(line.path for line in lines))
        self.args = (f"Cannot undo {revision}: its lines in {paths} were rewritten since.",)
        self.remedy = (
            "edit the lines by hand, or restore the whole file: harness restore W PATH --revision R"
        )
        self.lines = tuple(lines)


class Refused(Failure):
    """The input breaks a rule. The attributes name field, value and rule.

    `value` is None if the caller gave no value. `message`, if given, is the
    whole sentence for a person, in place of field, value and rule.
    """

    code = "invalid"

    def __init__(
        self,
        field: str,
        value: object,
        rule: str,
        *,
        message: str | None = None,
        remedy: str | None = None,
    ) -> None:
        reason = rule if value is None else f"{_shown(value)} {rule}"
        super().__init__(message or f"{field}: {reason}", remedy=remedy)
        self.field = field
        self.value = value
        self.rule = rule


@dataclass(frozen=True, slots=True)
class ForbiddenPlace:
    """A place of a file that a rule forbids. The text is not in it."""

    line: int
    rule_id: str


class ForbiddenText(Refused):
    """The new content holds a text that is forbidden or was forgotten. Nothing was written."""

    code = "forbidden_text"

    def __init__(
        self, path: str, places: Sequence[ForbiddenPlace], *, is_here: bool = False
    ) -> None:
        """Store the places. `is_here`: they are in the file on this disk, which is not kept as it is."""
        super().__init__("text", None, f"{_shown(path)} {forbidden_lines(places)}")
        self.remedy = (
            "take it out of the file on disk, where it was written; until then its last kept version counts"
            if is_here
            else "leave the text out; `harness forbid list` shows the rules, and `harness forbid allow` "
            "lets one pass once"
        )
        self.path = path
        self.places = tuple(places)


def forbidden_lines(places: Sequence[ForbiddenPlace]) -> str:
    """Return the places of a file for a person: `holds a forbidden text in line 3 (f_…)`."""
    shown = ", ".join(
        f"{place.line} ({place.rule_id})" for place in places[:FORBIDDEN_LINES_SHOWN_MAX]
    )
    more = len(places) - FORBIDDEN_LINES_SHOWN_MAX
    lines = "line" if len(places) == 1 else "lines"
    return f"holds a forbidden text in {lines} {shown}{f' and {more} more' if more > 0 else ''}"


FORBIDDEN_LINES_SHOWN_MAX = 5


class OverLimit(Failure):
    """The input is larger than a named limit."""

    code = "over_limit"

    def __init__(self, limit: str, *, maximum: int, actual: int, unit: str) -> None:
        super().__init__(f"{limit}: {actual:,} {unit} is over the limit of {maximum:,}")
        self.limit = limit
        self.maximum = maximum
        self.actual = actual
        self.unit = unit


class Exhausted(Failure):
    """The account has used up a limit for now."""

    code = "limit_reached"

    def __init__(
        self, limit: str, reason: str, *, maximum: float, left: float, free_in_s: float
    ) -> None:
        super().__init__(
            f"{limit}: {reason}; try again in {_duration(free_in_s)}",
            remedy=f"wait, or raise config.limits.{limit} of the account",
        )
        self.limit = limit
        self.maximum = maximum
        self.left = left
        self.free_in_s = free_in_s


class TooMany(OverLimit):
    """A limit of simultaneous operations is reached. The same request may be accepted a moment later."""

    code = "too_many"

    def __init__(self, limit: str, *, maximum: int, actual: int, unit: str) -> None:
        super().__init__(limit, maximum=maximum, actual=actual, unit=unit)
        self.remedy = "try again when some of them are done"


class Busy(Failure):
    """The resource is in use by another holder, for longer than a caller should wait."""

    code = "busy"

    def __init__(self, what: str, *, holder: str, process: int | str | None = None) -> None:
        """Store the holder. `process` is its process id on the machine where the holder runs."""
        message = f"{what} is in use by {holder}"
        super().__init__(
            message if process is None else f"{message} (process {process})",
            remedy="try again when that has ended",
        )
        self.what = what
        self.holder = holder
        self.process = process


class WorkspaceBusy(Busy):
    """The writer lock of a workspace could not be acquired in time."""

    code = "workspace_busy"


class LeaseLost(Failure):
    """The lease of the conversation has passed to another process. This process may write nothing more."""

    code = "lease_lost"

    def __init__(self, key: str) -> None:
        super().__init__(f"another process has taken over {key!r}")
        self.key = key


class MassDeletion(Failure):
    """The deletion of so many files on one side that it looks like an accident. Sync changed nothing."""

    code = "mass_deletion"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"sync stopped and changed nothing: {reason}",
            remedy="restore the files (`harness restore W PATH --revision R` restores one file; `harness "
            "log` lists the revisions); or, if you want the deletions, run `harness sync "
            "--accept-deletions` (`--dry-run` shows the effect)",
        )
        self.reason = reason


class Unavailable(Failure):
    """A store, a disk or a service fails or does not answer."""

    code = "unavailable"

    def __init__(
        self, what: str, reason: str, *, remedy: str | None = None, store: str | None = None
    ) -> None:
        """Store the facts. `what` may be a path or an address; `store` is a name that any caller may read."""
        super().__init__(f"{what}: {reason}", remedy=remedy)
        self.what = what
        self.reason = reason
        self.store = store


class Undecided(Unavailable):
    """The store that decides a write did not answer. The write may still take effect."""

    def __init__(self, path: str, cause: Unavailable) -> None:
        super().__init__(
            cause.what,
            f"{cause.reason}; the write of {path!r} may or may not have taken effect",
            remedy="read the file when the store answers again, and repeat the write if it is not there",
            store=cause.store,
        )
        self.path = path


SHOWN_CHARACTERS_MAX = 80
"""Characters of a refused value that an error repeats: enough to recognise the value, not a flood."""


def _shown(value: object) -> str:
    text = repr(value)
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return f"{text[:SHOWN_CHARACTERS_MAX]}… ({len(text):,} characters)"


def _state(state: object) -> str:
    return "nothing" if state is None else str(state)


def _duration(seconds: float) -> str:
    """Return the duration as text, rounded up so that a caller who waits so long is not too early."""
    if seconds <= 120:
        return f"{ceil(seconds)} s"
    minutes = ceil(seconds / 60)
    if minutes <= 120:
        return f"{minutes} min"
    return f"{ceil(minutes / 60)} h"


NAME_CHARACTERS_MAX = 200
"""Longest name that is compared with valid names; every valid name is far shorter."""


def nearest(name: str, valid: list[str]) -> str | None:
    """Return the valid name of which `name` may be a misspelling; None if there is none."""
    import difflib  # a command without a misspelling does not wait for it

    if len(name) > NAME_CHARACTERS_MAX:
        return None  # too long for a misspelling; comparing takes time that grows with the length
    matches = difflib.get_close_matches(name, valid, n=1, cutoff=0.6)
    return matches[0] if matches else None


def unknown_name(field: str, name: str, valid: list[str]) -> Refused:
    """Return the error for a name that is not in `valid`. Its remedy suggests the nearest name."""
    near = nearest(name, valid)
    remedy = f"did you mean {near!r}?" if near else f"valid: {', '.join(sorted(valid))}"
    return Refused(field, name, "is unknown", remedy=remedy)


def not_a_revision(text: str) -> Refused:
    """Return the error for a text that cannot be the id of a revision."""
    rule = "is not the hexadecimal id of a revision"
    return Refused("revision", text, rule, remedy="`harness log` lists them")
