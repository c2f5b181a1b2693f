"""Find texts in raw bytes below directories: a program of its own, that knows nothing of the harness.

It looks at each file as it is, inflates every zlib stream and every zstd frame in it, asks SQLite for all
values of a database, asks git for all objects of every git directory and of every pack that a bundle holds,
undoes JSON escapes, and compares without case, blanks and punctuation.

    python scan.py DIRECTORY… < TEXTS      one text in each line; prints JSON: text → the files that hold it
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

ZLIB_HEADERS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
BUNDLE_MAGIC = b"# v2 git bundle\n"
SQLITE_MAGIC = b"SQLite format 3\x00"


def plain(text: str) -> str:
    return re.sub(r"[^0-9a-z]+", "", text.casefold())


def unescaped(text: str) -> str:
    text = re.sub(r"\\+u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    return re.sub(r"\\+[nrtbf\"/]", " ", text)


def readings(data: bytes) -> tuple[str, str]:
    """Return the letters and digits of bytes: as they are, and without JSON escapes."""
    text = data.decode("utf-8", "replace")
    return plain(text), plain(unescaped(text)) if "\\" in text else ""


def streams(data: bytes) -> Iterator[bytes]:
    """Yield the bytes, and what every compressed stream in them unpacks to."""
    yield data
    for header in ZLIB_HEADERS:
        at = data.find(header)
        while at >= 0:
            with suppress(zlib.error):
                yield zlib.decompressobj().decompress(data[at:], 1 << 26)
            at = data.find(header, at + 1)
    if data.startswith(ZSTD_MAGIC):
        import zstandard

        yield zstandard.ZstdDecompressor().decompressobj().decompress(data)


def objects(directory: Path) -> bytes:
    git = ["git", f"--git-dir={directory}", "cat-file", "--batch-all-objects", "--batch"]
    return subprocess.run(git, check=False, capture_output=True).stdout


def values(database: Path) -> bytes:
    """Return the values of all rows: a long one lies on several pages, with bytes of SQLite between them."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, "copy.db")
        for end in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{database}{end}", f"{copy}{end}")
        with closing(sqlite3.connect(copy)) as opened, suppress(sqlite3.Error):
            tables = opened.execute(
                "select name from sqlite_master where type = 'table'"
            ).fetchall()
            rows = (
                row for (table,) in tables for row in opened.execute(f'select * from "{table}"')
            )
            return "\n".join(str(one) for row in rows for one in row).encode(errors="replace")
    return b""


def bundled(bundles: list[Path]) -> bytes:
    """Return all objects of the packs in bundles. A thin pack builds on others, so each is tried until none
    helps another. What one builds on may be gone: then only its streams can be read."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["git", "init", "-q", "--bare", directory], check=True)
        left, before = bundles, len(bundles) + 1
        while left and len(left) < before:
            before, left = len(left), [one for one in left if not unpacked(one, directory)]
        return objects(Path(directory))


def unpacked(bundle: Path, directory: str) -> bool:
    pack = bundle.read_bytes().partition(b"\n\n")[2]
    git = ["git", f"--git-dir={directory}", "index-pack", "--stdin", "--fix-thin"]
    return subprocess.run(git, input=pack, check=False, capture_output=True).returncode == 0


def parts(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield everything that can be read below `root`, with the name of its file or git directory."""
    bundles: list[Path] = []
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        yield f"{name} (its name)", name.encode()
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            yield from ((name, part) for part in streams(data))
            if data.startswith(SQLITE_MAGIC):
                yield f"{name} (a row)", values(path)
            if data.startswith(BUNDLE_MAGIC):
                bundles.append(path)
        elif path.name.endswith(".git"):
            yield f"{name} (an object)", objects(path)
    if bundles:
        yield "bundles (an object)", bundled(bundles)


def all_holders(root: Path, texts: list[str]) -> dict[str, list[str]]:
    """Return, for each text, the files and git directories below `root` that hold it."""
    wanted = {text: plain(text) for text in texts}
    found: dict[str, list[str]] = {text: [] for text in texts}
    for name, data in parts(root):
        one, other = readings(data)
        for text, letters in wanted.items():
            if letters in one or letters in other:
                found[text].append(name)
    return found


def holders(root: Path, text: str) -> list[str]:
    """Return the files and git directories below `root` that hold a text."""
    return all_holders(root, [text])[text]


if __name__ == "__main__":
    sought = sys.stdin.read().splitlines()
    every: dict[str, list[str]] = {text: [] for text in sought}
    for place in sys.argv[1:]:
        for text, names in all_holders(Path(place), sought).items():
            every[text] += [f"{place}: {name}" for name in names]
    print(json.dumps({text: names for text, names in every.items() if names}))
