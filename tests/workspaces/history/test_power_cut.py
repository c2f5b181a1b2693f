"""A history after a power cut: the system calls of a writing process are replayed on a simulated disk.

That disk keeps flushed bytes and flushed names only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.strace import python, run, strace

__all__ = ["strace"]

WRITER = Path(__file__).parent / "history_writer.py"
CALLS = (
    "open,openat,creat,write,pwrite64,writev,copy_file_range,fsync,fdatasync,syncfs,"
    "mkdir,mkdirat,rename,renameat,renameat2,link,linkat,unlink,unlinkat"
)
BRANCH = "refs/heads/main"
OBJECT = re.compile(
    r"/h\.git/objects/([0-9a-f]{2}/[0-9a-f]{38}|pack/pack-[0-9a-f]{40}\.(pack|idx))$"
)
ON_THE_WAY = re.compile(r"/h\.git(/objects(/pack|/[0-9a-f]{2})?)?$")
"""Directories that an object is found through."""

_LINE = re.compile(r"^(\d+) +(.*)$")
_CALL = re.compile(r"^(\w+)\((.*)\) += (-?\d+)")
_RESUMED = re.compile(r"^<\.\.\. \w+ resumed>(.*)$")
_FILE = re.compile(r"^\d+<([^>]*)>")
_NAME = re.compile(r'(?:AT_FDCWD(?:<([^>]*)>)?|\d+<([^>]*)>)?(?:, )?"((?:[^"\\]|\\.)*)"')


class Disk:
    """Which bytes and which names below a directory have not been flushed since they changed."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self.bytes: set[str] = set()
        """Files."""
        self.names: set[str] = set()
        """Of files and directories: kept once the directory that they are in is flushed."""
        self.flushed = 0

    @property
    def unflushed(self) -> set[str]:
        return self.bytes | self.names

    def objects(self) -> set[str]:
        """What of it an object could be lost with."""
        return {one for one in self.unflushed if OBJECT.search(one) or ON_THE_WAY.search(one)}

    def do(self, call: str, arguments: str) -> None:
        match call:
            case "write" | "pwrite64" | "writev" | "copy_file_range":
                self._change(self.bytes, _file(arguments))
            case "open" | "openat" | "creat":
                if "O_CREAT" in arguments or call == "creat":
                    self._change(self.names, _names(arguments)[0])
            case "mkdir" | "mkdirat":
                self._change(self.names, _names(arguments)[0])
            case "fsync" | "fdatasync":
                self._flush(_file(arguments))
            case "syncfs":
                self.flushed += 1
                self.bytes.clear()
                self.names.clear()
            case "rename" | "renameat" | "renameat2" | "link" | "linkat":
                self._rename(*_names(arguments), is_link="link" in call)
            case _:
                gone = _names(arguments)[0]
                self.bytes.discard(gone)
                self.names.discard(gone)

    def _change(self, changed: set[str], path: str) -> None:
        if path.startswith(f"{self._root}/"):
            changed.add(path)

    def _flush(self, path: str) -> None:
        self.flushed += 1
        self.bytes.discard(path)
        self.names = {name for name in self.names if name.rpartition("/")[0] != path}

    def _rename(self, source: str, target: str, *, is_link: bool) -> None:
        for changed in (self.bytes, self.names):
            below = {one for one in changed if one == source or one.startswith(f"{source}/")}
            changed |= {target + one[len(source) :] for one in below}
            if not is_link:
                changed -= below
        self._change(self.names, target)


def _file(arguments: str) -> str:
    found = _FILE.match(arguments)
    return found[1] if found else ""


def _names(arguments: str) -> list[str]:
    found = _NAME.findall(arguments)
    return [str(Path(one or other or "/", name)) for one, other, name in found]


def calls(trace: str) -> Iterator[tuple[str, str]]:
    """Those that succeeded, in the order in which they ended."""
    begun: dict[str, str] = {}
    for line in trace.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        process, told = found.groups()
        if told.endswith("<unfinished ...>"):
            begun[process] = told.removesuffix("<unfinished ...>").rstrip()
            continue
        resumed = _RESUMED.match(told)
        if resumed:
            told = begun.pop(process) + resumed[1]
        call = _CALL.match(told)
        if call and int(call[3]) >= 0:
            yield call[1], call[2]


@pytest.mark.parametrize("mode", ["few", "some", "many", "packed", "3", "200"])
def test_a_confirmed_revision_survives_a_power_cut(tmp_path: Path, strace: str, mode: str) -> None:
    """`few`: loose objects, each flushed; `some`: loose, flushed together; `many`: one pack; `packed`: a
    pack in the place of all; a number: files that come from another history, loose or as their pack."""
    place, log = tmp_path / "place", tmp_path / "trace"
    place.mkdir()
    tracing = (strace, "-f", "-y", "-qq", "-s", "4096", "-o", log, "-e", f"trace={CALLS}")
    told = run(*tracing, *python(WRITER, place, mode))
    ours = str(place / "h.git")
    disk, moves, promises = Disk(place), 0, 0
    for call, arguments in calls(log.read_text(errors="replace")):
        names = _names(arguments)
        if call.startswith(("rename", "link")):
            source, target = names
            if target == ours:
                below = {one for one in disk.unflushed if one.startswith(f"{source}/")}
                assert not below, "a history gets its name before all of it is kept"
            if target == f"{ours}/{BRANCH}":
                moves += 1
                assert not disk.objects(), "the branch moves to what may be lost"
            if OBJECT.search(target) or target == f"{ours}/{BRANCH}":
                assert source not in disk.bytes, f"{target} gets its name before its bytes are kept"
        if call.startswith("unlink") and OBJECT.search(names[0]):
            assert not disk.objects(), f"{names[0]} goes before what replaces it is kept"
        disk.do(call, arguments)
        if call == "write" and '"done\\n"' in arguments:
            promises += 1
            assert not disk.objects() | (disk.unflushed & {ours, f"{ours}/{BRANCH}"}), "may be lost"
    assert promises == told.count("done") > 0
    assert moves > 0
    assert disk.flushed > 0
