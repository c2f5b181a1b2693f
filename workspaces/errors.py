"""Every way an operation can end badly, named by the precondition that did not hold.

`code` is stable and meant for programs; the facts are attributes; `str()` is one sentence for a
person and `remedy`, where there is one, says what to do about it. Adapters translate what their
library raises into these at their edge; faces show them through one table each.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil


class Failure(Exception):
    """The root. Only the tables at the faces catch it as such."""

    code = "failure"

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


class NotFound(Failure):
    """What was named is not there, or is not the caller's to see: the two are never told apart."""

    code = "not_found"

    def __init__(self, what: str, name: str, *, remedy: str | None = None) -> None:
        super().__init__(f"there is no {what} {_shown(name)}", remedy=remedy)
        self.what = what
        self.name = name


class Unauthorized(Failure):
    """Nobody is known by what the caller showed: no key, a wrong one, an expired one."""

    code = "unauthorized"

    def __init__(self) -> None:
        super().__init__(
            "Missing or invalid API key.", remedy="Send `Authorization: Bearer <key>`."
        )


class Forbidden(Failure):
    """The caller is known and may not do this."""

    code = "forbidden"

    def __init__(self, deed: str) -> None:
        super().__init__(f"User keys cannot {deed}.", remedy="Use an account key.")
        self.deed = deed


class Conflict(Failure):
    """Somebody else has been there: the state the caller had seen is not the state any more."""

    code = "conflict"

    def __init__(self, what: str, name: str, *, expected: object, actual: object) -> None:
        super().__init__(
            f"{what} {name!r} has changed: expected {_state(expected)}, found {_state(actual)}",
            remedy="read it again and repeat the change on what is there now",
        )
        self.what = what
        self.name = name
        self.expected = expected
        self.actual = actual


class AnotherBody(Conflict):
    """An id that stands for one thing was used for another."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(what, name, expected="the same body", actual="another one")
        self.args = (f"the {what} {_shown(name)} was sent before with another body",)
        self.remedy = f"another {what} needs another id"


class Deleted(Failure):
    """What was to be worked on was deleted on another machine."""

    code = "deleted"

    def __init__(self, what: str, name: str) -> None:
        super().__init__(
            f"{what} {_shown(name)} was deleted on another machine",
            remedy="`harness sync` moves what is here to the trash, where you can look at it",
        )
        self.what = what
        self.name = name


class AlreadyExists(Conflict):
    """A name that must be unique is taken."""

    code = "already_exists"

    def __init__(self, what: str, name: str) -> None:
        super().__init__(what, name, expected=None, actual="one")
        article = "an" if what[0] in "aeio" else "a"  # a user
        self.args = (f"{article} {what} named {name!r} already exists",)
        self.remedy = "choose another name, or use the one that is there"


class InUse(Conflict):
    """Others refer to it."""

    code = "in_use"

    def __init__(self, what: str, name: str, users: Sequence[str]) -> None:
        super().__init__(what, name, expected=None, actual=users)
        self.args = (f"{what} {name!r} is used by {', '.join(users)}",)
        self.remedy = "change what uses it first, or force the deletion"


class Refused(Failure):
    """Input that breaks a rule: which field, which value, which rule. None: nothing was stated.

    `message`, if given, is the whole sentence for a person, in place of the field, the value and the rule.
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
        broken = rule if value is None else f"{_shown(value)} {rule}"
        super().__init__(message or f"{field}: {broken}", remedy=remedy)
        self.field = field
        self.value = value
        self.rule = rule


class OverLimit(Failure):
    """Larger than a limit that has a name."""

    code = "over_limit"

    def __init__(self, limit: str, *, maximum: int, actual: int, unit: str) -> None:
        super().__init__(f"{limit}: {actual:,} {unit} is over the limit of {maximum:,}")
        self.limit = limit
        self.maximum = maximum
        self.actual = actual
        self.unit = unit


class Exhausted(Failure):
    """A limit of the account is used up for the moment."""

    code = "limit_reached"

    def __init__(
        self, limit: str, told: str, *, maximum: float, left: float, free_in_s: float
    ) -> None:
        super().__init__(
            f"{limit}: {told}; it is free again in {_duration(free_in_s)}",
            remedy=f"wait, or raise config.limits.{limit} of the account",
        )
        self.limit = limit
        self.maximum = maximum
        self.left = left
        self.free_in_s = free_in_s


class TooMany(OverLimit):
    """More at once than there is room for: the same may be let in a moment later."""

    code = "too_many"

    def __init__(self, limit: str, *, maximum: int, actual: int, unit: str) -> None:
        super().__init__(limit, maximum=maximum, actual=actual, unit=unit)
        self.remedy = "try again when some of them are done"


class Busy(Failure):
    """Someone else is at work and has been for longer than a caller should wait."""

    code = "busy"

    def __init__(self, what: str, *, holder: str, process: int | str | None = None) -> None:
        """`process`: its id, for whoever is on the machine where it runs."""
        told = f"{what} is in use by {holder}"
        super().__init__(
            told if process is None else f"{told} (process {process})",
            remedy="try again when that has ended",
        )
        self.what = what
        self.holder = holder
        self.process = process


class WorkspaceBusy(Busy):
    """The writer lock of a workspace was not to be had in time."""

    code = "workspace_busy"


class LeaseLost(Failure):
    """The right to run a conversation has passed to someone else; nothing more may be written."""

    code = "lease_lost"

    def __init__(self, key: str) -> None:
        super().__init__(f"another process has taken over {key!r}")
        self.key = key


class MassDeletion(Failure):
    """So much is gone from one side that it looks like an accident: nothing was done."""

    code = "mass_deletion"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"sync stopped, and has changed nothing: {reason}",
            remedy="bring the files back (`harness restore W PATH --revision R` brings one, as `harness "
            "log` names it); or if this is what you want, `harness sync --accept-deletions` "
            "(`--dry-run` shows what it would do)",
        )
        self.reason = reason


class Unavailable(Failure):
    """A store, a disk or a service does not answer as it should."""

    code = "unavailable"

    def __init__(self, what: str, reason: str, *, remedy: str | None = None) -> None:
        super().__init__(f"{what}: {reason}", remedy=remedy)
        self.what = what
        self.reason = reason


SHOWN_CHARACTERS_MAX = 80
"""How much of a refused value an error repeats: enough to recognise it, not enough to flood."""


def _shown(value: object) -> str:
    text = repr(value)
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return f"{text[:SHOWN_CHARACTERS_MAX]}… ({len(text):,} characters)"


def _state(state: object) -> str:
    return "nothing" if state is None else str(state)


def _duration(seconds: float) -> str:
    """Rounded up: who waits so long does not come too early."""
    if seconds <= 120:
        return f"{ceil(seconds)} s"
    minutes = ceil(seconds / 60)
    if minutes <= 120:
        return f"{minutes} min"
    return f"{ceil(minutes / 60)} h"
