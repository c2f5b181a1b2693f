"""What editors put beside a file while they work on it: swap files, locks, autosaves, backups.

They are no memory. A swap file is rewritten at every few keystrokes, a lock is a link that leads nowhere,
and a backup is what the history has anyway. So they stay where they are and are in no revision; a scan
names them apart from the problems, for nothing is wrong with them.

A name is not proof: whoever writes such a file on purpose, through the API or by restoring it, has it in
the history, and from then on it is a file like any other.
"""

from __future__ import annotations

import re

_SCRATCH = re.compile(
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
    """Whether the last part of a path is named as editors name what is theirs alone."""
    return _SCRATCH.fullmatch(name.rpartition("/")[2]) is not None
