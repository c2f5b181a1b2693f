"""Isolation of accounts and users: a record of another caller is answered like an unknown id.

Every route of the app with an id in its path is asked for something of another account, of another
user, and for something that nobody has: the answers are the same to the byte. A new route without a
case here fails the first test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.harness import Harness
from tests.harness.web.site import Caller, Site
from tests.harness.web.turning import said, taken
from workspaces.home.workspaces import private_to_both, private_to_user

FOREIGN = "canary-of-acme"
"""Stands in everything that acme says."""


@dataclass(frozen=True)
class Case:
    family: str
    """Of the id in the path."""
    body: Any = None
    content: bytes | None = None
    query: str = ""
    form: dict[str, str] | None = None


RECORD = {"name": "mine"}
NEW_BLOCK = {"content": "mine", "expected_updated_at": None}
APPROVED = {"approvals": [{"callId": "toolu_1", "allowed": True}]}
CASES: dict[tuple[str, str], Case] = {
    ("DELETE", "/accounts/me/keys/{id}"): Case("key"),
    ("DELETE", "/v1/webhooks/{id}"): Case("webhook"),
    ("DELETE", "/v1/forbidden/{id}"): Case("rule"),
    ("POST", "/v1/forbidden/{id}/allow"): Case("rule", {"workspace": "mine", "path": "a.md"}),
    ("GET", "/v1/forgettings/{id}"): Case("forgetting"),
    ("GET", "/forget/{id}"): Case("forgetting"),
    ("POST", "/forbid/{id}/lift"): Case("rule", form={}),
    ("POST", "/v1/trash/{id}/restore"): Case("trash", {"name": "mine"}),
    ("DELETE", "/v1/trash/{id}"): Case("trash"),
    ("POST", "/trash/{id}/restore"): Case("trash", form={"name": "mine"}),
    ("POST", "/trash/{id}/remove"): Case("trash", form={"name": FOREIGN}),
    ("POST", "/accounts/me/users/{id}/keys"): Case("user", {}),
    ("GET", "/accounts/me/users/{id}"): Case("user"),
    ("PATCH", "/accounts/me/users/{id}"): Case("user", RECORD),
    ("DELETE", "/accounts/me/users/{id}"): Case("user"),
    ("GET", "/accounts/me/workspaces/{id}"): Case("workspace"),
    ("PATCH", "/accounts/me/workspaces/{id}"): Case("workspace", RECORD),
    ("DELETE", "/accounts/me/workspaces/{id}"): Case("workspace", query="?force=true"),
    ("GET", "/accounts/me/sandboxes/{id}"): Case("sandbox"),
    ("PATCH", "/accounts/me/sandboxes/{id}"): Case("sandbox", RECORD),
    ("DELETE", "/accounts/me/sandboxes/{id}"): Case("sandbox", query="?force=true"),
    ("GET", "/accounts/me/agents/{id}"): Case("agent"),
    ("PATCH", "/accounts/me/agents/{id}"): Case("agent", RECORD),
    ("DELETE", "/accounts/me/agents/{id}"): Case("agent"),
    ("GET", "/v1/workspaces/{id}/files"): Case("workspace"),
    ("GET", "/v1/workspaces/{id}/files/{path:path}"): Case("workspace"),
    ("PUT", "/v1/workspaces/{id}/files/{path:path}"): Case("workspace", content=b"x"),
    ("DELETE", "/v1/workspaces/{id}/files/{path:path}"): Case("workspace"),
    ("GET", "/v1/workspaces/{id}/log"): Case("workspace"),
    ("GET", "/v1/workspaces/{id}/diff"): Case("workspace"),
    ("GET", "/v1/workspaces/{id}/blame"): Case("workspace", query="?path=MEMORY.md"),
    ("POST", "/v1/workspaces/{id}/restore"): Case(
        "workspace", {"path": "MEMORY.md", "revision": "head"}
    ),
    ("POST", "/v1/workspaces/{id}/revert"): Case("workspace", {"revision": "head"}),
    ("GET", "/v1/workspaces/{id}/problems"): Case("workspace"),
    ("GET", "/v1/workspaces/{id}/recall"): Case("workspace", query="?query=canary"),
    ("POST", "/v1/agents/{id}/prompt-preview"): Case("agent", {"message": "hello"}),
    ("POST", "/v1/agents/{id}/turns"): Case("agent", said("e1", key="another")),
    ("GET", "/v1/agents/{id}/events/{eventId:path}"): Case("agent"),
    ("GET", "/v1/agents/{id}/events/{eventId:path}/stream"): Case("agent"),
    ("GET", "/v1/agents/{id}/conversations"): Case("agent"),
    ("GET", "/v1/conversations/{id}"): Case("conversation"),
    ("DELETE", "/v1/conversations/{id}"): Case("conversation"),
    ("GET", "/v1/conversations/{id}/entries"): Case("conversation"),
    ("GET", "/v1/conversations/{id}/approvals"): Case("conversation"),
    ("POST", "/v1/conversations/{id}/approvals"): Case("conversation", APPROVED),
    ("POST", "/v1/conversations/{id}/fork"): Case("conversation", {"key": "mine"}),
    ("POST", "/v1/conversations/{id}/reset"): Case("conversation"),
    ("POST", "/v1/conversations/{id}/cancel"): Case("conversation"),
    ("GET", "/v1/conversations/{id}/receipts"): Case("conversation"),
    ("GET", "/api/v1/memory/blocks"): Case("agent", query="?agent_id={id}"),
    ("GET", "/api/v1/memory/blocks/{type}"): Case("agent", query="?agent_id={id}"),
    ("PUT", "/api/v1/memory/blocks/{type}"): Case("agent", NEW_BLOCK, query="?agent_id={id}"),
    ("DELETE", "/api/v1/memory/blocks/{type}"): Case("agent", query="?agent_id={id}"),
    ("POST", "/api/v1/memory/recall"): Case("agent", {"agent_id": "{id}"}),
    ("GET", "/api/agents/{id}/memory"): Case("agent"),
    ("POST", "/api/agents/{id}/memory/reset"): Case("agent"),
    ("GET", "/api/agents/{id}/runs"): Case("agent"),
    ("POST", "/api/agents/{id}/runs"): Case("agent", {"prompt": "hello"}),
    ("GET", "/api/runs/{id}"): Case("run"),
    ("POST", "/api/runs/{id}/cancel"): Case("run"),
    ("POST", "/api/runs/{id}/outcome"): Case("run", {"outcome": "hit"}),
    ("POST", "/api/runs/{id}/re-examine"): Case("run"),
    ("GET", "/api/runs/{id}/re-examinations"): Case("run"),
    ("GET", "/api/agents/{id}/decisions"): Case("agent"),
    ("GET", "/v1/chains/{id}"): Case("chain"),
    ("GET", "/v1/chains/{id}/stream"): Case("chain"),
    ("POST", "/v1/chains/{id}/cancel"): Case("chain"),
    ("POST", "/keys/{id}/revoke"): Case("key", form={}),
    ("POST", "/users/{id}/delete"): Case("user", form={"name": "mine"}),
    ("GET", "/w/{id}"): Case("workspace"),
    ("GET", "/w/{id}/memory"): Case("workspace"),
    ("GET", "/w/{id}/memory/{row}/proof"): Case("workspace"),
    ("GET", "/a/{id}/rows/{row}/proof"): Case("agent"),
    ("POST", "/w/{id}/memory"): Case("workspace", form={"do": "add", "key": "k", "value": "v"}),
    ("GET", "/a/{id}/rows"): Case("agent"),
    ("POST", "/a/{id}/rows"): Case("agent", form={"do": "add", "key": "k", "value": "v"}),
    ("GET", "/w/{id}/files"): Case("workspace"),
    ("POST", "/w/{id}/files"): Case("workspace", form={"path": "a.md"}),
    ("GET", "/w/{id}/files/{path:path}"): Case("workspace"),
    ("POST", "/w/{id}/files/{path:path}"): Case("workspace", form={"do": "delete"}),
    ("GET", "/w/{id}/history"): Case("workspace"),
    ("GET", "/w/{id}/history/{revision}"): Case("workspace"),
    ("POST", "/w/{id}/restore"): Case("workspace", form={"path": "a.md", "revision": "head"}),
    ("POST", "/w/{id}/revert"): Case("workspace", form={"revision": "head"}),
    ("GET", "/w/{id}/problems"): Case("workspace"),
    ("POST", "/w/{id}/problems"): Case("workspace", form={"copy": "a.conflict-0123456789ab"}),
    ("GET", "/w/{id}/recall"): Case("workspace", query="?q=canary"),
    ("GET", "/a/{id}"): Case("agent"),
    ("POST", "/a/{id}/say"): Case("agent", form={"event": "e9", "c": "pages", "text": "hello"}),
    ("POST", "/a/{id}/answer"): Case("agent", form={"event": "e8", "c": "pages", "call": "t1"}),
    ("POST", "/a/{id}/cancel"): Case("agent", form={"c": "pages"}),
    ("POST", "/a/{id}/settings"): Case("agent", form={"name": "mine"}),
    ("POST", "/a/{id}/switch"): Case("agent", form={"name": "memoryEnabled", "do": "on"}),
    ("GET", "/a/{id}/blocks/{type}"): Case("agent"),
    ("POST", "/a/{id}/blocks/{type}"): Case("agent", form={"text": "mine"}),
    ("GET", "/a/{id}/prompt"): Case("agent"),
    ("GET", "/a/{id}/runs"): Case("agent"),
    ("POST", "/a/{id}/runs"): Case("agent", form={"prompt": "hello"}),
    ("POST", "/a/{id}/memory"): Case("agent", form={"do": "reset"}),
    ("GET", "/runs/{id}"): Case("run"),
    ("POST", "/runs/{id}/cancel"): Case("run", form={}),
    ("POST", "/runs/{id}/outcome"): Case("run", form={"do": "clear"}),
    ("POST", "/runs/{id}/re-examine"): Case("run", form={}),
    ("GET", "/c/{id}"): Case("conversation"),
    ("GET", "/c/{id}/turns/{turn}"): Case("conversation"),
    ("GET", "/c/{id}/export"): Case("conversation"),
    ("POST", "/c/{id}/fork"): Case("conversation", form={"key": "mine"}),
    ("POST", "/c/{id}/reset"): Case("conversation", form={}),
}

ROW = {"key": "mine", "value": "tea"}
for _family in ("workspace", "agent"):
    _rows = f"/api/{_family}s/{{{_family}Id}}/memories"
    CASES |= {
        ("GET", _rows): Case(_family),
        ("POST", _rows): Case(_family, ROW),
        ("PATCH", f"{_rows}/{{memoryId}}"): Case(_family, {"value": "tea"}),
        ("PATCH", f"{_rows}/{{memoryId}}/pin"): Case(_family, {"pinned": True}),
        ("DELETE", f"{_rows}/{{memoryId}}"): Case(_family),
    }

CASES |= {
    ("GET", "/api/memories/{id}"): Case("memory"),
    ("DELETE", "/api/memories/{id}"): Case("memory"),
    ("GET", "/api/conversations/{id}"): Case("archive"),
    ("DELETE", "/api/conversations/{id}"): Case("archive"),
}

NOTHING_TO_NAME = {
    ("GET", "/decisions"),
    ("POST", "/api/memories/memorize"),
    ("GET", "/api/memories"),
    ("GET", "/api/conversations"),
    ("POST", "/accounts"),
    ("GET", "/accounts/me"),
    ("PATCH", "/accounts/me"),
    ("DELETE", "/accounts/me"),
    ("POST", "/accounts/me/rotate-key"),
    *(
        (m, f"/accounts/me/{family}")
        for m in ("GET", "POST")
        for family in ("keys", "users", "workspaces", "sandboxes", "agents")
    ),
    ("GET", "/api/agents/memory-summary"),
    ("POST", "/v1/chains"),
    ("ANY", "/mcp"),
    ("GET", "/memory"),
    ("GET", "/v1/usage"),
    ("GET", "/v1/webhooks"),
    ("POST", "/v1/webhooks"),
    ("GET", "/v1/forbidden"),
    ("POST", "/v1/forbidden"),
    ("GET", "/v1/forgettings"),
    ("POST", "/v1/forgettings"),
    ("GET", "/forget"),
    ("POST", "/forget"),
    ("POST", "/forget/start"),
    *((m, "/forbid") for m in ("GET", "POST")),
    ("POST", "/forbid/keep"),  # tests/harness/web/pages/account/test_forbid.py
    ("GET", "/v1/trash"),
    ("GET", "/trash"),
    ("POST", "/trash/empty"),  # tests/harness/web/pages/account/test_trash.py
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/"),
    *((m, path) for m in ("GET", "POST") for path in ("/sign-in", "/keys", "/users")),
    ("POST", "/sign-out"),
    ("POST", "/workspaces"),
    ("POST", "/agents"),
    ("POST", "/jobs/{id}/retry"),  # tests/harness/web/pages/account/test_overview.py
    ("GET", "/usage"),
    ("POST", "/usage/limits"),
    ("GET", "/docs"),
    ("GET", "/assets/{name}"),
    ("GET", "/openapi.json"),
}
"""Routes without an id: what they answer is the caller's own by construction, and looked at below."""


