"""A bundle: revisions and everything in them that others do not have yet, as one file of git's.

    # v2 git bundle
    -<a revision that must be there already>
    <the newest one in it> refs/heads/main
                                                an empty line, and then
    PACK…                                       what git calls a thin pack

Any git client can read one (`git bundle verify`, `git fetch <file>`). It is made here; what strangers
made is taken in by `quarantine`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from workspaces.errors import OverLimit, Refused
from workspaces.history.git.branch import NAME
from workspaces.history.git.program import run_git
from workspaces.revision import RevisionId
from workspaces.storage.blobs import BLOB_BYTES_MAX

BUNDLE_BYTES_MAX = BLOB_BYTES_MAX
"""What a store takes in one piece. A longer history travels in several."""

HEADER_BYTES_MAX = 64 * 1024
"""Some fifteen hundred revisions that must be there; ours name one."""

_MAGIC = b"# v2 git bundle\n"
_KNOWN = re.compile(rb"-([0-9a-f]{40})(?: [^\n]*)?")
_TIP = re.compile(rb"([0-9a-f]{40}) " + NAME.encode())


@dataclass(frozen=True, slots=True)
class Bundle:
    tip: RevisionId
    known: tuple[RevisionId, ...]
    """What must be there already."""
    pack: bytes


def bundles(
    git_directory: Path,
    tip: RevisionId,
    known: Collection[RevisionId],
    *,
    bytes_max: int = BUNDLE_BYTES_MAX,
) -> Iterator[tuple[RevisionId, bytes]]:
    """What `tip` has and `known` have not, the oldest first: the newest revision in each, and its bytes.
    OverLimit when a single revision is too large."""
    data = _bundle(git_directory, tip, known)
    if len(data) <= bytes_max:
        yield tip, data
        return
    wanted = [tip, *(f"^{one}" for one in known)]
    walk = ("rev-list", "--topo-order", "--reverse", "--end-of-options")
    revisions = run_git(f"--git-dir={git_directory}", *walk, *wanted, "--").decode().split()
    if len(revisions) < 2:
        raise OverLimit(
            f"revision {tip[:12]} in S3", maximum=bytes_max, actual=len(data), unit="bytes"
        )
    middle = RevisionId(revisions[len(revisions) // 2 - 1])
    yield from bundles(git_directory, middle, known, bytes_max=bytes_max)
    yield from bundles(git_directory, tip, [*known, middle], bytes_max=bytes_max)


def parse_bundle(data: bytes) -> Bundle:
    """Refused when it is none, or one of a kind that is not made here."""
    head, blank, _ = data[:HEADER_BYTES_MAX].partition(b"\n\n")
    if not data.startswith(_MAGIC) or not blank:
        raise _refused("is no bundle of git's")
    *lines, last = head[len(_MAGIC) :].split(b"\n")
    known = [_KNOWN.fullmatch(line) for line in lines]
    tip = _TIP.fullmatch(last)
    if tip is None or None in known:
        raise _refused(f"does not have one newest revision, {NAME}")
    names = tuple(RevisionId(found[1].decode()) for found in known if found is not None)
    return Bundle(RevisionId(tip[1].decode()), names, data[len(head) + 2 :])


def _bundle(git_directory: Path, tip: RevisionId, known: Collection[RevisionId]) -> bytes:
    wanted = "".join(f"{one}\n" for one in (tip, *(f"^{one}" for one in known)))
    pack = run_git(
        f"--git-dir={git_directory}",
        "pack-objects",
        "--revs",
        "--thin",
        "--stdout",
        "--delta-base-offset",
        "-q",
        told=wanted.encode(),
    )
    needed = "".join(f"-{one}\n" for one in known)
    return _MAGIC + f"{needed}{tip} {NAME}\n\n".encode() + pack


def _refused(rule: str) -> Refused:
    return Refused("bundle", "in S3", rule)
