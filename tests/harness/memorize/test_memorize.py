from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.memorize.archive import archives
from harness.memorize.local.local_conversations import LocalConversations, transcript_roots
from harness.memorize.memorize import Memorized, Memorizer
from harness.memorize.memorize_request import MemorizeRequest, ResourceListRequest
from harness.memorize.memory import EditedMemory
from harness.memorize.proof import proof_reports
from tests.harness.memorize.local.transcripts import (
    OTHER,
    SESSION,
    THREAD,
    claude,
    codex,
    codex_said,
    meta,
    rollout,
    text,
    write,
)
from workspaces.errors import NotFound, OverLimit, Refused, Unavailable
from workspaces.revision import Author
from workspaces.validation import parse

SAID = "The staging server is called heron."
SECRET = "ghp_" + "a1B2" * 9


class Person:
    """A harness, and the conversations on the person's machine."""

    def __init__(self, harness: Harness, home: Path) -> None:
        self.harness, self.home = harness, home
        write(rollout(home / ".codex", THREAD), *self.lines())

    def lines(self, *more: Any) -> list[Any]:
        return [meta(), codex_said("user", SAID), codex_said("assistant", "noted"), *more]

    @property
    def local(self) -> LocalConversations:
        return LocalConversations(transcript_roots(self.home))

    @property
    def memorizer(self) -> Memorizer:
        return self.harness.rooms.memorizer

    def memorize(self, content: str = "Staging is heron.", **fields: Any) -> Memorized:
        stated = {"conversation_id": THREAD, "content": content, **fields}
        by = self.harness.rooms.principal.author("memorize")
        return self.memorizer.memorize(parse(MemorizeRequest, stated), by=by, local=self.local)

    def states(self) -> list[str]:
        memorizer = self.memorizer
        found = proof_reports(memorizer.archives, map(self.cited, memorizer.memories.all()))
        return [one.state for one in found]

    def cited(self, memory: Any) -> Any:
        return self.memorizer.memories.cited(memory)

    def file(self) -> tuple[Any, str]:
        """The workspace and the path of the only fact's file."""
        workspace = self.harness.workspaces.get("notes")
        (path,) = [path for path in workspace.tree.scan().files if path.startswith("facts/")]
        return workspace, path

    def edit(self, old: str, new: str) -> None:
        """Change the file as a person does in an editor."""
        workspace, path = self.file()
        file = self.harness.settings.home.tree(workspace.namespace) / path
        said = file.read_text()
        assert old in said
        file.write_text(said.replace(old, new))
        workspace.edits.commit()

    def blobs(self) -> list[str]:
        root = self.harness.settings.home.entries
        return sorted(one.name for one in root.rglob("*") if one.is_file())


@pytest.fixture
def person(harness: Harness, tmp_path: Path) -> Iterator[Person]:
    yield Person(harness, tmp_path / "person")


def test_a_memory_is_a_fact_whose_front_matter_tells_its_proof(person: Person) -> None:
    done = person.memorize(
        tags=["Deploy Stuff", "deploy-stuff", "ops"],
        confidence=0.25,
        metadata={"round": 1},
        groundings=[{"quote": "called heron", "metadata": {"why": "said so"}}],
    )
    assert (done.status, done.warnings) == ("created", ())
    told = done.memory.as_json()
    assert told["tags"] == ["deploy-stuff", "ops"]
    assert (told["confidence"], told["metadata"]) == (0.25, {"round": 1})
    assert (told["source"], told["workspace"], told["provider"]) == ("memorize", "notes", "codex")
    assert told["groundings"][0]["metadata"] == {"why": "said so"}
    assert told["memory_key"] is None
    fact = person.harness.facts.of_workspace("notes").get(done.memory.fact.key)
    assert (fact.source, fact.value) == ("memorize", "Staging is heron.")
    assert done.archive.as_json()["messages"] == 2


def test_a_retry_after_a_lost_answer_makes_nothing_twice(person: Person) -> None:
    first = person.memorize(groundings=[{"quote": "called heron"}])
    workspace, _ = person.file()
    revisions, blobs = len(workspace.log()), person.blobs()
    again = person.memorize(groundings=[{"quote": "called heron"}])
    assert (again.status, again.memory.fact.id) == ("unchanged", first.memory.fact.id)
    assert (len(workspace.log()), person.blobs()) == (revisions, blobs)
    assert len(person.memorizer.archives.list()) == 1
    assert again.archive == first.archive