@dataclass(frozen=True)
class Tenants:
    site: Site
    acme: Caller
    ids: dict[str, str]
    """What acme has, by family."""
    bolt: Caller


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    with Site.open(tmp_path_factory.mktemp("home")) as site:
        acme, bolt = site.account("acme"), site.account("bolt")
        yield Tenants(site, acme, furnished(acme), bolt)


def furnished(caller: Caller) -> dict[str, str]:
    """One of everything, each holding the canary."""
    post = caller.post
    user = post("/accounts/me/users", {"name": FOREIGN, "externalId": f"{FOREIGN}@example.com"})
    workspace = post("/accounts/me/workspaces", {"name": FOREIGN, "description": FOREIGN})
    sandbox = post("/accounts/me/sandboxes", {"name": FOREIGN})
    mounts = [{"name": FOREIGN, "workspaceId": workspace["id"]}]
    config = {"system": FOREIGN, "sandbox": sandbox["id"], "workspaces": mounts}
    agent = post("/accounts/me/agents", {"name": FOREIGN, "config": config})
    key = post("/accounts/me/keys", {"label": FOREIGN})
    caller.file(workspace["id"], "MEMORY.md", f"{FOREIGN}\n".encode())
    caller.file(workspace["id"], f"notes/{FOREIGN}.md", f"{FOREIGN}\n".encode())
    made = {"user": user, "workspace": workspace, "sandbox": sandbox, "agent": agent, "key": key}
    done = taken(caller, agent["id"], "e1", FOREIGN, FOREIGN)
    hook = {"url": f"https://example.com/{FOREIGN}", "events": ["turn.finished"]}
    made["webhook"] = post("/v1/webhooks", hook)
    made["rule"] = post("/v1/forbidden", {"detect": "cards"}, 201)
    made["forgetting"] = post("/v1/forgettings", {"text": "nobody said this at all"}, 202)
    gone = post("/accounts/me/workspaces", {"name": f"{FOREIGN} deleted"})["id"]
    caller("DELETE", f"/accounts/me/workspaces/{gone}")
    (made["trash"],) = caller.list("/v1/trash", "trash")
    made["run"] = post(f"/api/agents/{agent['id']}/runs", {"prompt": FOREIGN}, 202)
    chain = {"agents": [agent["id"]], "task": FOREIGN}
    made["chain"] = post("/v1/chains", chain, 202)
    sent = {
        "id": FOREIGN,
        "provider": "codex",
        "messages": [{"role": "user", "text": f"{FOREIGN} is said"}],
    }
    memory = {"content": f"{FOREIGN} is true", "workspace": workspace["id"]}
    memory["groundings"] = [{"quote": FOREIGN}]
    told = post("/api/memories/memorize", {"conversation": sent, "memory": memory}, 201)
    made |= {"memory": told["memory"], "archive": told["conversation"]}
    ids = {family: record["id"] for family, record in made.items()}
    return {**ids, "conversation": done["conversationId"]}


