"""The generated part of docs/configuration.md, compared with the models."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from harness.runtime.settings import Settings
from tests.harness.presentation.configuration_tables import RECORDS, keys, page, tables
from workspaces.validation import StrictModel

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
REMEDY = "docs/configuration.md is not what the models say: make configuration"


class Inner(StrictModel):
    limit: int | None = None
    """One line
    and another | with a bar."""


class Outer(StrictModel):
    own_mode: Literal["ro", "rw"] = "ro"
    """The mode."""
    inner: Inner = Inner()
    many: list[Inner] = Field(default=[])
    """Several."""


def test_the_page_holds_every_key_of_the_models() -> None:
    text = PAGE.read_text()
    assert page(text) == text, REMEDY


@pytest.mark.parametrize(("kind", "model"), RECORDS)
def test_every_key_says_what_it_means(kind: str, model: type[StrictModel]) -> None:
    rows = list(keys(model))
    assert [row[0] for row in rows if not row[3]] == []
    assert len(rows) >= 4, kind


def test_every_setting_of_a_home_says_what_it_means() -> None:
    rows = tables().split("## `config`")[0].splitlines()[4:]
    settings = [row for row in rows if row.startswith("|")]
    assert len(settings) == len(fields(Settings))
    assert [row for row in settings if row.endswith("|  |")] == []


def test_nested_keys_have_dotted_names_their_values_and_defaults() -> None:
    assert list(keys(Outer)) == [
        ("`ownMode`", "`ro`, `rw`", "`ro`", "The mode."),
        ("`inner.limit`", "whole number", "none", "One line and another \\| with a bar."),
        ("`many`", "list", "none", "Several."),
        ("`many[].limit`", "whole number", "none", "One line and another \\| with a bar."),
    ]


@pytest.mark.parametrize("word", ["X-Harness-User", "admin.key", "`private`", "externalId"])
def test_the_page_explains_what_a_platform_needs(word: str) -> None:
    assert word in PAGE.read_text().split("## For a platform")[1]
