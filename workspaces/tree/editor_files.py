"""Recognise the files that editors keep beside a file while they work on it: swap files, locks, autosaves,
backups.

They are no memory. An editor rewrites a swap file at every few keystrokes. A lock is a link that leads
nowhere. The history has the content of a backup anyway. So these files stay where they are and are in no
revision. A scan lists them apart from the problems, because nothing is wrong with them.

A name is not proof. A caller may write such a file on purpose, through the API or by restoring it. Then the
history has it, and from then on it is a file like any other.
"""

from __future__ import annotations

import re

_EDITOR_FILE = re.compile(
    r"""
    .+~                     # backups of vim, emacs, nano, gedit; vim's undo files
    | \..+\.sw[a-z]x?       # vim's and nano's swap files
    | \..+\.kate-swp
    | \#.+\#                # emacs: what was not saved yet
    | \.\#.+                # emacs: who is editing, as a link
    | \.~lock\..+\#         # LibreOffice: who is editing
    """,
    re.VERBOSE | re.DOTALL,
)


def is_editor_file(name: str) -> bool:
    """Return True if the last part of a path is a name that editors give to their own files."""
    return _EDITOR_FILE.fullmatch(name.rpartition("/")[2]) is not None