def routes(site: Site) -> list[tuple[str, str]]:
    """Every route, however it was mounted."""
    found: list[tuple[str, str]] = []
    for mounted in site.app.routes:
        router = getattr(mounted, "original_router", None)
        for route in router.routes if router else [mounted]:
            methods = route.methods or {"ANY"}  # None: it answers every method
            found += [(method, route.path) for method in sorted(methods - {"HEAD"})]
    return found


def asked(caller: Caller, method: str, path: str, case: Case, record: str) -> tuple[int, bytes]:
    path = (path + case.query).replace("{id}", record).replace("{path:path}", "MEMORY.md")
    path = path.replace("{workspaceId}", record).replace("{agentId}", record)
    path = path.replace("{memoryId}", f"mem_{'0' * 24}").replace("{row}", "key")
    path = path.replace("{eventId:path}", "e1").replace("{type}", "core")
    path = path.replace("{turn}", "turn_1").replace("{revision}", "head")
    more: dict[str, Any] = {}
    if case.body is not None:
        more["content"] = json.dumps(case.body).replace("{id}", record)
        more["headers"] = {"Content-Type": "application/json"}
    if case.content is not None:
        more["content"] = case.content
    if case.form is not None:
        more["data"] = case.form
    answer = caller(method, path, **more)
    return answer.status_code, answer.content


