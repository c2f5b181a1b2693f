"""The OpenAPI document compared with the app: every answer is documented and no request causes a 500.

Requests are made up from the document, good ones and bad ones, with a key and without. The account they
are made for has one of everything, and its ids stand in the paths, so that what lies behind an id is
reached too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.generation import GenerationMode

from harness.messages.event import Event
from harness.web.app import routes
from harness.web.openapi import operations
from tests.harness.web.site import Caller, Site
from workspaces.ids import new_id

SOAK = bool(os.environ.get("SOAK"))
EXAMPLES = 300 if SOAK else 6

load_all_checks()
UNCHECKED = {
    # Records refer to each other, and names are unique: what is good by its schema may be refused.
    "positive_data_acceptance",
    # Deleting what is there answers 404 from then on to everyone who shares the account.
    "use_after_free",
    "ensure_resource_availability",
}
JUDGES = [check for check in CHECKS.get_all() if check.__name__ not in UNCHECKED]
"""Among them: no 5xx, only documented statuses, types and shapes, bad data refused, keys asked for."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site.open(tmp_path_factory.mktemp("schema") / "home") as opened:
        # each request is a life of the app here, with a loop in which no turn lives on: nobody waits for one
        opened.app.state.shutdown.call()
        yield opened


@pytest.fixture(scope="module")
def schema(site: Site) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", site.app)


def test_the_openapi_document_is_complete(site: Site) -> None:
    found = site.app.openapi()
    assert found["openapi"].startswith("3.1")
    for path, method, operation in operations(found):
        assert operation["summary"], (path, method)
        assert operation["tags"], (path, method)
        body = operation.get("requestBody")
        if body:
            for kind, content in body["content"].items():
                assert kind == "*/*" or content["example"], (path, method)
        assert "ValidationError" not in str(operation["responses"].get("422"))
        for status, answer in operation["responses"].items():
            assert answer["description"] != "Successful Response", (path, method, status)
    names = [operation["operationId"] for _, _, operation in operations(found)]
    assert len(set(names)) == len(names)


VERBS = {"log": "revisions", "blame": "lines", "recall": "hits", "diff": "files"}
"""What is listed where the last word of a path is what was done."""

SPELLED_ELSEWHERE = {
    "memory_policy",
    "input_schema",
    "archival_mode",
    "archival_limit",
    "archival_min_score",
    "include_user_core",
    "include_agent_core",
}
"""Fields of a source document or of a provider's notation."""

NO_LIST = "/v1/usage"
"""One document with a list inside, as every path is that ends with an id."""


def test_a_list_is_an_object_named_by_its_path_with_a_cursor(site: Site) -> None:
    listed: list[str] = []
    document = site.app.openapi()
    for path, method, operation in operations(document):
        if method != "get" or not path.startswith(("/v1/", "/accounts")) or path == NO_LIST:
            continue
        schema = operation["responses"]["200"]["content"].get("application/json", {}).get("schema")
        if schema is None:
            continue  # a file, or a stream
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        assert schema.get("type") != "array", path
        fields = schema.get("properties", {})
        lists = [name for name, field in fields.items() if field.get("type") == "array"]
        last = path.rpartition("/")[2]
        if "nextCursor" in fields or (lists and not last.startswith("{")):
            assert (lists, "nextCursor" in fields) == ([VERBS.get(last, last)], True), path
            assert set(schema["required"]) >= {*lists, "nextCursor"}
            listed.append(last)
    assert len(listed) >= 14


def test_every_field_of_a_v1_or_accounts_route_is_in_camel_case(site: Site) -> None:
    document = site.app.openapi()
    wrong = {
        f"{path} {name}"
        for path, _, operation in operations(document)
        if path.startswith(("/v1/", "/accounts"))
        for name in _names(operation, document)
        if "_" in name and name not in SPELLED_ELSEWHERE
    }
    assert wrong == set()


def _names(part: Any, document: Any) -> Iterator[str]:
    """The names of all fields in a part of the document, references followed. No schema contains itself."""
    if isinstance(part, list):
        for one in cast("list[Any]", part):
            yield from _names(one, document)
    if not isinstance(part, dict):
        return
    for name, one in cast("dict[str, Any]", part).items():
        if name == "$ref":
            target = document
            for step in one.removeprefix("#/").split("/"):
                target = target[step]
            yield from _names(target, document)
        elif name == "properties":
            yield from one
            yield from _names(list(one.values()), document)
        else:
            yield from _names(one, document)


def test_every_example_of_a_new_record_in_the_document_creates_a_record(site: Site) -> None:
    """What is shown as an example of a new record makes one, but for the ids in it."""
    acme = site.account("acme")
    for path, method, operation in operations(site.app.openapi()):
        if method != "post" or not path.startswith("/accounts/me/") or "{" in path:
            continue
        body = operation.get("requestBody")
        if body is None:
            continue
        example = body["content"]["application/json"]["example"]
        if "agents" in path:
            continue
        made = acme.post(path, example)
        assert acme("DELETE", f"{path}/{made['id']}").status_code == 200


