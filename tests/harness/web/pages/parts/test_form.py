"""Forms of pages: the token of the session, and bodies that are no forms."""

from __future__ import annotations

import pytest

from tests.harness.web.pages.visitor import Visitor, visitor
from tests.harness.web.site import BASE, Site
from workspaces.errors import Refused


@pytest.fixture
def ada(site: Site) -> Visitor:
    return visitor(site)


def test_a_form_without_the_token_of_its_session_changes_nothing(site: Site, ada: Visitor) -> None:
    other = visitor(site)
    assert other.token != ada.token
    for token in ("", "x", other.token, ada.token[:-1]):
        answer = ada.post("/workspaces", name="made", token=token)
        assert answer.status_code == 403
        assert "out of date" in answer.text
    assert ada.post("/workspaces", name="made").status_code == 303
    assert "made" in {one.name for one in site.harness.workspaces.list()}


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", f"{BASE}.evil.example"])
def test_a_form_of_another_origin_changes_nothing(
    site: Site, ada: Visitor, origin: str | None
) -> None:
    headers = {} if origin is None else {"Origin": origin}
    answer = ada.client.post(
        "/workspaces", data={"name": "made", "token": ada.token}, headers=headers
    )
    assert answer.status_code == 403
    assert "made" not in {one.name for one in site.harness.workspaces.list()}


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (b"{}", "application/json"),
        (b"\xff=1", "application/x-www-form-urlencoded"),
        (b"a=%ff", "application/x-www-form-urlencoded"),
        (b"&".join(b"a=1" for _ in range(300)), "application/x-www-form-urlencoded"),
        (b"x", "multipart/form-data"),
        (b"x", "multipart/form-data; boundary=y"),
        (b"--y\r\n\r\nx", "multipart/form-data; boundary=y"),
    ],
)
def test_a_body_that_is_no_form_is_refused_with_a_page(
    ada: Visitor, content: bytes, media_type: str
) -> None:
    headers = {"Origin": BASE, "Content-Type": media_type}
    answer = ada.client.post("/workspaces", content=content, headers=headers)
    assert answer.status_code in {400, 403}, answer.text
    assert answer.headers["content-type"].startswith("text/html")


def test_the_first_value_of_a_field_counts() -> None:
    from harness.web.pages.parts.form import urlencoded

    assert urlencoded(b"a=1&b=%C3%A9&a=2&c") == {"a": "1", "b": "é", "c": ""}
    with pytest.raises(Refused):
        urlencoded(b"a=%80")
