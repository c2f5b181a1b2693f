"""`--field` prints one field of what `--json` prints, for a shell that has no `jq`."""

from __future__ import annotations

import json

import pytest

from tests.harness.cli.terminal import Terminal


def test_the_field_option_takes_a_dotted_name_at_any_position(born: Terminal) -> None:
    born("write", "notes", "notes/a.md", stdin=b"one\n")
    document = json.loads(born("cat", "notes", "notes/a.md", "--json").out)
    revisions = json.loads(born("log", "notes", "--json").out)
    for arguments, value in (
        (("cat", "notes", "notes/a.md", "--field", "version"), document["version"]),
        (("--field=version", "cat", "notes", "notes/a.md"), document["version"]),
        (("cat", "--json", "notes", "--field", "content", "notes/a.md"), "one\n"),
        (("log", "notes", "--field", "0.revision"), revisions[0]["revision"]),
    ):
        ended = born(*arguments)
        assert (ended.code, ended.out) == (0, f"{value}\n"), ended


def test_a_field_that_is_not_a_string_is_printed_as_json(born: Terminal) -> None:
    born("write", "notes", "notes/a.md", stdin=b"one\n")
    assert json.loads(born("log", "notes", "--field", "0.paths").out) == ["notes/a.md"]


@pytest.mark.parametrize("name", ["missing", "version.0", "", "0"])
def test_a_missing_field_is_refused_with_the_available_names(born: Terminal, name: str) -> None:
    born("write", "notes", "notes/a.md", stdin=b"one\n")
    ended = born("cat", "notes", "notes/a.md", "--field", name)
    ended.refused("is not there", *([] if "." in name else ["version", "content"]))
    assert json.loads(ended.out)["error"]["code"] == "invalid"


def test_an_error_is_printed_whole_despite_the_field_option(born: Terminal) -> None:
    ended = born("cat", "notes", "notes/missing.md", "--field", "version")
    assert (ended.code, json.loads(ended.out)["error"]["code"]) == (1, "not_found")
