"""Usage over HTTP."""

from __future__ import annotations

from tests.harness.web.site import Site


def test_usage_is_the_accounts_own(site: Site) -> None:
    acme = site.account("acme")
    report = acme("GET", "/v1/usage?by=agent").json()
    assert (report["by"], report["rows"]) == ("agent", [])
    assert acme.refused(400, "GET", "/v1/usage?since=yesterday")["field"] == "since"
    acme.refused(400, "GET", "/v1/usage?by=colour")
