"""The refusal of facts that hold a secret: a fact is shown in prompts, and kept in a history."""

from __future__ import annotations

from harness.memory.secrets import find_secrets
from workspaces.errors import Refused

_REMEDY = (
    "leave the secret out and say where it is kept; or set `fact_secrets: allow` in harness.yaml"
)


class SecretRefused(Refused):
    """A text that holds a secret. The error says its kind and place, and never the secret."""

    code = "secret"


def refuse_secrets(field: str, text: str) -> None:
    """Check that a text holds no secret.

    Raises: SecretRefused.
    """
    found = find_secrets(text)
    if found:
        first = found[0]
        rule = f"holds a secret: it looks like a {first.kind}, at character {first.start}"
        raise SecretRefused(field, None, rule, remedy=_REMEDY)
