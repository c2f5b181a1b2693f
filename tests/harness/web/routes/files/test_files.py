"""Files over HTTP: reading, writing, listing, and the preconditions of a write."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.harness.web.site import Caller, Site
from tests.payloads import PAYLOADS
from workspaces.ids import version_of


@pytest.fixture
def acme(site: Site) -> Caller:
    return site.account("acme")


@pytest.fixture
def files(acme: Caller) -> str:
    return f"/v1/workspaces/{acme.workspace()}/files"


def test_reading_a_file_returns_its_exact_bytes_and_version(acme: Caller, files: str) -> None:
    data = bytes(range(256)) * 100
    made = acme("PUT", f"{files}/notes/a.bin", content=data)
    assert made.status_code == 201
    assert made.json()["version"] == version_of(data)
    assert made.headers["etag"] == f'"{version_of(data)}"'
    read = acme("GET", f"{files}/notes/a.bin")
    assert read.content == data
    assert read.headers["etag"] == made.headers["etag"]
    assert read.headers["content-type"] == "application/octet-stream"


def test_creating_a_file_is_201_and_replacing_a_file_is_200(acme: Caller, files: str) -> None:
    path = f"{files}/a.md"
    assert acme("PUT", path, content=b"1").status_code == 201
    assert acme("PUT", path, content=b"2").status_code == 200
    same = acme("PUT", path, content=b"2")
    assert (same.status_code, same.json()["revision"]) == (200, None)
    gone = acme("DELETE", path).json()
    assert (gone["deleted"], len(gone["revision"])) == (True, 40)
    assert gone["durable"] == {"files": "here", "history": "here"}
    assert acme("PUT", path, content=b"2").status_code == 201
    assert acme("PUT", f"{files}/empty.md", content=b"").status_code == 201


def test_writing_over_a_manually_created_file_is_200(site: Site, acme: Caller, files: str) -> None:
    account = acme.get("/accounts/me")["id"]
    house = site.harness.house
    rooms = house.rooms(house.accounts.owner(house.accounts.get(account)))
    (rooms.workspaces.get("w").root / "hand.md").write_bytes(b"by hand")
    assert acme("PUT", f"{files}/hand.md", content=b"by api").status_code == 200


def test_file_responses_prevent_a_browser_from_running_their_content(
    acme: Caller, files: str
) -> None:
    page = b"<script>alert(1)</script>"
    for name in ("a.html", "a.svg", "a.js", "a.xml", "a"):
        acme("PUT", f"{files}/{name}", content=page)
        answer = acme("GET", f"{files}/{name}")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    acme("PUT", f"{files}/a.md", content="# Grüße".encode())
    assert acme("GET", f"{files}/a.md").headers["content-type"] == "text/markdown; charset=utf-8"


def test_a_get_with_the_current_version_in_if_none_match_is_304(acme: Caller, files: str) -> None:
    path = f"{files}/a.md"
    tag = acme("PUT", path, content=b"1").headers["etag"]
    for stated in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        answer = acme("GET", path, headers={"If-None-Match": stated})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == tag
    assert acme("GET", path, headers={"If-None-Match": '"x"'}).status_code == 200
    assert acme("GET", path, headers={"If-Match": tag}).status_code == 200
    assert acme.refused(412, "GET", path, headers={"If-Match": '"x"'})["field"] == "If-Match"


def test_a_write_with_an_outdated_if_match_is_refused(acme: Caller, files: str) -> None:
    path = f"{files}/a.md"
    first = acme("PUT", path, content=b"1").headers["etag"]
    second = acme("PUT", path, content=b"2", headers={"If-Match": first}).headers["etag"]
    error = acme.refused(412, "PUT", path, content=b"3", headers={"If-Match": first})
    assert error["code"] == "conflict"
    assert error["message"].startswith(f"Version mismatch: the current version is {second}.")
    acme.refused(412, "DELETE", path, headers={"If-Match": first})
    assert acme("GET", path).content == b"2"
    assert acme("DELETE", path, headers={"If-Match": second}).status_code == 200


def test_if_match_on_a_missing_file_is_refused(acme: Caller, files: str) -> None:
    for stated in ("*", '"x"'):
        headers = {"If-Match": stated}
        acme.refused(412, "PUT", f"{files}/new.md", content=b"1", headers=headers)
        acme.refused(412, "DELETE", f"{files}/new.md", headers=headers)
        acme.refused(412, "GET", f"{files}/new.md", headers=headers)
    acme.refused(404, "DELETE", f"{files}/new.md")
    acme.refused(404, "GET", f"{files}/new.md")


def test_if_none_match_star_creates_a_file_but_never_replaces_a_file(
    acme: Caller, files: str
) -> None:
    path, headers = f"{files}/a.md", {"If-None-Match": "*"}
    assert acme("PUT", path, content=b"1", headers=headers).status_code == 201
    assert acme.refused(412, "PUT", path, content=b"2", headers=headers)["field"] == "If-None-Match"
    assert acme("GET", path).content == b"1"


@pytest.mark.parametrize("stated", ["garbage", "'x'", "", '"x', '* , "x"'])
def test_a_malformed_precondition_header_is_400(acme: Caller, files: str, stated: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        error = acme.refused(400, method, f"{files}/MEMORY.md", headers={"If-Match": stated})
        assert error["field"] == "If-Match"


def test_exactly_one_of_many_writes_with_the_same_if_match_succeeds(
    acme: Caller, files: str
) -> None:
    path = f"{files}/a.md"
    tag = acme("PUT", path, content=b"0").headers["etag"]

    def write(number: int) -> int:
        data = str(number + 1).encode()
        return acme("PUT", path, content=data, headers={"If-Match": tag}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(write, range(8))) == [200] + [412] * 7


def test_a_file_over_the_quota_is_413(acme: Caller) -> None:
    quota = {"config": {"quota": {"fileBytes": 1000, "files": 4}}}
    files = f"/v1/workspaces/{acme.workspace('small', **quota)}/files"
    assert acme("PUT", f"{files}/a.md", content=b"x" * 1000).status_code == 201
    assert acme.refused(413, "PUT", f"{files}/a.md", content=b"x" * 1001)["code"] == "over_limit"
    acme("PUT", f"{files}/b.md", content=b"x")
    acme.refused(413, "PUT", f"{files}/c.md", content=b"x")


def test_the_file_listing_equals_the_json_of_the_command_line(acme: Caller, files: str) -> None:
    acme("PUT", f"{files}/notes/a.md", content=b"1")
    listed = acme.list(files, "files")
    names = ["MEMORY.md", "TASKS.md", "notes/README.md", "notes/a.md"]
    assert [file["path"] for file in listed] == names
    assert listed[3] == {"path": "notes/a.md", "size": 1, "version": version_of(b"1")}
    assert acme.list(f"{files}?prefix=notes/", "files") == listed[2:]
    assert acme.list(f"{files}?prefix=nothing", "files") == []


def test_a_file_listing_is_read_in_pages_in_the_order_of_paths(acme: Caller, files: str) -> None:
    for name in ("b.md", "a b.md", "notes/ä.md"):
        acme("PUT", f"{files}/{quoted(name)}", content=b"1")
    whole = acme.list(files, "files")
    shown: list[list[Any]] = []
    query = {"limit": "2"}
    while True:
        page = acme.get(files, params=query)
        shown.append(page["files"])
        if page["nextCursor"] is None:
            break
        query["cursor"] = page["nextCursor"]
    assert [len(page) for page in shown] == [2, 2, 2]
    assert [file for page in shown for file in page] == whole
    older = acme.get(f"{files}?revision=head&limit=1&prefix=notes/")
    assert (older["files"][0]["path"], older["nextCursor"]) == ("notes/README.md",) * 2


def test_files_and_listings_can_be_read_at_a_revision(acme: Caller, files: str) -> None:
    first = acme("PUT", f"{files}/a.md", content=b"1").json()["revision"]
    acme("PUT", f"{files}/a.md", content=b"2")
    acme("PUT", f"{files}/b.md", content=b"2")
    assert acme("GET", f"{files}/a.md?revision={first[:12]}").content == b"1"
    assert {"path": "b.md"} not in acme.list(f"{files}?revision={first}", "files")
    assert acme.refused(400, "GET", f"{files}/a.md?revision=--help")["field"] == "revision"
    acme.refused(404, "GET", f"{files}/a.md?revision=0000000")
    acme.refused(404, "GET", f"{files}/b.md?revision={first}")


def test_a_directory_cannot_be_read_or_written_as_a_file(acme: Caller, files: str) -> None:
    acme("PUT", f"{files}/notes/a.md", content=b"1")
    for method in ("GET", "PUT", "DELETE"):
        assert acme(method, f"{files}/notes").status_code in {400, 404, 409}
    assert acme("GET", f"{files}/notes/a.md").content == b"1"


def test_a_name_that_differs_only_in_case_is_409(acme: Caller, files: str) -> None:
    for headers in ({}, {"If-None-Match": "*"}):
        answer = acme.refused(409, "PUT", f"{files}/memory.md", content=b"1", headers=headers)
        assert answer["code"] == "already_exists"


def quoted(path: str) -> str:
    """Every byte percent-encoded: what a client library would leave to a server to judge."""
    return "".join(f"%{byte:02X}" for byte in path.encode(errors="surrogatepass"))


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_path_outside_the_workspace_is_refused(
    site: Site, acme: Caller, files: str, method: str
) -> None:
    outside = site.harness.settings.home.root.parent / "canary.md"
    outside.write_text("the canary sings")
    for path in PAYLOADS:
        if len(path) > 10_000 or not path:
            continue
        answer = acme(method, f"{files}/{quoted(path)}", content=b"x" if method == "PUT" else b"")
        assert answer.status_code < 500, (path, answer.text)
        assert "the canary sings" not in answer.text
    assert outside.read_text() == "the canary sings"


def test_a_path_that_is_not_utf_8_is_400(acme: Caller, files: str) -> None:
    assert acme.refused(400, "PUT", f"{files}/%ff%fe.md", content=b"x")["field"] == "path"
    assert acme("PUT", f"{files}/gr%C3%BC%C3%9Fe.md", content=b"x").status_code == 201
    assert [f["path"] for f in acme.list(f"{files}?prefix=gr", "files")] == ["grüße.md"]


def test_a_problem_with_a_name_that_is_not_utf_8_is_listed(site: Site, acme: Caller) -> None:
    account = acme.get("/accounts/me")["id"]
    workspace = acme.workspace("odd")
    house = site.harness.house
    root = house.rooms(house.accounts.owner(house.accounts.get(account))).workspaces.get("odd").root
    descriptor = os.open(os.fsencode(root) + b"/\xff.md", os.O_CREAT | os.O_WRONLY, 0o600)
    os.close(descriptor)
    (root / "a:b").write_text("x")
    found = {
        problem["path"]: problem
        for problem in acme.list(f"/v1/workspaces/{workspace}/problems", "problems")
    }
    assert set(found) == {"\udcff.md", "a:b"}
    assert found["a:b"]["kind"] == "bad_name"


def test_head_returns_the_headers_of_get_without_the_body(acme: Caller, files: str) -> None:
    acme("PUT", f"{files}/a.md", content=b"12345")
    head, get = acme("HEAD", f"{files}/a.md"), acme("GET", f"{files}/a.md")
    assert (head.status_code, head.content) == (200, b"")
    for name in ("etag", "content-length", "content-type"):
        assert head.headers[name] == get.headers[name]
