"""A made-up home: a small account in which every page of the console has something to show.

The content is a story in `templates/demo/`. It is written as it would be in real life: files by hand, turns
of agents, runs, decisions and later looks at them, rows from several sources, blocks, and a conflict. A
clock that is moved by hand spreads it over the last weeks. No provider is asked: a scripted model replies.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from harness.agents.record import AgentRecord
from harness.harness import Harness
from harness.memorize.memorize_request import MemorizeRequest
from harness.memorize.sent_conversation import SentConversation
from harness.memory.blocks.block import BLOCK_TYPES
from harness.memory.blocks.condition import UNCONDITIONAL
from harness.memory.facts.facts import FactChange
from harness.messages.message import Text, ToolCall
from harness.messages.model_request import ModelFailure
from harness.models.scripted import ScriptedModel
from harness.runs.result_tools import SUBMIT
from harness.runtime.settings import DEFAULT_MODEL
from harness.runtime.strict_json import parse_json
from harness.runtime.templates import root
from workspaces.clock import ManualClock, SystemClock
from workspaces.errors import ForbiddenText, Refused
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.tree.conflict_copy import conflict_path
from workspaces.validation import parse
from workspaces.workspace.workspace import Workspace

STORY_DAYS = 12
"""The days over which the story is spread."""

HOUR_S = 3600.0


def make_demo_home(directory: Path) -> None:
    """Make a filled home in an empty directory, which may not exist yet.

    Raises: Refused if the directory holds anything.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        remedy = "name a directory that is empty or does not exist"
        raise Refused("directory", str(directory), "is not empty", remedy=remedy)
    story: dict[str, Any] = parse_json(
        (root() / "demo" / "story.json").read_bytes(), within="story"
    )
    clock = ManualClock(SystemClock().now() - timedelta(days=STORY_DAYS))
    model = ScriptedModel(name=DEFAULT_MODEL)
    with Harness.open(directory, model=model, clock=clock) as harness:
        _Story(harness, model, clock, story).tell()


