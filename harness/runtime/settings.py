"""Settings from `harness.yaml` in the home, overridden by the environment. Only this file reads the
environment.

An unknown key is refused, and the refusal names the nearest known key. A misspelt setting that is silently
ignored is worse than none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workspaces.errors import Refused, Unavailable, unknown_name
from workspaces.home.layout import Home, default_root
from workspaces.home.locations import shown_records
from workspaces.plain_yaml import load

FORMAT = 1
"""The format of `harness.yaml` and of the home as a whole. A newer format is refused, an older one
migrated."""

DEFAULT_MODEL = "claude-sonnet-5-5"
DEFAULT_SMALL_MODEL = "claude-haiku-4-5-20251001"

VARIABLES = {
    "model": "HARNESS_MODEL",
    "small_model": "HARNESS_SMALL_MODEL",
    "default_workspace": "HARNESS_DEFAULT_WORKSPACE",
    "default_agent": "HARNESS_DEFAULT_AGENT",
    "records": "HARNESS_RECORDS",
    "prices": "HARNESS_PRICES",
    "public_url": "HARNESS_PUBLIC_URL",
    "embeddings_url": "HARNESS_EMBEDDINGS_URL",
    "embeddings_model": "HARNESS_EMBEDDINGS_MODEL",
    "s3": "HARNESS_S3",
    "transcripts": "HARNESS_TRANSCRIPTS",
    "webhooks_private": "HARNESS_WEBHOOKS_PRIVATE",
    "trash_days": "HARNESS_TRASH_DAYS",
    "fact_secrets": "HARNESS_FACT_SECRETS",
    "clock_shift": "HARNESS_CLOCK_SHIFT",
}
"""The settings that `harness.yaml` may hold, with their variables."""

_NEW_FILE = f"""\
# Settings of this home. Each can also be given in the environment, which then wins:
# {", ".join(f"{key} ({variable})" for key, variable in VARIABLES.items())}
format: {FORMAT}
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one home."""

    home: Home
    """The directory that holds everything."""
    model: str = DEFAULT_MODEL
    """The model of agents that name none. `demo` is the offline demo model."""
    small_model: str = DEFAULT_SMALL_MODEL
    """The model that reads finished conversations in the background, for facts and memory blocks."""
    default_workspace: str = "notes"
    """The workspace that a new home gets."""
    default_agent: str = "assistant"
    """The agent that a new home gets; `chat` and `run` ask it unless they name another."""
    records: str = field(default="sqlite:state.db", repr=False)
    """The record store; a relative path is below the home.

    Use `dynamodb:TABLE` after `harness admin init-dynamodb TABLE`, or `postgresql://USER@HOST/DATABASE` after
    `harness admin init-postgres`.
    """
    prices: str | None = None
    """A file of prices that count instead of ours; a relative path is below the home."""
    admin_key: str | None = field(default=None, repr=False)
    """The key that may create accounts. Without this setting, the home's own `admin.key` may."""
    public_url: str = ""
    """The public address of `harness up` behind a proxy, as in `https://memory.example.com`.

    Several are separated by blanks. The server answers to these and to its own address only.
    """
    embeddings_url: str | None = None
    """An endpoint with OpenAI's interface, so that recall can also search by meaning. Without it recall
    compares words."""
    embeddings_model: str = "text-embedding-3-small"
    """The model of that endpoint."""
    embeddings_key: str | None = field(default=None, repr=False)
    """The key of that endpoint."""
    s3: str | None = None
    """The bucket where workspaces are shared, as s3://bucket/prefix. New workspaces are then shared."""
    transcripts: str = ""
    """Further directories with conversations of Codex, Claude Code or Claude Desktop. They are separated as
    in `PATH`. Each is an agent's own directory or a person's home."""
    webhooks_private: bool = False
    """`true` lets webhooks go to addresses that are not public, such as those of this machine."""
    trash_days: int | None = None
    """Days after which `harness up` removes a deleted workspace from the trash. Without it nobody does but a
    person. A workspace with changes that never reached another machine stays."""
    fact_secrets: str = "refuse"
    """What happens to a fact that holds a secret: `refuse` or `allow`."""
    clock_shift: str | None = None
    """Seconds by which this home's clock is ahead of the true time, to rehearse schedules."""
    anthropic_api_key: str | None = field(default=None, repr=False)
    """The key of the provider, as in its SDK. Without it the offline demo model answers."""
    anthropic_base_url: str | None = None
    """The address of the provider or of your own server, as in its SDK."""

    @property
    def records_shown(self) -> str:
        """The record store for a person: without a password."""
        return shown_records(self.records)

    @property
    def public_urls(self) -> list[str]:
        return self.public_url.split()

    @property
    def transcript_roots(self) -> list[Path]:
        roots = self.transcripts.split(os.pathsep)
        return [Path(root).expanduser() for root in roots if root.strip()]


