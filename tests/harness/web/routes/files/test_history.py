"""History over HTTP: log, diff, blame, restore and revert, with the same JSON as the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic.alias_generators import to_snake
from typer.testing import CliRunner

from harness.cli.app import app as command
from tests.harness.web.site import Caller, Site


@pytest.fixture
def acme(site: Site) -> Caller:
    return site.account("acme")


@pytest.fixture
def place(acme: Caller) -> str:
    return f"/v1/workspaces/{acme.workspace()}"


def written(acme: Caller, place: str, path: str, data: str) -> str:
    return acme("PUT", f"{place}/files/{path}", content=data.encode()).json()["revision"]


def test_the_log_lists_revisions_newest_first_with_their_changes(acme: Caller, place: str) -> None:
    first = written(acme, place, "a.md", "one\n")
    second = written(acme, place, "a.md", "one\ntwo\n")
    log = acme.list(f"{place}/log?path=a.md", "revisions")
    assert [entry["revision"] for entry in log] == [second, first]
    assert log[0]["author"] == "owner"
    assert log[0]["trailers"] == {"Source": "api"}
    assert log[0]["paths"] == ["a.md"]
    assert "files" not in log[0]
    entry = acme.get(f"{place}/log?path=a.md&limit=1&patch=true")["revisions"][0]
    assert entry["files"][0]["patch"].endswith("+two\n")


def test_the_log_is_read_in_pages_that_newer_revisions_do_not_move(
    acme: Caller, place: str
) -> None:
    made = [written(acme, place, "a.md", f"{number}\n") for number in range(5)][::-1]
    shown: list[list[str]] = []
    query = {"path": "a.md", "limit": "2"}
    while True:
        page = acme.get(f"{place}/log", params=query)
        shown.append([one["revision"] for one in page["revisions"]])
        if page["nextCursor"] is None:
            break
        query["cursor"] = page["nextCursor"]
        written(acme, place, "a.md", f"newer {len(shown)}\n")
    assert shown == [made[:2], made[2:4], made[4:]]
    changes = acme.get(f"{place}/log?patch=true&limit=1&path=a.md")
    again = acme.get(f"{place}/log?patch=true&limit=1&path=a.md&cursor={changes['nextCursor']}")
    assert again["revisions"][0]["files"][0]["patch"].endswith("+newer 1\n")


def test_a_write_on_behalf_of_a_user_has_that_user_as_author(acme: Caller, place: str) -> None:
    ada = acme.as_user("ada@example.com")
    ada("PUT", f"{place}/files/a.md", content=b"one\n")
    (entry,) = acme.list(f"{place}/log?path=a.md", "revisions")
    assert entry["author"] == "ada@example.com"
    (line,) = acme.list(f"{place}/blame?path=a.md", "lines")
    assert (line["author"], line["text"], line["lineNumber"]) == ("ada@example.com", "one", 1)


def test_a_diff_compares_two_revisions_or_shows_the_last_change(acme: Caller, place: str) -> None:
    first = written(acme, place, "a.md", "likes tea\n")
    second = written(acme, place, "a.md", "likes coffee\n")
    last = acme.get(f"{place}/diff?path=a.md&words=true")
    assert (last["from"], last["to"]) == (first, second)
    assert ["-", "tea"] in last["files"][0]["words"]
    stated = acme.get(f"{place}/diff?from={first}&to={second}")
    assert stated["files"][0]["kind"] == "changed"
    assert acme.refused(400, "GET", f"{place}/diff?words=yes")["field"] == "words"


def test_restore_and_revert_create_new_revisions(acme: Caller, place: str) -> None:
    first = written(acme, place, "a.md", "one\n")
    second = written(acme, place, "a.md", "two\n")
    body = {"path": "a.md", "revision": first}
    restored = acme.post(f"{place}/restore", body, 200)
    assert acme("GET", f"{place}/files/a.md").content == b"one\n"
    assert acme.get(f"{place}/log?limit=1")["revisions"][0]["revision"] == restored["revision"]
    reverted = acme.post(f"{place}/revert", {"revision": restored["revision"]}, 200)
    assert reverted["reverted"] == restored["revision"]
    here = {"files": "here", "history": "here"}
    assert reverted["durable"] == restored["durable"] == here
    assert acme("GET", f"{place}/files/a.md").content == b"two\n"
    again = {"revision": second}
    acme.post(f"{place}/restore", {"path": "a.md", "revision": first}, 200)
    acme("PUT", f"{place}/files/a.md", content=b"three\n")
    error = acme.refused(409, "POST", f"{place}/revert", json=again)
    assert error["code"] == "conflict"
    assert error["lines"] == [{"path": "a.md", "line": 1, "text": "three"}]
    assert acme("GET", f"{place}/files/a.md").content == b"three\n"


def test_a_fact_told_before_others_is_reverted_alone(acme: Caller, place: str) -> None:
    revisions = [
        written(acme, place, "facts.md", "".join(f"- {fact}\n" for fact in "abc"[: end + 1]))
        for end in range(3)
    ]
    for revision in revisions[:2]:
        acme.post(f"{place}/revert", {"revision": revision}, 200)
    assert acme("GET", f"{place}/files/facts.md").content == b"- c\n"


def test_the_log_and_blame_include_manual_edits(site: Site, acme: Caller, place: str) -> None:
    house = site.harness.house
    account = house.accounts.get(acme.get("/accounts/me")["id"])
    root = house.rooms(house.accounts.owner(account)).workspaces.get("w").root
    (root / "hand.md").write_text("by hand\n")
    assert acme.get(f"{place}/log?limit=1")["revisions"][0]["trailers"] == {"Source": "edit"}
    assert acme.list(f"{place}/blame?path=hand.md", "lines")[0]["text"] == "by hand"


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("GET", "log?limit=0", None, "limit"),
        ("GET", "log?limit=1.0", None, "limit"),
        ("GET", "log?limit=x", None, "limit"),
        ("GET", "log?limit=99999999999", None, "limit"),
        ("GET", "log?limit=1001", None, "limit"),
        ("GET", "log?cursor=2", None, "cursor"),
        ("GET", "log?cursor=--all.0", None, "revision"),
        ("GET", "log?path=../x", None, "path"),
        ("GET", "log?page=2", None, "page"),
        ("GET", "diff?older=head", None, "older"),
        ("GET", "blame", None, "path"),
        ("GET", "blame?path=MEMORY.md&revision=HEAD", None, "revision"),
        ("GET", "diff?from=--output=x", None, "revision"),
        ("POST", "restore", {"path": "a.md"}, "revision"),
        ("POST", "restore", {"path": "/etc/passwd", "revision": "head"}, "path"),
        ("POST", "revert", {"revision": 1}, "revision"),
        ("POST", "revert", {"revision": "main"}, "revision"),
        ("POST", "revert", {"revision": "head", "force": True}, "force"),
    ],
)
def test_an_invalid_history_parameter_is_400_with_its_name(
    acme: Caller, place: str, method: str, path: str, body: Any, field: str
) -> None:
    more = {"json": body} if body is not None else {}
    assert acme.refused(400, method, f"{place}/{path}", **more)["field"] == field


def test_a_missing_revision_or_file_is_404(acme: Caller, place: str) -> None:
    acme.refused(404, "GET", f"{place}/blame?path=nothing.md")
    acme.refused(404, "POST", f"{place}/revert", json={"revision": "0" * 40})
    acme.refused(404, "GET", f"{place}/diff?from={'0' * 40}")


def test_history_responses_equal_the_json_of_the_command_line(site: Site) -> None:
    """Of the home's own account, which both faces see."""
    home = site.harness.settings.home.root
    rooms = site.harness.rooms
    _, key = rooms.keys.create(label="test")
    owner = Caller(site.client, key)
    workspace = rooms.workspaces.get("notes")
    place = f"/v1/workspaces/{workspace.record.id}"
    written(owner, place, "MEMORY.md", "# Memory\n\n- likes tea\n")
    workspace.root.joinpath("a:b").write_text("x")

    def told(*arguments: str) -> Any:
        ended = CliRunner().invoke(command, ["--home", str(home), *arguments, "--json"])
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout)

    for line, path, name in (
        (("log", "notes"), "log", "revisions"),
        (
            ("log", "notes", "MEMORY.md", "--patch", "-n", "1"),
            "log?path=MEMORY.md&patch=true&limit=1",
            "revisions",
        ),
        (("blame", "notes", "MEMORY.md"), "blame?path=MEMORY.md", "lines"),
        (("ls", "notes"), "files", "files"),
    ):
        shown = [{to_snake(key): value for key, value in one.items()} for one in told(*line)]
        answer = owner.get(f"{place}/{path}")[name]
        assert [{to_snake(key): value for key, value in one.items()} for one in answer] == shown
    assert owner.get(f"{place}/diff?words=true") == {
        **told("diff", "notes", "--words"),
        "nextCursor": None,
    }