def test_a_retry_after_a_failure_behind_the_archive_completes_it(person: Person) -> None:
    workspaces = person.harness.workspaces
    workspaces.patch("notes", {"config": {"quota": {"files": 1}}})
    with pytest.raises(OverLimit):
        person.memorize()
    assert len(person.memorizer.archives.list()) == 1
    workspaces.patch("notes", {"config": {"quota": {"files": 100}}})
    assert person.memorize().status == "created"
    assert len(person.blobs()) == 1


def test_the_same_key_is_the_same_memory(person: Person) -> None:
    first = person.memorize("One.", memory_key="server")
    second = person.memorize("Two.", memory_key="server")
    assert (first.status, second.status) == ("created", "updated")
    assert second.memory.fact.key == "memorize:server"
    assert second.memory.as_json()["memory_key"] == "server"
    assert first.memory.fact.id == second.memory.fact.id
    assert person.memorize("Two.", tags=["a"], memory_key="server").status == "updated"
    assert person.memorize("Three.").status == "created"


def test_a_persons_words_are_replaced_only_when_told_to(person: Person) -> None:
    person.memorize("One.", memory_key="server")
    person.edit("One.", "My own words.")
    with pytest.raises(EditedMemory) as edited:
        person.memorize("Two.", memory_key="server")
    assert edited.value.memory.fact.value == "My own words."
    done = person.memorize("Two.", memory_key="server", overwrite=True)
    assert (done.status, done.memory.fact.value) == ("updated", "Two.")
    assert done.memory.fact.source == "memorize"


