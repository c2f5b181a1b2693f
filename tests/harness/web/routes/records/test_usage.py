"""Usage over HTTP."""

from __future__ import annotations

from tests.harness.web.site import Site


def test_the_usage_report_of_a_new_account_is_empty(site: Site) -> None:
    acme = site.account("acme")
    report = acme("GET", "/v1/usage?by=agent").json()
    assert (report["by"], report["rows"]) == ("agent", [])
    assert acme.refused(400, "GET", "/v1/usage?since=yesterday")["field"] == "since"
    acme.refused(400, "GET", "/v1/usage?by=colour")
