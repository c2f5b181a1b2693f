"""Find a text in raw bytes below directories: a program of its own, that knows nothing of the harness.

It looks at each file as it is, inflates every zlib stream and every zstd frame in it, asks git for all
objects of every git directory, undoes JSON escapes, and compares without case, blanks and punctuation.

    python scan.py TEXT DIRECTORY…      prints the files that hold the text; exit code 1 if there are any
"""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ZLIB_HEADERS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


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


def all_holders(root: Path, texts: list[str]) -> dict[str, list[str]]:
    """Return, for each text, the files and git directories below `root` that hold it."""
    wanted = {text: plain(text) for text in texts}
    found: dict[str, list[str]] = {text: [] for text in texts}

    def look(name: str, data: bytes) -> None:
        one, other = readings(data)
        for text, letters in wanted.items():
            if letters in one or letters in other:
                found[text].append(name)

    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        look(f"{name} (its name)", name.encode())
        if path.is_file() and not path.is_symlink():
            for part in streams(path.read_bytes()):
                look(name, part)
        elif path.name.endswith(".git"):
            look(f"{name} (an object)", objects(path))
    return found


def holders(root: Path, text: str) -> list[str]:
    """Return the files and git directories below `root` that hold a text."""
    return all_holders(root, [text])[text]


if __name__ == "__main__":
    lines = [
        f"{place}: {name}" for place in sys.argv[2:] for name in holders(Path(place), sys.argv[1])
    ]
    print("\n".join(lines))
    sys.exit(1 if lines else 0)
