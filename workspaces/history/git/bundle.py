"""A git bundle: one file with revisions and those of their objects that the receiver lacks.

    # v2 git bundle
    -<a revision that the receiver must have already>
    <the newest revision in the bundle> refs/heads/main
                                                an empty line, and then
    PACK…                                       a thin pack

Any git client can read a bundle (`git bundle verify`, `git fetch <file>`). This module makes bundles and
parses their headers. `quarantine` unpacks and checks the bundles of other machines.
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
"""Largest blob that a store accepts. A longer history is sent in several bundles."""

HEADER_BYTES_MAX = 64 * 1024
"""Room for some fifteen hundred required revisions. Bundles made here name one."""

_MAGIC = b"# v2 git bundle\n"
_KNOWN = re.compile(rb"-([0-9a-f]{40})(?: [^\n]*)?")
_TIP = re.compile(rb"([0-9a-f]{40}) " + NAME.encode())


@dataclass(frozen=True, slots=True)
class Bundle:
    """A parsed bundle."""

    tip: RevisionId
    known: tuple[RevisionId, ...]
    """Revisions that the receiver must have already."""
    pack: bytes


def bundles(
    git_directory: Path,
    tip: RevisionId,
    known: Collection[RevisionId],
    *,
    bytes_max: int = BUNDLE_BYTES_MAX,
) -> Iterator[tuple[RevisionId, bytes]]:
    """Yield bundles of the revisions from `known` to `tip`, oldest first. Each comes as its newest revision
    and its bytes.

    Raises: OverLimit when a single revision is too large."""
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
    """Parse a bundle.

    Raises: Refused when the bytes are no bundle, or a bundle of a kind that this module does not make."""
    head, blank, _ = data[:HEADER_BYTES_MAX].partition(b"\n\n")
    if not data.startswith(_MAGIC) or not blank:
        raise _refused("is not a git bundle")
    *lines, last = head[len(_MAGIC) :].split(b"\n")
    known = [_KNOWN.fullmatch(line) for line in lines]
    tip = _TIP.fullmatch(last)
    if tip is None or None in known:
        raise _refused(f"does not name exactly one newest revision, {NAME}")
    revisions = tuple(RevisionId(match[1].decode()) for match in known if match is not None)
    return Bundle(RevisionId(tip[1].decode()), revisions, data[len(head) + 2 :])


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
        stdin=wanted.encode(),
    )
    required = "".join(f"-{one}\n" for one in known)
    return _MAGIC + f"{required}{tip} {NAME}\n\n".encode() + pack


def _refused(rule: str) -> Refused:
    return Refused("bundle", "in S3", rule)