def nobodys(record: str) -> str:
    """An id of the same kind that nobody has."""
    prefix, _, digits = record.rpartition("_")
    return f"{prefix}_{'0' * len(digits)}"


def test_every_route_has_an_isolation_case(tenants: Tenants) -> None:
    known = {*CASES, *NOTHING_TO_NAME}
    assert set(routes(tenants.site)) == known


@pytest.mark.parametrize(("method", "path"), CASES, ids=[f"{m} {p}" for m, p in CASES])
def test_a_record_of_another_account_is_404_like_an_unknown_id(
    tenants: Tenants, method: str, path: str
) -> None:
    case = CASES[method, path]
    record = tenants.ids[case.family]
    foreign = asked(tenants.bolt, method, path, case, record)
    assert foreign[0] == 404
    assert foreign == asked(tenants.bolt, method, path, case, nobodys(record))
    if case.family not in {
        "key",
        "run",
        "chain",
        "forgetting",
    }:  # which have no name to be found by
        assert foreign == asked(tenants.bolt, method, path, case, FOREIGN)


@pytest.mark.parametrize(
    "private",
    [
        lambda user, agent: private_to_user(user),
        lambda user, agent: private_to_both(user, agent),
    ],
    ids=["a user's", "a user's with an agent"],
)
def test_a_private_workspace_of_another_user_is_404(
    tenants: Tenants, private: Callable[[Any, Any], Any]
) -> None:
    """Neither for another user's key, nor for the account's key acting as another user."""
    harness: Harness = tenants.site.harness
    account = harness.house.accounts.get("acme")
    rooms = harness.house.rooms(harness.house.accounts.owner(account))
    user, agent = tenants.ids["user"], tenants.ids["agent"]
    workspace_id = private(user, agent)
    workspace = rooms.workspaces.private(workspace_id, create=True)
    assert workspace is not None
    workspace.write("MEMORY.md", FOREIGN, by=rooms.principal.author("api"))
    ada = tenants.acme.user_key(f"ada {workspace_id}")
    nobody = private(nobodys(user), agent)
    own = tenants.acme.as_user(user)
    for (method, path), case in CASES.items():
        if case.family != "workspace" or method in {"DELETE", "PATCH"}:
            continue
        for other in (ada, tenants.acme):
            found = asked(other, method, path, case, workspace_id)
            assert found[0] == 404, (method, path)
            assert found == asked(other, method, path, case, nobody)
            assert FOREIGN.encode() not in found[1]
    for method, path in (
        ("PATCH", "/accounts/me/workspaces/{id}"),
        ("DELETE", "/accounts/me/workspaces/{id}"),
    ):
        case = CASES[method, path]
        assert asked(tenants.acme, method, path, case, workspace_id)[0] == 404
        assert asked(ada, method, path, case, workspace_id)[0] in {403, 404}
    assert own("GET", f"/v1/workspaces/{workspace_id}/files/MEMORY.md").text == FOREIGN


