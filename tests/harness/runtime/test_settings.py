"""The settings of a home: its file, the environment and which of them wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.runtime.settings import DEFAULT_MODEL, FORMAT, read_settings
from workspaces.errors import Refused, Unavailable


def write(home: Path, text: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "harness.yaml").write_text(text)


def test_a_new_home_is_created_with_a_format_number(home: Path) -> None:
    settings = read_settings(home, environment={})
    assert settings.model == DEFAULT_MODEL
    assert f"format: {FORMAT}\n" in (home / "harness.yaml").read_text()
    assert read_settings(home, environment={}) == settings


def test_environment_settings_override_the_settings_file(home: Path) -> None:
    write(home, "model: from-file\ndefault_agent: helper\n")
    settings = read_settings(home, environment={"HARNESS_MODEL": "from-environment"})
    assert (settings.model, settings.default_agent) == ("from-environment", "helper")


def test_the_home_directory_is_taken_from_the_call_before_the_environment(
    home: Path, tmp_path: Path
) -> None:
    environment = {"HARNESS_HOME": str(tmp_path / "other")}
    assert read_settings(home, environment=environment).home.root == home
    assert read_settings(environment=environment).home.root == tmp_path / "other"


def test_a_misspelt_setting_is_refused_with_the_nearest_name(home: Path) -> None:
    write(home, "modle: x\n")
    with pytest.raises(Refused) as caught:
        read_settings(home, environment={})
    assert caught.value.value == "modle"
    assert caught.value.remedy == "did you mean 'model'?"


@pytest.mark.parametrize(
    "text", ["format: 2\n", "format: x\n", "model: [a]\n", "model:\n", "- a\n", "a: *b\n"]
)
def test_a_broken_settings_file_is_refused(home: Path, text: str) -> None:
    write(home, text)
    with pytest.raises(Refused) as caught:
        read_settings(home, environment={})
    assert str(home) in caught.value.field


def test_a_home_path_that_is_a_file_is_reported_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable) as caught:
        read_settings(tmp_path / "file" / "home", environment={})
    assert "--home" in (caught.value.remedy or "")


def test_settings_never_show_the_api_key(home: Path) -> None:
    settings = read_settings(home, environment={"ANTHROPIC_API_KEY": "sk-secret"})
    assert settings.anthropic_api_key == "sk-secret"
    assert "sk-secret" not in repr(settings)


@pytest.mark.parametrize("days", ["0", "-1", "1.5", "soon", "123456"])
def test_the_days_of_the_trash_are_a_whole_number(tmp_path: Path, days: str) -> None:
    with pytest.raises(Refused, match="trash_days"):
        read_settings(tmp_path, environment={"HARNESS_TRASH_DAYS": days})
    assert read_settings(tmp_path, environment={"HARNESS_TRASH_DAYS": "30"}).trash_days == 30
    assert read_settings(tmp_path, environment={}).trash_days is None
