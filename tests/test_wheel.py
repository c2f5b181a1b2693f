"""The built wheel: its contents, its license, and an installation without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COMMAND_S_MAX = 120.0
BUILD = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("tree") / "copy"
    tree.mkdir()
    for name in ("workspaces", "harness", "templates"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    place = tmp_path_factory.mktemp("wheel")
    built = _run(sys.executable, "-c", BUILD, str(place), cwd=tree)
    shutil.rmtree(tree)  # what still refers to it fails
    return place / built.splitlines()[-1]


@pytest.fixture(scope="module")
def harness(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment that holds the wheel; only its dependencies are borrowed."""
    place = tmp_path_factory.mktemp("environment") / "venv"
    _run(sys.executable, "-m", "venv", "--without-pip", str(place), cwd=place.parent)
    packages = next(place.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # a line of a .pth file is a path whose own .pth files, an editable checkout's too, are not read
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = place / "bin" / "harness"
    command.write_text(f"#!{place}/bin/python\n{_entry_point(wheel)}")
    command.chmod(0o755)
    return command


def _entry_point(wheel: Path) -> str:
    """What an installer writes: the script that the wheel's metadata names."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        lines = archive.read(name).decode().split()
    assert lines[:2] == ["[console_scripts]", "harness"]
    module, _, function = lines[-1].partition(":")
    return f"from {module} import {function}\n{function}()\n"


def _run(*command: str, cwd: Path, **variables: str) -> str:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANTHROPIC_", "HARNESS_", "PYTHON"))
    }
    ended = subprocess.run(
        command,
        cwd=cwd,
        env={**kept, **variables},
        capture_output=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode()


def test_the_wheel_contains_only_the_packages_and_their_templates(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    templates = {
        f"harness/_templates/{path.relative_to(ROOT / 'templates').as_posix()}"
        for path in (ROOT / "templates").rglob("*")
        if path.is_file()
    }
    assert templates
    assert templates <= set(names)
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"harness", "workspaces"}
    assert not [name for name in names if "__pycache__" in name or "tests" in name]


def test_the_wheel_declares_and_contains_the_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (place,) = [name for name in archive.namelist() if name.endswith("/licenses/LICENSE")]
        metadata = archive.read(place.replace("licenses/LICENSE", "METADATA")).decode()
        assert archive.read(place) == (ROOT / "LICENSE").read_bytes()
    assert "\nLicense-Expression: MIT\n" in metadata


def test_an_installed_harness_imports_its_packages_from_the_wheel(
    harness: Path, tmp_path: Path
) -> None:
    python = str(harness.with_name("python"))
    where = "import harness, workspaces; print(harness.__file__, workspaces.__file__, sep='\\n')"
    for file in _run(python, "-c", where, cwd=tmp_path).splitlines():
        assert file.startswith(str(harness.parent.parent))


def test_an_installed_harness_writes_and_recalls_memory(
    harness: Path, wheel: Path, tmp_path: Path
) -> None:
    command, home = str(harness), str(tmp_path / "home")

    def said(*arguments: str) -> str:
        return _run(command, *arguments, cwd=tmp_path, HARNESS_HOME=home)

    assert said("--version") == f"harness {wheel.name.split('-')[1]}\n"
    assert "tea is green" in said("run", "remember that tea is green")
    memory = said("cat", "notes", "MEMORY.md")
    assert memory.startswith("# Memory\n")
    assert memory.endswith("- tea is green\n")
    assert said("run", "What is green?") == "From my memory: tea is green.\n"
    assert "## Your workspaces" in said("prompt")