IDS = {
    "/accounts/me/keys/{id}": "key",
    "/accounts/me/users/{id}": "user",
    "/accounts/me/users/{id}/keys": "user",
    "/accounts/me/sandboxes/{id}": "sandbox",
    "/accounts/me/agents/{id}": "agent",
    "/accounts/me/workspaces/{id}": "workspace",
    "/v1/forbidden/{id}": "rule",
    "/v1/forbidden/{id}/allow": "rule",
    "/v1/trash/{id}": "trash",
    "/v1/trash/{id}/restore": "trash",
    "/api/memories/{id}": "memory",
    "/api/conversations/{id}": "archive",
}
"""What the id of a path is; else it is of the family that /v1 goes on with."""

NOTHING_TO_GET_WRONG = {"/healthz", "/readyz", "/metrics"}
"""They take nothing."""

OPERATIONS = [
    (method, route.path_format)
    for route in routes()
    if route.include_in_schema
    for method in sorted(route.methods or ())
]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("with_key", [True, False], ids=["with a key", "without"])
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[f"{m} {p}" for m, p in OPERATIONS])
def test_generated_requests_never_cause_a_500_or_an_undocumented_answer(
    site: Site, schema: Any, method: str, path: str, with_key: bool, mode: GenerationMode
) -> None:
    if mode is GenerationMode.NEGATIVE and path in NOTHING_TO_GET_WRONG:
        return
    operation = schema[path][method]
    # of its own: some operations delete what they are asked by
    caller = site.account(f"the {new_id('name')}")
    ids = furnished(site, caller) if "{id}" in path else {}
    parameters = {"id": ids[IDS.get(path) or _family(path)]} if "{id}" in path else {}
    if "{eventId}" in path:
        parameters["eventId"] = "e1"
    if "{path}" in path and method != "PUT":
        parameters["path"] = "a.md"
    strategy = operation.as_strategy(mode, path_parameters=parameters)
    key = site.admin.key if path == "/accounts" else caller.key
    headers = {"Authorization": f"Bearer {key}"} if with_key else {}

    @settings(
        max_examples=EXAMPLES if with_key else 2,
        derandomize=not SOAK,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def holds(case: schemathesis.Case) -> None:
        case.call_and_validate(headers=headers, checks=JUDGES)

    holds()


HOOK = {"url": "https://example.com/hook", "events": ["memory.changed"]}


def furnished(site: Site, caller: Caller) -> dict[str, str]:
    """One of everything."""
    workspace = caller.workspace()
    caller.file(workspace, "a.md", b"one\n")
    caller("DELETE", f"/accounts/me/workspaces/{caller.workspace('deleted')}")
    mounts = [{"name": "w", "workspaceId": workspace}]
    post = caller.post
    agent = post("/accounts/me/agents", {"name": "a", "config": {"workspaces": mounts}})["id"]
    sent = {"id": "sent", "provider": "codex", "messages": [{"role": "user", "text": "tea"}]}
    memory = {"content": "likes tea", "workspace": workspace}
    told = post("/api/memories/memorize", {"conversation": sent, "memory": memory})
    return {
        "memory": told["memory"]["id"],
        "archive": told["conversation"]["id"],
        "workspace": workspace,
        "webhook": post("/v1/webhooks", HOOK)["id"],
        "trash": caller.list("/v1/trash", "trash")[0]["id"],
        "rule": post("/v1/forbidden", {"detect": "cards"})["id"],
        "forgetting": post("/v1/forgettings", {"text": "nobody said this at all"}, 202)["id"],
        "key": post("/accounts/me/keys", {})["id"],
        "user": post("/accounts/me/users", {"name": "ada"})["id"],
        "sandbox": post("/accounts/me/sandboxes", {"name": "s"})["id"],
        "agent": agent,
        "conversation": talked(site, caller.get("/accounts/me")["id"], agent),
        "chain": chained(site, caller.get("/accounts/me")["id"], agent),
        "run": ran(site, caller.get("/accounts/me")["id"], agent),
    }


def talked(site: Site, account_id: str, agent: str) -> str:
    """The conversation of one event, `e1`."""
    house = site.harness.house
    rooms = house.rooms(house.accounts.owner(house.accounts.get(account_id)))
    event = Event.said("e1", "c1", "hello")
    return asyncio.run(rooms.dispatcher.run(rooms.agents.get(agent), event)).conversation_id


def ran(site: Site, account_id: str, agent: str) -> str:
    """A run that has ended."""
    house = site.harness.house
    runs = house.rooms(house.accounts.owner(house.accounts.get(account_id))).runs
    run = runs.start(agent, "hello")
    asyncio.run(runs.wait(run.id))
    return run.id


def chained(site: Site, account_id: str, agent: str) -> str:
    """A chain that has ended."""
    house = site.harness.house
    chains = house.rooms(house.accounts.owner(house.accounts.get(account_id))).chains
    chain = chains.start([agent], "hello")
    asyncio.run(chains.finish(chain.id))
    return chain.id


def _family(path: str) -> str:
    return path.split("/")[2].removesuffix("s")
