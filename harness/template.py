"""The one loader of every sentence that a model or a person reads.

Templates lie in `templates/` of a checkout and in `harness/_templates` of an installed wheel. A
variable that is missing fails; nothing is rendered half.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from workspaces.errors import Unavailable
from workspaces.parse import unknown_name

_PLACES = (
    Path(__file__).parent / "_templates",
    Path(__file__).parent.parent / "templates",
)


@cache
def root() -> Path:
    for place in _PLACES:
        if (place / "prompt").is_dir():
            return place
    raise Unavailable("templates", "they are missing", remedy="install workspace-harness again")


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(root()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - plain text for models; pages have an environment of their own
    )


def render(name: str, **variables: object) -> str:
    """The text of `templates/<name>`, without blank lines around it."""
    return _environment().get_template(name).render(**variables).strip()


@cache
def _page_environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(root()),
        undefined=StrictUndefined,
        trim_blocks=True,
        autoescape=True,
    )


def page(name: str, **variables: object) -> str:
    """The HTML of `templates/pages/<name>`; every variable in it is text, never markup."""
    return _page_environment().get_template(f"pages/{name}").render(**variables)


def page_file(name: str) -> bytes:
    """What a page refers to, as it is."""
    return (root() / "pages" / name).read_bytes()


def workspace_templates() -> list[str]:
    return sorted(place.name for place in (root() / "workspaces").iterdir() if place.is_dir())


def workspace_files(name: str) -> dict[str, bytes]:
    """The first files of a workspace made from the template `name`."""
    known = workspace_templates()
    if name not in known:
        raise unknown_name("template", name, known)
    place = root() / "workspaces" / name
    files = sorted(path for path in place.rglob("*") if path.is_file())
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in files}