def test_a_conversation_of_another_user_is_404(tenants: Tenants) -> None:
    """Not even for the account's key, unless it acts as that user."""
    ada = tenants.acme.user_key("ada of the conversations")
    done = taken(ada, tenants.ids["agent"], "hers", FOREIGN, "her key")
    bob = tenants.acme.user_key("bob of the conversations")
    conversation = done["conversationId"]
    for (method, path), case in CASES.items():
        if case.family == "conversation":
            for other in (bob, tenants.acme):
                found = asked(other, method, path, case, conversation)
                assert found[0] == 404, (method, path)
                assert found == asked(other, method, path, case, nobodys(conversation))
    for path in ("", "/stream"):
        bob.refused(404, "GET", f"/v1/agents/{tenants.ids['agent']}/events/hers{path}")
    mine = bob.get(f"/v1/agents/{tenants.ids['agent']}/conversations")
    assert mine == {"conversations": [], "nextCursor": None}
    assert ada.get(f"/v1/conversations/{conversation}")["key"] == "her key"
    assert ada("GET", f"/v1/conversations/{conversation}/receipts").status_code == 403


def test_a_foreign_id_in_a_body_is_refused_like_an_unknown_id(tenants: Tenants) -> None:
    workspace, sandbox = tenants.ids["workspace"], tenants.ids["sandbox"]
    for stated in (
        lambda w, s: {"workspaces": [{"name": "n", "workspaceId": w}]},
        lambda w, s: {"sandbox": s},
    ):
        told: list[str] = []
        for w, s in ((workspace, sandbox), (nobodys(workspace), nobodys(sandbox))):
            body = {"name": "a", "config": stated(w, s)}
            message = tenants.bolt.refused(400, "POST", "/accounts/me/agents", json=body)["message"]
            told.append(message.replace(w, "ID").replace(s, "ID"))
        assert told[0] == told[1]


