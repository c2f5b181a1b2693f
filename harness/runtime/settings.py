"""Settings: from `harness.yaml` in the home, overridden by the environment, which only this file reads.

A key that is not known is refused with the nearest one that is: a misspelt setting that is silently
ignored is worse than none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workspaces.errors import Refused, Unavailable
from workspaces.home.layout import Home, default_root
from workspaces.plain_yaml import load
from workspaces.validation import unknown_name

FORMAT = 1
"""Of `harness.yaml` and of the home as a whole. Newer is refused, older migrated."""

DEFAULT_MODEL = "claude-sonnet-5-5"

_VARIABLES = {
    "model": "HARNESS_MODEL",
    "default_workspace": "HARNESS_DEFAULT_WORKSPACE",
    "default_agent": "HARNESS_DEFAULT_AGENT",
    "records": "HARNESS_RECORDS",
    "prices": "HARNESS_PRICES",
    "public_url": "HARNESS_PUBLIC_URL",
    "embeddings_url": "HARNESS_EMBEDDINGS_URL",
    "embeddings_model": "HARNESS_EMBEDDINGS_MODEL",
    "s3": "HARNESS_S3",
}

_NEW_FILE = f"""\
# Settings of this home. Each can also be given in the environment, which then wins:
# {", ".join(f"{key} ({variable})" for key, variable in _VARIABLES.items())}
format: {FORMAT}
"""


@dataclass(frozen=True, slots=True)
class Settings:
    home: Home
    model: str = DEFAULT_MODEL
    """For agents that do not name one. `demo` is the offline demo model."""
    default_workspace: str = "notes"
    default_agent: str = "assistant"
    records: str = "sqlite:state.db"
    """Where records are kept; a relative path is below the home."""
    prices: str | None = None
    """A file of prices that count instead of ours; a relative path is below the home."""
    admin_key: str | None = field(default=None, repr=False)
    """Makes accounts; without one the home's own `admin.key` does."""
    public_url: str = ""
    """By which `harness up` is reached through a proxy, as in `https://memory.example.com`; several
    with blanks between them. Beside these it answers to its own address alone."""
    embeddings_url: str | None = None
    """An endpoint that speaks as OpenAI's does, for recall by meaning too; without one words decide."""
    embeddings_model: str = "text-embedding-3-small"
    embeddings_key: str | None = field(default=None, repr=False)
    s3: str | None = None
    """s3://bucket/prefix where workspaces are shared; new ones are kept there then."""
    anthropic_api_key: str | None = field(default=None, repr=False)
    anthropic_base_url: str | None = None

    @property
    def public_urls(self) -> list[str]:
        return self.public_url.split()


def read_settings(
    home: Path | None = None, *, environment: Mapping[str, str] | None = None
) -> Settings:
    """Of the named home, else HARNESS_HOME's, else the default one, which is made when missing."""
    environment = os.environ if environment is None else environment
    stated = environment.get("HARNESS_HOME")
    place = Home(_root(home or (Path(stated) if stated else None)))
    place.prepare()
    values = _file(place)
    for key, variable in _VARIABLES.items():
        if environment.get(variable):
            values[key] = environment[variable]
    return Settings(
        home=place,
        admin_key=environment.get("HARNESS_ADMIN_KEY") or None,
        embeddings_key=environment.get("HARNESS_EMBEDDINGS_KEY") or None,
        anthropic_api_key=environment.get("ANTHROPIC_API_KEY") or None,
        anthropic_base_url=environment.get("ANTHROPIC_BASE_URL") or None,
        **values,
    )


def write_setting(home: Home, key: str, value: str) -> None:
    """Into `harness.yaml`, whole or not at all; everything else in it stays as a person wrote it."""
    text = _written(home)
    line = f"{key}: {value}\n"
    stated = re.compile(rf"^{re.escape(key)}:.*\n?", re.MULTILINE)
    if stated.search(text):
        text = stated.sub(lambda _: line, text, count=1)
    else:
        text = (text if text.endswith("\n") or not text else f"{text}\n") + line
    beside = home.root / "staging" / f"{home.settings.name}.{os.getpid()}"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        beside.replace(home.settings)
    except OSError as error:
        raise Unavailable(str(home.settings), error.strerror or str(error)) from error


def configured_directory(variable: str, default: str) -> Path:
    """Where another program keeps its configuration: as its own variable says, else as it does."""
    return Path(os.environ.get(variable) or default).expanduser()


def _root(stated: Path | None) -> Path:
    try:
        return (stated or default_root()).expanduser().absolute()
    except (OSError, RuntimeError) as error:  # a user who is not known, a directory that is gone
        remedy = "name a directory that you can write with --home or HARNESS_HOME"
        raise Unavailable(f"home {stated or '~'}", str(error), remedy=remedy) from error


def _written(home: Home) -> str:
    """What stands in `harness.yaml`; a home without one gets it."""
    try:
        return home.settings.read_text()
    except FileNotFoundError:
        return _write_new(home.settings)
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(str(home.settings), f"cannot be read: {error}") from error


def _file(home: Home) -> dict[str, Any]:
    """What `harness.yaml` says."""
    values = load(_written(home), name=str(home.settings))
    _check_format(home, values.pop("format", str(FORMAT)))
    for key, value in values.items():
        if key not in _VARIABLES:
            raise unknown_name(str(home.settings), key, [*_VARIABLES, "format"])
        if not isinstance(value, str) or not value or not value.isprintable():
            raise Refused(f"{home.settings}: {key}", value, "must be a text of one line")
    return values


def _check_format(home: Home, stated: object) -> None:
    if not (isinstance(stated, str) and re.fullmatch("[0-9]{1,9}", stated)):
        raise Refused(f"{home.settings}: format", stated, "must be a number")
    if int(stated) > FORMAT:
        raise Refused(
            f"{home.settings}: format",
            int(stated),
            f"is newer than this version can read ({FORMAT})",
            remedy="use the version of workspace-harness that made this home, or a newer one",
        )


def _write_new(file: Path) -> str:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(_NEW_FILE)
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = "name a directory that you can write with --home or HARNESS_HOME"
        raise Unavailable(f"home {file.parent}", reason, remedy=remedy) from error
    return _NEW_FILE
