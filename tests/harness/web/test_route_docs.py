"""The generated table of routes, the HTML pages, and the headers and errors of every answer."""

from __future__ import annotations

import re
from pathlib import Path

from harness.web.app import routes
from harness.web.openapi import operations
from tests.harness.web.route_table import table
from tests.harness.web.site import Site

ROOT = Path(__file__).parents[3]
REMEDY = "docs/http.md is not what the app says: make http-table"


def test_docs_http_md_matches_the_routes(site: Site) -> None:
    assert (ROOT / "docs" / "http.md").read_text() == table(routes()), REMEDY


def test_the_route_table_has_a_row_for_every_operation(site: Site) -> None:
    rows = re.findall(r"^\| [A-Z]+ \|", table(routes()), re.MULTILINE)
    assert len(rows) == len(operations(site.app.openapi()))


def test_the_openapi_document_is_served_without_a_key(site: Site) -> None:
    assert site.nobody.get("/openapi.json") == site.app.openapi()


def test_the_html_pages_load_nothing_from_other_hosts(site: Site) -> None:
    """Every reference of every page is answered here, so that they work offline."""
    seen: set[str] = set()
    for page in ("/sign-in", "/docs"):
        answer = site.nobody("GET", page)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert " style=" not in answer.text
        assert "<script>" not in answer.text
        seen |= set(re.findall(r'(?:src|href)="([^"]+)"', answer.text))
    assert {"/assets/style.css", "/assets/docs.js", "/assets/icon.svg", "/openapi.json"} <= seen
    for reference in seen:
        assert site.nobody("GET", reference).status_code == 200, reference
    assert site.nobody("GET", "/assets/frame.html").status_code == 404
    assert site.nobody("GET", "/assets/..%2f..%2fworkspaces").status_code == 404


def test_names_of_records_are_escaped_in_html(site: Site) -> None:
    rooms = site.harness.rooms
    rooms.workspaces.create("<script>alert(1)</script>", description="<img src=x onerror=alert(1)>")
    _, key = rooms.keys.create()
    page = site.client.get("/", headers={"Authorization": f"Bearer {key}"})
    assert page.status_code == 200
    assert "&lt;script&gt;alert(1)" in page.text
    assert "<script>" not in page.text
    assert "<img src=x" not in page.text


def test_every_answer_has_the_browser_security_headers(
    site: Site,
) -> None:
    for path in ("/", "/docs", "/healthz", "/nothing", "/accounts/me", "/assets/docs.js"):
        headers = site.nobody("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        is_page = headers["content-type"].startswith("text/html")
        assert headers["referrer-policy"] == ("same-origin" if is_page else "no-referrer")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-request-id"].startswith("req_")
        assert "access-control-allow-origin" not in headers


def test_a_valid_request_id_of_the_caller_is_kept_and_logged(site: Site) -> None:
    def told(stated: str) -> str:
        return site.nobody("GET", "/healthz", headers={"X-Request-Id": stated}).headers[
            "x-request-id"
        ]

    assert told("abc-1.2_3") == "abc-1.2_3"
    for stated in ("", "a b", 'a"b', "x" * 65, "a;b"):
        assert told(stated).startswith("req_")
    assert '"id": "abc-1.2_3"' in site.lines.getvalue()


def test_an_unknown_route_is_404_and_a_wrong_method_is_405(site: Site) -> None:
    assert site.nobody.refused(404, "GET", "/nothing")["message"] == "there is no such route"
    assert site.nobody.refused(404, "GET", "/accounts/me/")["code"] == "not_found"
    answer = site.nobody("POST", "/v1/workspaces/w/files/a.md")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, HEAD, PUT")
    assert answer.json()["error"]["code"] == "method_not_allowed"
    assert site.nobody("OPTIONS", "/healthz").headers["allow"] == "GET, HEAD"


def test_an_unexpected_exception_is_a_500_json_error_and_logs_its_traceback(site: Site) -> None:
    canary = "what somebody wrote"

    def broken() -> None:
        raise ValueError(canary)

    site.app.add_api_route("/broken", broken)
    answer = site.nobody("GET", "/broken")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "bug")
    assert canary not in answer.text
    log = site.lines.getvalue()
    assert answer.headers["x-request-id"] in log
    assert '"error": "ValueError"' in log
    assert "test_route_docs.py" in log
    assert canary not in log
