"""The one loader of every text that a model or a person reads.

Templates lie in `templates/` of a checkout and in `harness/_templates` of an installed wheel. A missing
variable raises an error; no text is rendered without it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from workspaces.errors import Refused, Unavailable, unknown_name
from workspaces.paths import WorkspacePath
from workspaces.tree.editor_files import is_editor_file
from workspaces.workspace_record import Quota

_DIRECTORIES = (
    Path(__file__).parents[1] / "_templates",
    Path(__file__).parents[2] / "templates",
)


@cache
def root() -> Path:
    for directory in _DIRECTORIES:
        if (directory / "prompt").is_dir():
            return directory
    raise Unavailable("templates", "they are missing", remedy="install workspace-harness again")


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(root()),
        undefined=StrictUndefined,
        auto_reload=False,  # otherwise every render would check the file's modification time
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - plain text for models; pages have an environment of their own
    )


def render(name: str, **variables: object) -> str:
    """Return the text of `templates/<name>`, without blank lines around it."""
    return _environment().get_template(name).render(**variables).strip()


def page_file(name: str) -> bytes:
    """Return the bytes of a file that a page refers to."""
    return (root() / "pages" / name).read_bytes()


def workspace_templates(own: Path) -> dict[str, Path]:
    """Return the directories of the workspace templates, by name.

    A person's own templates, below `own`, replace those of the same name that come with the program.
    """
    templates: dict[str, Path] = {}
    for directory in (root() / "workspaces", own):
        if directory.is_dir():
            templates |= {
                entry.name: entry for entry in sorted(directory.iterdir()) if entry.is_dir()
            }
    return templates


def workspace_files(name: str, own: Path) -> dict[str, bytes]:
    """Return the first files of a workspace made from the template `name`: the template's directory as it
    is."""
    from workspaces.localfs.archive import unpack

    known = workspace_templates(own)
    if name not in known:
        raise unknown_name("template", name, [*known])
    archive = unpack(known[name], Quota())
    if archive.left:
        (first, *_) = archive.left
        raise Refused("template", f"{known[name]}/{first.name}", first.reason)
    return {
        WorkspacePath(path): data
        for path, data in archive.files.items()
        if not is_editor_file(path)
    }