class _Story:
    """The story while it is told."""

    def __init__(
        self, harness: Harness, model: ScriptedModel, clock: ManualClock, story: dict[str, Any]
    ) -> None:
        self._harness = harness
        self._model = model
        self._clock = clock
        self._story = story

    def tell(self) -> None:
        harness, story = self._harness, self._story
        garden = harness.workspaces.create(**story["workspace"])
        files = root() / "demo" / "garden"
        by = harness.rooms.principal.author("api")
        for file in sorted(files.rglob("*.md")):
            garden.write(str(file.relative_to(files)), file.read_bytes(), by=by)
            self._pass(2)
        harness.workspaces.create(**story["recipes"])
        self._pass(30)
        agent = self._make_agent()
        self._add_facts(garden, agent)
        self._talk(agent)
        self._run()
        self._decide()
        self._write_blocks(agent)
        self._edit_by_hand(garden)
        self._leave_a_conflict(garden)
        self._wait_for_approval()
        self._forbid_and_delete()
        harness.rooms.users.add({"name": "Ben", "externalId": "ben@example.com"})
        harness.rooms.keys.create(label="watering script")

    def _forbid_and_delete(self) -> None:
        """Forbid what the story forbids, try to write it, and delete a workspace."""
        rooms, stated = self._harness.rooms, self._story["forbidden"]
        for rule in stated["rules"]:
            rooms.forbidding.forbid(rule)
        with suppress(ForbiddenText):
            rooms.workspaces.get("garden").write(
                "notes/orders.md", stated["refused"], by=rooms.principal.author("api")
            )
        self._harness.workspaces.create(**self._story["deleted"])
        self._harness.workspaces.delete(self._story["deleted"]["name"])

    def _add_facts(self, garden: Workspace, agent: AgentRecord) -> None:
        facts = self._harness.rooms.facts.over(garden)
        person = self._harness.rooms.principal.author("api")
        for fact in self._story["facts"]:
            source = fact["source"]
            by = person if source == "api" else Author(agent.name, agent.id, source)
            options = {name: fact[name] for name in ("pinned", "importance") if name in fact}
            facts.put(fact["key"], fact["value"], by=by, **options)
            if source != "api" and fact.get("pinned"):  # a model may not pin: a person does
                facts.change(fact["key"], FactChange(pinned=True), by=person)
            self._pass(7)
        self._memorize()

    def _memorize(self) -> None:
        """Memorize a fact with its proof, as another agent program does over MCP."""
        said, memory = self._story["memorized"]["conversation"], self._story["memorized"]["memory"]
        rooms = self._harness.rooms
        rooms.memorizer.memorize(
            parse(MemorizeRequest, {**memory, "conversation_id": said["id"]}),
            by=rooms.principal.author("memorize"),
            sent=parse(SentConversation, said).whole(self._clock),
        )
        self._pass(7)

    def _make_agent(self) -> AgentRecord:
        stated = self._story["agent"]
        return self._harness.agents.create(
            stated["name"], workspaces=["garden"], system=stated["system"]
        )

    def _talk(self, agent: AgentRecord) -> None:
        for number, turn in enumerate(self._story["talk"]):
            if "writes" in turn:
                call = ToolCall(f"toolu_demo_{number}", "write", turn["writes"])
                self._model.script((Text("I write it down."), call), turn["replies"])
            else:
                self._model.script(turn["replies"])
            self._harness.run(turn["said"], agent=agent, conversation="planning")
            self._pass(26)

    def _run(self) -> None:
        harness = self._harness
        name = self._story["agent"]["name"]
        harness.runs.set_memory(name, is_enabled=True)
        harness.agents.patch(
            name,
            {
                "config": {
                    "schedule": {"cron": "0 7 * * 1-5", "timezone": "UTC"},
                    "defaultPrompt": self._story["runs"][0]["prompt"],
                }
            },
        )
        for run in self._story["runs"]:
            failed = ModelFailure("broken", "the provider did not answer", "try again later")
            self._model.script(run["replies"] or failed)
            started = harness.runs.start(name, run["prompt"])
            harness.finish_run(started.id)
            self._pass(21)

    def _decide(self) -> None:
        """Let a second agent decide, note what came of it, and let it look at its decisions again."""
        harness, planner = self._harness, self._story["planner"]
        agent = harness.agents.create(
            planner["name"], workspaces=["garden"], system=planner["system"]
        )
        config = {"card": "decision", "reviewDecisions": True}
        harness.agents.patch(agent.id, {"config": config})
        for decision in self._story["decisions"]:
            started = harness.runs.start(agent.name, decision["prompt"])
            self._submit(started.id, decision["data"])
            self._pass(9)
            for look in decision["looks"]:
                self._submit(harness.runs.re_examine(started.id).id, look)
                self._pass(7)
            if decision["outcome"] is not None:
                outcome, status = decision["outcome"]
                harness.rooms.decisions.set_outcome(started.id, outcome, None, status)

    def _submit(self, run_id: str, result: dict[str, Any]) -> None:
        """Let the model end a run with this result."""
        self._model.script((ToolCall(f"toolu_{run_id}", SUBMIT, result),))
        self._harness.finish_run(run_id)

    def _write_blocks(self, agent: AgentRecord) -> None:
        blocks, by = self._harness.rooms.blocks, self._harness.rooms.principal.author("api")
        for block_type in BLOCK_TYPES:
            place = blocks.place_of(block_type, agent.id)
            blocks.put(place, self._story["blocks"][block_type], UNCONDITIONAL, by=by)

    def _edit_by_hand(self, garden: Workspace) -> None:
        memory = garden.root / "MEMORY.md"
        memory.write_text(memory.read_text() + self._story["byHand"])
        garden.edits.commit()
        self._pass(5)

    def _leave_a_conflict(self, garden: Workspace) -> None:
        """Leave two versions of a file, as two machines make them that were offline."""
        path, by = WorkspacePath("notes/watering.md"), self._harness.rooms.principal.author("api")
        garden.write(path, self._story["mine"], by=by)
        theirs = self._story["theirs"].encode()
        copy = garden.root / conflict_path(path, version_of(theirs))
        copy.write_bytes(theirs)
        garden.edits.commit()
        self._pass(3)

    def _wait_for_approval(self) -> None:
        harness, waits = self._harness, self._story["waits"]
        sandbox = harness.rooms.sandboxes.add({"name": "careful", "config": {"permission": "ask"}})
        name = self._story["agent"]["name"]
        harness.agents.patch(name, {"config": {"sandbox": sandbox.id}})
        self._model.script((ToolCall("toolu_demo_waits", "write", waits["writes"]),))
        harness.run(waits["said"], agent=name, conversation="beans")

    def _pass(self, hours: float) -> None:
        """Let some hours pass, but never beyond the present."""
        left = (SystemClock().now() - self._clock.now()).total_seconds()
        self._clock.advance(max(0.0, min(hours * HOUR_S, left - 60.0)))