def test_what_a_person_adds_to_the_front_matter_stays(person: Person) -> None:
    person.memorize("One.", memory_key="server")
    person.edit("---\nOne.", "mine: yes\n---\nOne.")
    person.memorize("Two.", memory_key="server")
    assert person.memorizer.memories.all()[0].fact.attributes["mine"] == "yes"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"content": " \n"}, "content"),
        ({"tags": ["ok", "--"]}, "tags.1"),
        ({"tags": ["a"] * 51}, "tags"),
        ({"confidence": 1.5}, "confidence"),
        ({"confidence": float("nan")}, "confidence"),
        ({"agent_id": 7}, "agent_id"),
        ({"memory_key": "k" * 241}, "memory_key"),
        ({"memory_key": "a\nb"}, "memory_key"),
        ({"groundings": [{"quote": "goose"}]}, "groundings.0.quote"),
        (
            {"groundings": [{"quote": "heron"}, {"message_position": 7}]},
            "groundings.1.message_position",
        ),
        ({"unheard": 1}, "unheard"),
        ({"content": f"the token is {SECRET}"}, "content"),
        ({"metadata": {"token": SECRET}}, "metadata"),
    ],
)
def test_what_is_refused_names_its_field_and_stores_nothing(
    person: Person, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(Refused) as refused:
        person.memorize(**fields)
    assert refused.value.field == field
    assert SECRET not in str(refused.value)
    assert person.memorizer.archives.list() == []
    assert person.memorizer.memories.all() == []
    assert person.blobs() == []


def test_a_content_that_is_too_long_is_over_the_limit(person: Person) -> None:
    assert person.memorize("é" * 2000).status == "created"
    with pytest.raises(OverLimit):
        person.memorize("é" * 2001)


def test_a_conversation_that_has_grown_adds_a_snapshot_and_the_uncited_goes(
    person: Person,
) -> None:
    file = rollout(person.home / ".codex", THREAD)
    first = person.memorize("One.", groundings=[{"quote": "called heron"}])
    write(file, *person.lines(codex_said("user", "more")))
    second = person.memorize("Two.", memory_key="two")
    assert [one.messages for one in second.archive.snapshots] == [2, 3]
    write(file, *person.lines(codex_said("user", "more"), codex_said("user", "still more")))
    third = person.memorize("Two again.", memory_key="two")
    # the second one is cited no more
    assert [one.messages for one in third.archive.snapshots] == [2, 4]
    assert len(person.blobs()) == 2
    assert person.states() == ["fresh", "fresh"]
    person.memorizer.memories.delete(first.memory.fact.id, Author("a", "a", "api"))
    (archive,) = person.memorizer.archives.list()
    assert [one.messages for one in archive.snapshots] == [4]


def test_proof_is_fresh_drifted_or_orphaned(person: Person) -> None:
    person.memorize(groundings=[{"quote": "called heron"}])
    assert person.states() == ["fresh"]
    person.edit("Staging is heron.", "Staging is goose.")
    assert person.states() == ["drifted"]
    person.edit("Staging is goose.", "Staging is heron.")
    assert person.states() == ["fresh"]
    person.edit("quote: called heron", "quote: '[redacted]'")
    assert person.states() == ["drifted"]
    person.edit("quote: '[redacted]'", "quote: called heron")
    person.memorizer.archives.delete(THREAD)
    assert person.states() == ["orphaned"]
    assert person.blobs() == []
    assert person.memorize(groundings=[{"quote": "called heron"}]).archive.about.id == THREAD
    assert person.states() == ["fresh"]


def test_the_archive_holds_no_secret_and_the_events_that_are_cited(person: Person) -> None:
    file = rollout(person.home / ".codex", THREAD)
    counts = codex("event_msg", type="token_count", info={"total_token_usage": {"input": 3}})
    write(file, *person.lines(codex_said("user", f"the token is {SECRET}"), counts))
    done = person.memorize(groundings=[{"raw_event_index": 3}, {"raw_event_index": 4}])
    cited = done.memory.as_json()["groundings"]
    assert "[redacted: GitHub token]" in cited[0]["raw_event"]
    assert "total_token_usage" not in cited[1]["raw_event"]
    shown = [one.text for one in person.memorizer.archives.messages(done.archive)]
    assert shown == [SAID, "noted", "the token is [redacted: GitHub token]"]
    assert person.states() == ["fresh"]


def test_this_homes_own_conversations_are_cited_like_others(harness: Harness) -> None:
    outcome = harness.run("Remember: the deploy day is Thursday.")
    memorizer = harness.rooms.memorizer
    request = MemorizeRequest(
        conversation_id=outcome.conversation_id,
        content="Deploys are on Thursday.",
        groundings=[{"quote": "deploy day is Thursday"}, {"raw_event_index": 0}],  # type: ignore[list-item]
    )
    done = memorizer.memorize(request, by=harness.rooms.principal.author("memorize"))
    assert done.memory.origin.provider == "harness"
    assert done.memory.moments[0].message == 1
    local = LocalConversations(transcript_roots(Path("/nowhere")), memorizer.own)
    assert [one.id for one in local.list()] == [outcome.conversation_id]
    assert local.get(outcome.conversation_id).messages[0].text.startswith("Remember")


def test_a_claude_session_is_cited_by_the_ids_of_its_messages(person: Person) -> None:
    write(
        person.home / ".claude" / "projects" / "-shop" / f"{SESSION}.jsonl",
        claude("user", "u-1", None, "deploy day is Thursday"),
        claude("assistant", "a-2", "u-1", text("noted")),
    )
    done = person.memorize(
        conversation_id=SESSION,
        groundings=[{"provider_message_uuid": "u-1", "start_character": 14, "end_character": 22}],
    )
    assert done.memory.moments[0].quote == "Thursday"


def test_an_archive_is_enough_when_the_transcript_is_gone(person: Person) -> None:
    person.memorize("One.")
    rollout(person.home / ".codex", THREAD).unlink()
    done = person.memorize("Two.", groundings=[{"quote": "called heron"}])
    assert (done.status, len(done.archive.snapshots)) == ("created", 1)
    with pytest.raises(NotFound):
        person.memorize(conversation_id=OTHER)


def test_a_memory_of_an_agent_lies_in_its_own_workspace(person: Person) -> None:
    agent = person.harness.agents.get("assistant")
    done = person.memorize(agent_id="assistant")
    assert done.memory.workspace_id == f"agent:{agent.id}"
    assert done.memory.as_json()["agent_id"] == agent.id
    assert person.memorize("Two.", agent_id="assistant", workspace="notes").memory.workspace == (
        "notes"
    )


def test_memories_are_listed_by_every_filter(person: Person) -> None:
    person.memorize("Alpha.", tags=["ops"], confidence=0.5, memory_key="a")
    person.memorize("Beta.", tags=["ops", "web"], confidence=0.75, memory_key="b")
    memories = person.memorizer.memories

    def found(**request: Any) -> list[str]:
        page = memories.list(parse(ResourceListRequest, request))
        assert page.total >= len(page.memories)
        return [one.fact.value for one in page.memories]

    assert found() == ["Beta.", "Alpha."]
    assert found(sort="created_at") == ["Alpha.", "Beta."]
    assert found(sort="-confidence") == ["Beta.", "Alpha."]
    assert found(tags=["ops", "WEB"]) == ["Beta."]
    assert found(q="ALPH ops") == ["Alpha."]
    assert found(provider="codex", project="/home/me") == ["Beta.", "Alpha."]
    assert found(project="/home/me/sho") == []
    assert found(conversation_id=THREAD, per_page=1, page=2) == ["Alpha."]
    assert found(updated_after="2100-01-01") == []
    assert len(found(updated_before="2100-01-01")) == 2
    with pytest.raises(Refused):
        found(updated_after="soon")


def test_another_user_finds_nothing_of_an_archive(person: Person) -> None:
    done = person.memorize(groundings=[{"quote": "called heron"}])
    house, principal = person.harness.house, person.harness.rooms.principal
    other = person.harness.rooms.users.add({"name": "bea"})
    theirs = house.rooms(principal.as_user(other, may_configure=False)).memorizer
    assert theirs.archives.list() == []
    for reference in (done.archive.id, THREAD):
        with pytest.raises(NotFound):
            theirs.archives.get(reference)
        with pytest.raises(NotFound):
            theirs.archives.delete(reference)
    request = MemorizeRequest(conversation_id=THREAD, content="x")
    with pytest.raises(NotFound):
        theirs.memorize(request, by=Author("b", "b", "memorize"))
    assert theirs.memories.all() == []
    person.harness.deletion.user(other.id)


def test_a_deleted_users_archives_go(person: Person) -> None:
    principal = person.harness.rooms.principal
    other = person.harness.rooms.users.add({"name": "bea"})
    theirs = person.harness.house.rooms(principal.as_user(other, may_configure=False)).memorizer
    request = MemorizeRequest(conversation_id=THREAD, content="x")
    theirs.memorize(request, by=Author("b", "b", "memorize"), local=person.local)
    assert len(person.blobs()) == 1
    person.harness.deletion.user(other.id)
    assert person.blobs() == []


def test_facts_with_secrets_are_refused_unless_the_setting_allows_them(
    harness: Harness,
) -> None:
    facts = harness.facts.of_workspace("notes")
    with pytest.raises(Refused, match="looks like a GitHub token") as refused:
        facts.put("token", f"it is {SECRET}")
    assert SECRET not in str(refused.value)
    allowing = replace(harness.facts, may_hold_secrets=True).of_workspace("notes")
    assert allowing.put("token", f"it is {SECRET}").is_new


def test_a_snapshot_that_is_over_the_limit_leaves_nothing(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "SNAPSHOTS_MAX", 1)
    person.memorize(memory_key="one")
    before = person.blobs()
    write(rollout(person.home / ".codex", THREAD), *person.lines(codex_said("user", "more")))
    with pytest.raises(OverLimit, match="snapshots"):
        person.memorize(memory_key="two")
    assert person.blobs() == before


def test_a_workspace_that_cannot_be_read_hides_no_memory_of_another(harness: Harness) -> None:
    broken, home = harness.workspaces.create("a broken one"), harness.settings.home
    with Harness.open(home.root) as restarted:
        person = Person(restarted, home.root.parent / "person")
        broken.root.rename(broken.root.with_suffix(".away"))
        memory = person.memorize(memory_key="one").memory
        write(rollout(person.home / ".codex", THREAD), *person.lines(codex_said("user", "more")))
        again = person.memorize("Staging is a heron.", memory_key="one")
        assert (again.status, again.memory.fact.id) == ("updated", memory.fact.id)
        memories = person.memorizer.memories
        assert memories.get("memorize:one").fact.value == "Staging is a heron."
        with pytest.raises(Unavailable, match="is missing"):
            memories.get("memorize:two")  # it may lie there
        memories.delete("memorize:one", restarted.rooms.principal.author("api"))
