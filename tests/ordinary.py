"""Work done by an ordinary user, also where the suite runs as root: root may open everything.

The interpreter and what it imports need not be reachable for that user: root runs the work once, as a
rehearsal in which everything is imported; then the process gives its rights away and runs it again. Where
the whole work is too much for a rehearsal, the code has a function `rehearse`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ORDINARY_UID = 65534 if os.geteuid() == 0 else os.geteuid()
WORK_S_MAX = 300

_FRAME = """
import json, os, sys, tempfile
{code}
if os.geteuid() == 0:
    with tempfile.TemporaryDirectory() as place:
        globals().get("rehearse", work)(place)
    os.setgroups([])
    os.setgid({uid})
    os.setuid({uid})
print(json.dumps(work(sys.argv[1])))
"""


@contextmanager
def reachable_directory(uid: int | None = None) -> Iterator[Path]:
    """A directory that other users may pass through, as pytest's are not; it belongs to `uid`."""
    with tempfile.TemporaryDirectory(prefix="harness-test-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        if uid is not None and os.geteuid() == 0:
            os.chown(directory, uid, uid)
        yield directory


def as_ordinary_user(code: str, *, environment: Mapping[str, str] | None = None) -> Any:
    """What `work(place)` of this code returns, `place` being an empty directory of that user."""
    with reachable_directory(ORDINARY_UID) as place:
        ended = subprocess.run(
            [
                sys.executable,
                "-c",
                _FRAME.format(code=textwrap.dedent(code), uid=ORDINARY_UID),
                place,
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            cwd=place,
            capture_output=True,
            text=True,
            timeout=WORK_S_MAX,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])
