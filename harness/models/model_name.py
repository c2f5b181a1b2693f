"""The names of models: which adapter answers for a name, and which names none knows."""

from __future__ import annotations

from typing import Final

from workspaces.errors import Refused

DEMO: Final = "demo"
"""The name of the offline demo model."""

PROVIDER_PREFIX = "claude-"
"""The beginning of the names of all models of the provider."""


def check_model_name(name: str, *, field: str, base_url: str | None) -> None:
    """Raise Refused for a name that no adapter knows.

    A server at an own address (`base_url`) may know any name.
    """
    if name == DEMO or name.startswith(PROVIDER_PREFIX) or base_url is not None:
        return
    remedy = (
        f"name a model of the provider (`{PROVIDER_PREFIX}…`) or `{DEMO}`; "
        "set ANTHROPIC_BASE_URL if your own server knows this name"
    )
    raise Refused(field, name, "is not a known model", remedy=remedy)
