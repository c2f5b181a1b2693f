"""What a person is told of a form that was refused: a sentence, and the field beside which it stands."""

from __future__ import annotations

from dataclasses import dataclass

from harness.web.http.errors import refused
from workspaces.errors import Failure, OverLimit, Refused

_OF_A_VALUE = ("is ", "must ", "matches ", "has ")
"""Beginnings of rules that go on from the value."""


@dataclass(frozen=True, slots=True)
class Told:
    field: str
    text: str
    status: int
    """The HTTP status of the page."""


def told(failure: Failure, field: str) -> Told:
    """Return the sentence about a refused form. The page shows the value itself, so it is left out."""
    text = str(failure)
    if isinstance(failure, OverLimit):
        text = f"{failure.actual:,} {failure.unit} are over the limit of {failure.maximum:,}"
    elif isinstance(failure, Refused):
        text = failure.rule
        if text.startswith(_OF_A_VALUE):
            text = f"It {text}"
        if failure.remedy:
            # an option of the command line is a box of the page
            is_option = "`--" in failure.remedy
            text += f"; {'tick the box below if that is meant' if is_option else failure.remedy}"
    return Told(field, f"{text[:1].upper()}{text[1:]}.", refused(failure).status_code)
