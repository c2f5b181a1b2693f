"""`--field` prints one field of what `--json` prints, for a shell that has no `jq`."""

from __future__ import annotations

import json

import pytest

from tests.harness.cli.terminal import Terminal


def test_a_field_is_found_by_its_dotted_name_anywhere_on_the_line(born: Terminal) -> None:
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


def test_a_field_that_is_no_text_is_printed_as_json(born: Terminal) -> None:
    born("write", "notes", "notes/a.md", stdin=b"one\n")
    assert json.loads(born("log", "notes", "--field", "0.paths").out) == ["notes/a.md"]


@pytest.mark.parametrize("name", ["missing", "version.0", "", "0"])
def test_a_field_that_is_not_there_is_refused_with_those_that_are(
    born: Terminal, name: str
) -> None:
    born("write", "notes", "notes/a.md", stdin=b"one\n")
    ended = born("cat", "notes", "notes/a.md", "--field", name)
    ended.refused("is not there", *([] if "." in name else ["version", "content"]))
    assert json.loads(ended.out)["error"]["code"] == "invalid"


def test_a_failure_is_printed_whole(born: Terminal) -> None:
    ended = born("cat", "notes", "notes/missing.md", "--field", "version")
    assert (ended.code, json.loads(ended.out)["error"]["code"]) == (1, "not_found")