def test_a_record_name_used_by_another_account_is_available(tenants: Tenants) -> None:
    mine = tenants.bolt.post("/accounts/me/workspaces", {"name": FOREIGN})
    assert mine["id"] != tenants.ids["workspace"]
    assert tenants.bolt("DELETE", f"/accounts/me/workspaces/{mine['id']}").status_code == 200


def test_data_of_an_account_never_appears_to_another_account_or_in_the_log(tmp_path: Path) -> None:
    """Acme does everything there is, and fails at everything; bolt asks for everything there is."""
    with Site.open(tmp_path / "home") as site:
        acme, bolt = site.account("acme"), site.account("bolt")
        ids, own = furnished(acme), bolt.workspace("own")
        bolt.file(own, "MEMORY.md", b"bolt\n")
        for (method, path), case in CASES.items():
            asked(acme.as_user(f"{FOREIGN}@example.com"), method, path, case, FOREIGN)
            asked(acme, method, path, case, nobodys(ids[case.family]))
        acme("GET", f"/{FOREIGN}?token={FOREIGN}")
        acme("POST", "/accounts/me/workspaces", content=FOREIGN.encode())
        site.nobody("GET", "/accounts/me", headers={"Authorization": f"Bearer {FOREIGN}"})
        heard: list[bytes] = []
        for method, path in routes(site):
            if "{" not in path and method == "GET":
                heard.append(bolt(method, path).content)
        for (method, path), case in CASES.items():
            if method == "GET":
                heard.append(asked(bolt, method, path, case, own)[1])
        assert all(FOREIGN.encode() not in body for body in heard)
        log = site.lines.getvalue()
        assert len(log.splitlines()) > 2 * len(CASES)
        assert FOREIGN not in log
        for secret in (acme.key, bolt.key, site.admin.key):
            assert secret is not None
            assert secret not in log
        assert_no_file_holds(site, bolt, FOREIGN)
        assert_no_file_holds_a_secret(site, acme, bolt)


def assert_no_file_holds(site: Site, caller: Caller, canary: str) -> None:
    """In the trees, histories and indexes of the caller's account."""
    house = site.harness.house
    account = house.accounts.get(caller.get("/accounts/me")["id"])
    workspaces = house.rooms(house.accounts.owner(account)).workspaces
    home = site.harness.settings.home
    looked = 0
    for record in workspaces.list(private=True):
        namespace = workspaces.get(record.id).namespace
        for place in (home.tree(namespace), home.history(namespace), home.search(namespace)):
            for file in [place, *place.rglob("*")]:
                looked += file.is_file()
                assert not file.is_file() or canary.encode() not in file.read_bytes(), file
    assert looked > 5


def assert_no_file_holds_a_secret(site: Site, *callers: Caller) -> None:
    """Only the hash of a key is kept."""
    for file in site.harness.settings.home.root.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert all((caller.key or "").encode() not in data for caller in callers), file
