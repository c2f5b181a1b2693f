"""The one loader of every sentence that a model or a person reads.

Templates lie in `templates/` of a checkout and in `harness/_templates` of an installed wheel. A
variable that is missing fails; nothing is rendered half.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from workspaces.errors import Refused, Unavailable
from workspaces.paths import WorkspacePath
from workspaces.tree.editor_files import is_editor_file
from workspaces.validation import unknown_name
from workspaces.workspace_record import Quota

_PLACES = (
    Path(__file__).parents[1] / "_templates",
    Path(__file__).parents[2] / "templates",
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
        auto_reload=False,  # or each text would be asked for its time of change, each time
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


def workspace_templates(own: Path) -> dict[str, Path]:
    """By name. A person's own, below `own`, come before those of the same name that come with us."""
    found: dict[str, Path] = {}
    for place in (root() / "workspaces", own):
        if place.is_dir():
            found |= {entry.name: entry for entry in sorted(place.iterdir()) if entry.is_dir()}
    return found


def workspace_files(name: str, own: Path) -> dict[str, bytes]:
    """The first files of a workspace made from the template `name`: a directory as it stands."""
    from workspaces.localfs.archive import unpack

    known = workspace_templates(own)
    if name not in known:
        raise unknown_name("template", name, [*known])
    parcel = unpack(known[name], Quota())
    if parcel.left:
        (first, *_) = parcel.left
        raise Refused("template", f"{known[name]}/{first.name}", first.reason)
    return {
        WorkspacePath(path): data for path, data in parcel.files.items() if not is_editor_file(path)
    }
