"""The requirements lock files: complete, consistent, and without a registry's address."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Name of a package → its version, and the hashes of its files."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for entry in (ROOT / name).read_text().replace("\\\n", " ").splitlines():
        pin, *hashes = (part.strip() for part in entry.split("--hash="))
        requirement = Requirement(pin)
        (version,) = requirement.specifier
        assert version.operator == "==", entry
        assert hashes, entry
        assert all(one.startswith("sha256:") for one in hashes), entry
        found[canonicalize_name(requirement.name)] = (version.version, frozenset(hashes))
    return found


RUNTIME, ALL = pins("requirements.lock"), pins("requirements-dev.lock")


def assert_asked_for(asked: list[str], locked: dict[str, tuple[str, frozenset[str]]]) -> None:
    for requirement in map(Requirement, asked):
        version, _ = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}: run `make lock`"


def test_every_dependency_of_the_project_is_in_the_lock_files() -> None:
    built_with = PROJECT["dependency-groups"]["build"]
    assert_asked_for(PROJECT["project"]["dependencies"], RUNTIME)
    assert_asked_for(built_with, RUNTIME)
    assert_asked_for(PROJECT["build-system"]["requires"], RUNTIME)
    assert_asked_for(PROJECT["project"]["optional-dependencies"]["dev"], ALL)


def test_the_development_lock_contains_the_runtime_lock() -> None:
    assert RUNTIME.items() <= ALL.items()


def test_a_lock_file_names_no_registry() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        assert "://" not in (ROOT / name).read_text()
