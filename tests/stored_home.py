"""The stored home: a home and the objects of its bucket as an archive, and what the faces answered of it.

`tests/fixtures/make_stored_home.py` makes both files with one version; `tests/test_stored_home.py` opens them
with this one. The questions lie beside their answers: commands, and requests to a server of the home.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.harness.cli.terminal import Terminal
from tests.harness.web.serving import Server
from tests.servers import BUCKET, S3Server

FIXTURES = Path(__file__).parent / "fixtures"
ARCHIVE = FIXTURES / "stored_home.tar.xz"
ANSWERS = FIXTURES / "stored_home.json"

PREFIX = "stored/"
"""In the bucket. The home's records name it, so no other will do."""

AT_ONCE = 8

TEXT_CHARACTERS_MAX = 1_000
"""Of a text that is compared as it is; of longer ones a digest is."""

_TODAY = re.compile(r"Today is \w+, \d{4}-\d\d-\d\d \(UTC\)\.")

_DROPPED = {"lastUsedAt", "prices"}
"""Fields that say when they were asked, or of what this version brings along."""

_LOOKED_AT = {"home", "records", "workspaces", "machines"}
"""The checks of `harness doctor` that look at the home; the others look at the machine."""

_OF_JOBS = ("id", "kind", "due", "payload")

Question = Mapping[str, Any]
"""{command: […], json?: false} or {method, path, body?, account?}, and the `answer`."""


def unpack(directory: Path, s3: S3Server, archive: Path = ARCHIVE) -> Terminal:
    """Return the stored home in `directory`, with its bucket on this server."""
    with tarfile.open(archive) as stored:
        _extract(stored, directory)
    _fill_bucket(directory, s3)
    home = directory / "home"
    _adopt(home, s3)
    return Terminal(home, s3.environment())


def ask_command(terminal: Terminal, question: Question) -> Any:
    """Run the command and return what it printed, normalised."""
    ended = terminal(*question["command"])
    printed = ended.json if question.get("json", True) else ended.out
    answer = {"code": ended.code, "out": printed}
    return normalised(answer, terminal.home, question["command"])


def ask_commands(terminal: Terminal, questions: Sequence[Question]) -> list[Any]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda question: ask_command(terminal, question), questions))


def ask_server(server: Server, home: Path, questions: Sequence[Question]) -> list[Any]:
    def ask(question: Question) -> Any:
        keyed = Server(server.process, server.url, question["key"])
        with keyed.opened(question["method"], question["path"], question.get("body")) as answer:
            data = answer.read()
            kind = answer.headers["Content-Type"]
            told = (
                json.loads(data)
                if kind == "application/json"
                else data.decode(errors="backslashreplace")
            )
            seen = {"status": answer.status, "etag": answer.headers["ETag"], "body": told}
        return normalised(seen, home, [])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, questions))


def normalised(answer: Any, home: Path, command: Sequence[str]) -> Any:
    """Return the answer without what depends on the machine or on the moment of asking."""
    match answer:
        case {"out": list() as findings} if "doctor" in command:
            kept = [one for one in findings if one["check"] in _LOOKED_AT]
            return normalised({"out": kept}, home, [])
        case {"out": dict() as sections} if "status" in command:
            # A job is shown once it is due, which is later than the making; `jobs` has them all.
            return normalised({"out": {**sections, "jobs": []}}, home, [])
        case {"out": {"jobs": list() as jobs}} if "jobs" in command:
            # What became of the tries of a job is kept for a day.
            kept = [{name: job[name] for name in _OF_JOBS} for job in jobs]
            return normalised({"out": kept}, home, [])
        case {"snapshot": _, "isNew": _, "parts": parts}:  # the rest is of this machine's tools
            return normalised({"parts": parts}, home, [])
        case {"source": "date"}:  # weekdays differ in length
            return {"source": "date"}
        case dict():
            return {
                name: normalised(value, home, [])
                for name, value in answer.items()
                if name not in _DROPPED
            }
        case list():
            return [normalised(one, home, []) for one in answer]
        case str():
            text = _TODAY.sub("Today is <day>.", answer).replace(str(home), "<home>")
            return text if len(text) <= TEXT_CHARACTERS_MAX else _digest(text)
        case _:
            return answer


def differences(expected: Any, answer: Any, where: str = "") -> Iterator[str]:
    """Yield where the answer says something else. An object may have gained fields."""
    match expected, answer:
        case dict(), dict():
            for name, value in expected.items():
                if name not in answer:
                    yield f"{where}.{name} is missing"
                else:
                    yield from differences(value, answer[name], f"{where}.{name}")
        case list(), list() if len(expected) == len(answer):
            for number, (one, other) in enumerate(zip(expected, answer, strict=True)):
                yield from differences(one, other, f"{where}[{number}]")
        case _ if expected != answer:
            yield f"{where}: {expected!r} became {answer!r}"
        case _:
            pass


def objects_of(directory: Path) -> list[dict[str, Any]]:
    """Return key, metadata and file of each object of the bucket."""
    return json.loads((directory / "bucket.json").read_text())


def keys_in(client: Any) -> list[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=PREFIX)
    return [one["Key"] for page in pages for one in page.get("Contents", ())]


def _digest(text: str) -> str:
    return f"{len(text)} characters, SHA-256 {sha256(text.encode()).hexdigest()}"


def _extract(stored: tarfile.TarFile, directory: Path) -> None:
    """Keep modes and times; owners are whoever unpacks. Python 3.11.2 has no filters that would do it."""
    members = stored.getmembers()
    for member in members:
        place = directory / member.name
        if member.isdir():
            place.mkdir(parents=True, exist_ok=True)
            continue
        opened = stored.extractfile(member)
        assert opened is not None, member.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(opened.read())
    for member in reversed(members):
        place = directory / member.name
        place.chmod(member.mode)
        os.utime(place, (member.mtime, member.mtime))


def _fill_bucket(directory: Path, s3: S3Server) -> None:
    """Put the objects there, and nothing else below the prefix."""
    client = s3.client()
    with closing(client), ThreadPoolExecutor(AT_ONCE) as pool:

        def remove(key: str) -> None:
            client.delete_object(Bucket=BUCKET, Key=key)

        def put(one: dict[str, Any]) -> None:
            body = (directory / one["file"]).read_bytes()
            client.put_object(
                Bucket=BUCKET,
                Key=one["key"],
                Body=body,
                Metadata=one["metadata"],
                ContentType=one["contentType"],
            )

        list(pool.map(remove, keys_in(client)))
        list(pool.map(put, objects_of(directory)))


def _adopt(home: Path, s3: S3Server) -> None:
    """Let the baselines name this server and these directories.

    With another port or inode it would be another server or a restored disk, and compared anew.
    """
    host = s3.url.removeprefix("http://")
    for file in (home / "sync").glob("*.db"):
        root = (home / "workspaces" / file.stem).stat()
        identity = f"{root.st_dev}:{root.st_ino}"
        with closing(sqlite3.connect(file)) as baseline, baseline:
            (place,) = baseline.execute("select value from fact where name = 'place'").fetchone()
            renamed = re.sub(r"^127\.0\.0\.1:\d+(?=/)", host, place)
            for name, value in (("place", renamed), ("root", identity)):
                baseline.execute("update fact set value = ? where name = ?", (value, name))
