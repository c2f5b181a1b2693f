"""Name the second file: a version that could not be merged is kept beside the first, under the same name on
every machine.

`notes/plan.md`, whose local version begins with 1f2e…, is kept as `notes/plan.conflict-1f2e….md`. The name
depends on the path and the version alone. So two machines that have the same two versions make the same
file. It is listed as a problem until a person has taken from it what is needed and removed it.
"""

from __future__ import annotations

import re

from workspaces.ids import Version
from workspaces.paths import PART_BYTES_MAX, WorkspacePath

VERSION_HEX_DIGITS = 12

_MARK = re.compile(rf"\.conflict-[0-9a-f]{{{VERSION_HEX_DIGITS}}}(?=(\.[^./]*)?$)")


def conflict_path(path: WorkspacePath, version: Version) -> WorkspacePath:
    directory, slash, name = path.rpartition("/")
    name = _MARK.sub("", name)
    stem, dot, extension = name.rpartition(".")
    if not stem:
        stem, dot, extension = name, "", ""
    mark = f".conflict-{version[:VERSION_HEX_DIGITS]}{dot}{extension}"
    room = PART_BYTES_MAX - len(mark.encode())
    short = stem.encode()[: max(room, 1)].decode(errors="ignore")
    return WorkspacePath(f"{directory}{slash}{short}{mark}")


def is_conflict(path: str) -> bool:
    return _MARK.search(path) is not None


def original_path(path: str) -> WorkspacePath:
    """Return the path of the file beside which a conflict copy lies."""
    return WorkspacePath(_MARK.sub("", path))
