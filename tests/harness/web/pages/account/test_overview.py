"""The overview: what wants attention, and making workspaces and agents."""

from __future__ import annotations

from pathlib import Path

from harness.jobs.job import ATTEMPTS_MAX, PAUSE_S_MAX, Job
from tests.harness.web.pages.visitor import visitor
from tests.harness.web.site import Site
from workspaces.clock import ManualClock


def test_workspaces_and_agents_are_made_by_forms(site: Site) -> None:
    ada = visitor(site)
    address = ada.done("/workspaces", name="garden", description="What grows where")
    assert address.endswith("/files?said=created")
    workspace = site.harness.workspaces.record("garden")
    address = ada.done("/agents", name="gardener", workspace=workspace.id)
    agent = site.harness.agents.get("gardener")
    assert address == f"/a/{agent.id}?said=created"
    assert [one.workspace_id for one in agent.config.workspaces] == [workspace.id]
    page = ada.get("/")
    assert "What grows where" in page
    assert "gardener" in page
    assert ada.post("/workspaces", name="garden").status_code == 409


def test_a_conflict_and_a_file_that_cannot_be_kept_want_attention(site: Site) -> None:
    ada = visitor(site)
    assert "Wants your attention" not in ada.get("/")
    root = site.harness.workspaces.get("notes").root
    (root / "plan.conflict-0123456789ab.md").write_text("other\n")
    (root / "a:b").write_text("x\n")
    page = ada.get("/")
    assert "changed in two places at once" in page
    assert "1 file is not kept" in page
    assert "needs a look" not in page


def test_a_decision_changed_by_hand_is_kept_and_needs_a_look(site: Site) -> None:
    workspace = site.harness.workspaces.get("notes")
    decision = workspace.root / "decisions" / "2030-01-01-run_000000000000000000000000.md"
    decision.parent.mkdir()
    for text in ("decided\n", "changed\n"):
        decision.write_text(text)
        workspace.edits.commit()
    page = visitor(site).get("/")
    assert "1 thing needs a look" in page
    assert "not kept" not in page


def fail(site: Site, clock: ManualClock, account_id: str) -> None:
    """A job that is set aside because it failed too often."""
    jobs = site.harness.jobs
    jobs.enqueue(Job("job-1", "sample", clock.now(), {"accountId": account_id}))
    for _ in range(ATTEMPTS_MAX):
        claimed = jobs.claim(frozenset({"sample"}))
        assert claimed is not None
        jobs.failed(claimed, "it rained")
        clock.advance(PAUSE_S_MAX)


def test_a_job_that_failed_too_often_is_tried_again_by_its_own_account_only(tmp_path: Path) -> None:
    clock = ManualClock()
    with Site.open(tmp_path / "home", clock=clock) as site:
        acme = site.account("acme")
        fail(site, clock, site.harness.rooms.principal.account_id)
        ada, bolt = visitor(site), visitor(site, acme.key)
        assert "it rained" in ada.get("/")
        assert "it rained" not in bolt.get("/")
        assert bolt.post("/jobs/job-1/retry").status_code == 404
        assert ada.done("/jobs/job-1/retry") == "/?said=retried"
        assert "it rained" not in ada.get("/")


def test_the_page_of_someone_without_anything_says_what_to_do(site: Site) -> None:
    acme = site.account("acme")
    page = visitor(site, acme.key).get("/")
    assert "harness workspace create" in page
    assert "harness agent create" in page