def read_settings(
    home: Path | None = None, *, environment: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings of a home: the named one, else the one in HARNESS_HOME, else the default one.

    A home that does not exist yet is created.
    """
    environment = os.environ if environment is None else environment
    root = environment.get("HARNESS_HOME")
    opened = Home(_root(home or (Path(root) if root else None)))
    opened.prepare()
    values = _file_values(opened)
    for key, variable in VARIABLES.items():
        if environment.get(variable):
            values[key] = environment[variable]
    _check_shift(values.get("clock_shift"))
    if "webhooks_private" in values:
        values["webhooks_private"] = _switch("webhooks_private", values["webhooks_private"])
    if "trash_days" in values:
        values["trash_days"] = _days("trash_days", values["trash_days"])
    _check_fact_secrets(values.get("fact_secrets", "refuse"))
    return Settings(
        home=opened,
        admin_key=environment.get("HARNESS_ADMIN_KEY") or None,
        embeddings_key=environment.get("HARNESS_EMBEDDINGS_KEY") or None,
        anthropic_api_key=environment.get("ANTHROPIC_API_KEY") or None,
        anthropic_base_url=environment.get("ANTHROPIC_BASE_URL") or None,
        **values,
    )


def has_own_values(home: Home) -> bool:
    """Return True if a person has set anything in `harness.yaml`."""
    return bool(_file_values(home))


def write_setting(home: Home, key: str, value: str) -> None:
    """Write a setting to `harness.yaml`, whole or not at all. The rest of the file stays as a person wrote
    it."""
    text = _file_text(home)
    line = f"{key}: {value}\n"
    pattern = re.compile(rf"^{re.escape(key)}:.*\n?", re.MULTILINE)
    if pattern.search(text):
        text = pattern.sub(lambda _: line, text, count=1)
    else:
        text = (text if text.endswith("\n") or not text else f"{text}\n") + line
    temporary = home.root / "staging" / f"{home.settings.name}.{os.getpid()}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(home.settings)
    except OSError as error:
        raise Unavailable(str(home.settings), error.strerror or str(error)) from error


def configured_directory(variable: str, default: str) -> Path:
    """Return the directory where another program keeps its configuration.

    The program's own environment variable decides, otherwise the program's default.
    """
    return Path(os.environ.get(variable) or default).expanduser()


def _root(value: Path | None) -> Path:
    try:
        return (value or default_root()).expanduser().absolute()
    except (OSError, RuntimeError) as error:  # an unknown user, or a deleted directory
        remedy = "name a directory that you can write with --home or HARNESS_HOME"
        raise Unavailable(f"home {value or '~'}", str(error), remedy=remedy) from error


def _check_shift(value: str | None) -> None:
    """Raise Refused unless this is a number of seconds within a century."""
    if value is not None and re.fullmatch(r"-?[0-9]{1,10}(\.[0-9]{1,6})?", value) is None:
        raise Refused("clock_shift", value, "must be a number of seconds")


def _switch(key: str, value: str) -> bool:
    """Return True for `true`.

    Raises: Refused for anything but `true` and `false`.
    """
    if value not in {"true", "false"}:
        raise Refused(key, value, "must be true or false")
    return value == "true"


def _days(key: str, value: str) -> int:
    """Return a number of days.

    Raises: Refused for anything but a whole number of at least one.
    """
    if re.fullmatch("[1-9][0-9]{0,4}", value) is None:
        raise Refused(key, value, "must be a number of days, from 1 to 99999")
    return int(value)


def _check_fact_secrets(value: str) -> None:
    if value not in ("refuse", "allow"):
        raise Refused("fact_secrets", value, "must be refuse or allow")


def _file_text(home: Home) -> str:
    """Return the text of `harness.yaml`; create the file if the home has none."""
    try:
        return home.settings.read_text()
    except FileNotFoundError:
        return _write_new(home.settings)
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(str(home.settings), f"cannot be read: {error}") from error


def _file_values(home: Home) -> dict[str, Any]:
    """Return the values in `harness.yaml`."""
    values = load(_file_text(home), name=str(home.settings))
    _check_format(home, values.pop("format", str(FORMAT)))
    for key, value in values.items():
        if key not in VARIABLES:
            raise unknown_name(str(home.settings), key, [*VARIABLES, "format"])
        if not isinstance(value, str) or not value or not value.isprintable():
            raise Refused(f"{home.settings}: {key}", value, "must be one line of text")
    return values


def _check_format(home: Home, value: object) -> None:
    if not (isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value)):
        raise Refused(f"{home.settings}: format", value, "must be a number")
    if int(value) > FORMAT:
        raise Refused(
            f"{home.settings}: format",
            int(value),
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
