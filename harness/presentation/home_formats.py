"""Which formats the parts of a home have, and whether this version can read them. Nothing is changed.

A home that this version refuses is shown all the same: what it needs stands in its `harness.yaml`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness.runtime import settings
from workspaces.errors import Failure, NewerFormat
from workspaces.home.layout import Home
from workspaces.home.locations import bucket_at, local_file
from workspaces.localfs.sqlite_file import open_for_reading
from workspaces.plain_yaml import load
from workspaces.remote import registry
from workspaces.storage import sqlite
from workspaces.sync import baseline


@dataclass(frozen=True, slots=True)
class PartFormat:
    """The format of one part of a home."""

    part: str
    format: int | None
    """None: the part is not there, or has no format of its own."""
    readable: int
    """The newest format that this version reads."""
    needs: str | None = None
    """The oldest version that reads the part, if the part says so."""
    detail: str = ""

    @property
    def is_readable(self) -> bool:
        return self.format is None or self.format <= self.readable


@dataclass(frozen=True, slots=True)
class HomeFormats:
    """The version of this program and the formats of one home."""

    version: str
    home: Path
    exists: bool
    parts: tuple[PartFormat, ...]

    @property
    def is_readable(self) -> bool:
        return all(one.is_readable for one in self.parts)

    def as_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "home": str(self.home),
            "exists": self.exists,
            "isReadable": self.is_readable,
            "parts": [
                {
                    "part": one.part,
                    "format": one.format,
                    "readable": one.readable,
                    "isReadable": one.is_readable,
                    "needs": one.needs,
                    "detail": one.detail or None,
                }
                for one in self.parts
            ],
        }


def formats_of(home: Path | None, *, environment: Mapping[str, str] | None = None) -> HomeFormats:
    """Return the formats of a home. S3 is asked if the home uses it."""
    environment = os.environ if environment is None else environment
    opened = settings.named_home(home, environment)
    exists = opened.settings.exists()
    parts = tuple(_parts(opened, environment)) if exists else ()
    return HomeFormats(version("workspace-harness"), opened.root, exists, parts)


def _parts(home: Home, environment: Mapping[str, str]) -> Iterator[PartFormat]:
    values = load(home.settings.read_text(), name=str(home.settings))
    found = settings.format_of(home, values)
    newer = NewerFormat("", found, readable=settings.FORMAT, needs=values.get("needs"))
    yield PartFormat("harness.yaml", found, settings.FORMAT, newer.needs)
    if found > settings.FORMAT:
        # Its other keys may mean something else now, so nobody looks where they point.
        return

    def setting(key: str) -> str | None:
        return environment.get(settings.VARIABLES[key]) or values.get(key)

    yield _records(home, setting("records") or settings.Settings(home).records)
    baselines = [_file_format(file) for file in sorted((home.root / "sync").glob("*.db"))]
    known = [one for one in baselines if one is not None]
    detail = f"{len(known)} of {len(baselines)} files" if baselines else "nothing was synced yet"
    yield PartFormat("sync", max(known, default=None), baseline.FORMAT, detail=detail)
    location = setting("s3")
    if location is not None:
        yield from _registries(location)


def _records(home: Home, location: str) -> PartFormat:
    file = local_file(location, home.root)
    if file is None:
        # A shared store holds records of several homes. Each of them states its own format.
        return PartFormat("records", None, sqlite.FORMAT, detail=f"{location}: that of the home")
    found = _file_format(file)
    return PartFormat("records", found, sqlite.FORMAT, detail=str(file))


def _registries(location: str) -> Iterator[PartFormat]:
    """Yield the format of each account's registry in the bucket."""
    readable = registry.FORMAT
    try:
        place = bucket_at(location)
    except Failure as failure:
        yield PartFormat("s3", None, readable, detail=str(failure))
        return
    try:
        ids, _ = place.accounts()
        if not ids:
            yield PartFormat("s3", None, readable, detail=f"{location}: no account yet")
        for account_id in ids:
            detail = f"{location}: {account_id}"
            try:
                place.registry(account_id).read("account", account_id)
                yield PartFormat("s3", readable, readable, detail=detail)
            except NewerFormat as newer:
                found = newer.value if isinstance(newer.value, int) else None
                yield PartFormat("s3", found, readable, newer.needs, detail)
    except Failure as failure:
        yield PartFormat("s3", None, readable, detail=str(failure))
    finally:
        place.close()


def _file_format(file: Path) -> int | None:
    """Return the number that the file carries; None if there is none, or it cannot be read."""
    if not file.exists():
        return None
    try:
        with closing(open_for_reading(file)) as database:
            return int(database.execute("pragma user_version").fetchone()[0])
    except sqlite3.Error:
        return None
