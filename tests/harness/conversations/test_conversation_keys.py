"""One conversation key, used by the owner of an account and by two of its users."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.conversations.conversation import Conversation, Conversations
from harness.conversations.export import exported
from harness.messages.message import Message, Text
from harness.messages.model_request import ModelRequest, Reply, Usage
from harness.messages.progress import Emit
from harness.web.app import ServerTimeouts
from tests.harness.web.site import Caller, Site
from tests.harness.web.turning import said, settled, taken
from workspaces.conditions import ABSENT
from workspaces.errors import Busy, NotFound
from workspaces.ids import lease_key
from workspaces.storage.records import Delete, Key, Put

TURNS = "/v1/agents/helper/turns"


class Together:
    """Answers only when as many turns ask at once as it waits for."""

    name = "together"

    def __init__(self) -> None:
        self._awaited = 1
        self._asking = 0
        self._complete = asyncio.Event()

    def wait_for(self, count: int) -> None:
        self._awaited, self._asking = count, 0
        self._complete.clear()

    async def reply(self, request: ModelRequest, *, output_tokens_max: int, emit: Emit) -> Reply:
        self._asking += 1
        if self._asking >= self._awaited:
            self._complete.set()
        await self._complete.wait()
        text = f"answer to {request.messages[-1].text}"
        return Reply(Message("assistant", (Text(text),)), Usage(1, 1))


@pytest.fixture
def model() -> Together:
    return Together()


@pytest.fixture
def site(tmp_path: Path, model: Together) -> Iterator[Site]:
    with Site.open(tmp_path / "home", model=model, patience=ServerTimeouts(turns_s=0)) as opened:
        yield opened


@pytest.fixture
def acme(site: Site) -> Caller:
    acme = site.account("acme")
    acme.agent()
    return acme


def conversations_of(site: Site, caller: Caller) -> Conversations:
    house = site.harness.house
    rooms = house.rooms(house.accounts.owner(house.accounts.get("acme")))
    if "X-Harness-User" in caller.headers:
        user = rooms.users.get(caller.headers["X-Harness-User"])
        rooms = house.rooms(rooms.principal.as_user(user, may_configure=True))
    return rooms.conversations


def age(site: Site, conversation: Conversation) -> None:
    """Store a conversation the way older versions did: one index for the account, no full key."""
    records = site.harness.rooms.records
    value = {name: text for name, text in conversation.as_json().items() if name != "id"}
    account, agent = conversation.account_id, conversation.agent_id
    key = Key(f"account:{account}", f"conversation:{conversation.id}")
    old = Key(f"conversation-keys:{account}", f"{agent}:{conversation.key}")
    records.write(Delete(conversation.pointer), Delete(key))
    records.write(
        Put(key, value, expect=ABSENT),
        Put(old, {**value, "id": conversation.id}, expect=ABSENT),
    )


def texts(caller: Caller, conversation: str) -> list[str]:
    entries = caller.get(f"/v1/conversations/{conversation}/entries")["entries"]
    return [entry["message"]["parts"][0]["text"] for entry in entries]


def test_three_people_use_one_key_at_once_beside_an_old_record(
    site: Site, acme: Caller, model: Together
) -> None:
    ada, bob = (acme.as_user(name) for name in ("ada", "bob"))
    first = taken(ada, "helper", "e0", "ada was here", "main")["conversationId"]
    age(site, conversations_of(site, ada).get(first))
    model.wait_for(3)
    people = {"owner": acme, "ada": ada, "bob": bob}
    accepted = {
        name: caller.post(TURNS, said("e1", f"I am {name}", "main"), 202)
        for name, caller in people.items()
    }
    ids = {
        name: settled(people[name], answer["statusUrl"])["conversationId"]
        for name, answer in accepted.items()
    }
    assert ids["ada"] == first
    assert len(set(ids.values())) == 3
    for name, caller in people.items():
        assert texts(caller, ids[name])[-2:] == [f"I am {name}", f"answer to I am {name}"]
        assert [
            c["key"] for c in caller.get("/v1/agents/helper/conversations")["conversations"]
        ] == ["main"]
    for name, caller in people.items():
        fork = caller.post(f"/v1/conversations/{ids[name]}/fork", {"key": "copy"})
        assert texts(caller, fork["id"]) == texts(caller, ids[name])
        acme.refused(409, "POST", f"/v1/conversations/{ids['owner']}/fork", json={"key": "main"})
        _check_export(conversations_of(site, caller), name, ids)
    _check_deletions(people, ids)


def _check_export(conversations: Conversations, name: str, ids: dict[str, str]) -> None:
    """Each exports what was said under the key to whom it says it, and nobody else's."""
    own = conversations.get(ids[name])
    transcript, entries = conversations.transcript(own), conversations.carried(own)
    text = json.dumps(list(exported(own, transcript, entries)))
    assert ids[name] in text
    assert f"I am {name}" in text
    for other in ids.keys() - {name}:
        assert f"I am {other}" not in text
        with pytest.raises(NotFound):
            conversations.get(ids[other])


def _check_deletions(people: dict[str, Caller], ids: dict[str, str]) -> None:
    """Delete one after the other: those of the others stay, and the key can be used again."""
    for name in ("ada", "owner", "bob"):
        gone = people[name]("DELETE", f"/v1/conversations/{ids[name]}")
        assert gone.status_code == 200, gone.text
        again = taken(people[name], "helper", "e2", f"{name} again", "main")["conversationId"]
        assert again not in ids.values()
        assert texts(people[name], again)[0] == f"{name} again"
    for name, caller in people.items():
        caller.refused(404, "GET", f"/v1/conversations/{ids[name]}")
        assert len(caller.get("/v1/agents/helper/conversations")["conversations"]) == 2


def test_a_lease_is_named_after_the_key_that_the_conversation_was_born_with(
    site: Site, acme: Caller
) -> None:
    ada = acme.as_user("ada")
    ada.get("/v1/agents/helper/conversations")  # the user is made by this
    mine, theirs = conversations_of(site, acme), conversations_of(site, ada)
    for caller in (acme, ada):
        taken(caller, "helper", "e0", "hello", "new")
        taken(caller, "helper", "e1", "hello", "main" if caller is ada else "own")
    agent = acme.get("/accounts/me/agents/helper")["id"]

    def found(conversations: Conversations, key: str) -> Conversation:
        conversation = conversations.find(agent, key)
        assert conversation is not None
        return conversation

    age(site, found(theirs, "main"))
    age(site, found(mine, "own"))
    taken(acme, "helper", "e2", "hello", "main")
    account, owner = mine.principal.account_id, mine.principal.user_id
    start, user = f"acct:{account}:agent:{agent}", theirs.principal.user_id
    names: list[tuple[Conversation, str]] = [
        (found(mine, "new"), f"{start}:api:new"),
        (found(mine, "own"), f"{start}:api:own"),
        (found(theirs, "new"), f"{start}:user:{user}:api:new"),
        (found(theirs, "main"), f"{start}:api:main"),
        (found(mine, "main"), f"{start}:user:{owner}:api:main"),
    ]
    for conversation, name in names:
        assert conversation.lease_key == lease_key(name)
    held = mine.acquire(found(mine, "main"))
    other: Any = theirs.acquire(found(theirs, "main"))
    with pytest.raises(Busy):
        mine.leases.acquire(found(mine, "main").lease_key)
    mine.leases.release(held)
    theirs.leases.release(other)
    assert acme("DELETE", "/accounts/me/agents/helper?force=true").status_code == 200
    assert (mine.list(), theirs.list()) == ([], [])
