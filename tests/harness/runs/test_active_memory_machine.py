"""Active memory against a small model of its rules: chat, runs, ticks, toggles, resets and crashes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harness import Harness
from harness.runs.run import Run
from harness.sandboxes.none import NoSandbox
from tests.harness.runs.test_active_memory import Echo
from workspaces.clock import ManualClock


class ActiveMemoryMachine(RuleBasedStateMachine):
    """The model: what the next turn of the shared session sees, and where the session stands."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.clock, self.echo, self.number = ManualClock(), Echo(), 0
        self.harness = self.opened()
        schedule = {"cron": "0 * * * *", "timezone": "UTC"}
        never = {"enabled": False}  # the echo would see what is asked about a conversation
        config = {"defaultPrompt": "tick", "schedule": schedule, "extract": never}
        self.harness.agents.patch("assistant", {"config": config})
        self.is_on, self.has_state, self.runs = False, False, 0
        self.said: list[str] = []
        self.last_after: str | None = None

    def opened(self) -> Harness:
        how = {"model": self.echo, "clock": self.clock, "sandbox": NoSandbox("not here")}
        return Harness.open(Path(self.directory.name) / "home", **how)

    def teardown(self) -> None:
        self.harness.close()
        self.directory.cleanup()

    def text(self) -> str:
        self.number += 1
        return f"text {self.number}"

    def expect_shared(self, text: str, *, stays: bool) -> None:
        """A turn of the shared session sees what was said in it, and adds to it if it `stays`."""
        if self.is_on and not self.has_state:
            self.said = []
        assert self.echo.seen == [*self.said, text]
        if stays:
            self.said += [text, f"re: {text}"]

    def expect_run(self, run: Run, text: str) -> None:
        assert run.status == "succeeded"
        if not self.is_on:
            assert (self.echo.seen, run.session_before) == ([text], None)
            return
        assert (run.session_before is None) == (not self.has_state)
        self.expect_shared(text, stays=True)
        self.has_state, self.runs = True, self.runs + 1

    @rule()
    def chat(self) -> None:
        text = self.text()
        self.harness.run(text, is_shared=True)
        self.expect_shared(text, stays=True)
        self.has_state = self.has_state or self.is_on

    @rule()
    def run_succeeds(self) -> None:
        text = self.text()
        run = self.harness.runs.start("assistant", text)
        self.expect_run(self.harness.finish_run(run.id).run, text)

    @rule()
    def run_fails(self) -> None:
        text = self.text()
        self.echo.fails = True
        run = self.harness.finish_run(self.harness.runs.start("assistant", text).id).run
        self.echo.fails = False
        assert (run.status, run.session_after) == ("failed", None)
        if self.is_on:
            self.expect_shared(text, stays=False)

    @rule()
    def run_is_finished_by_another_process(self) -> None:
        text = self.text()
        run = self.harness.runs.start("assistant", text)
        self.harness.close()
        self.harness = self.opened()
        self.clock.advance(10)
        self.harness.run_jobs()
        self.expect_run(self.harness.runs.get(run.id).run, text)

    @rule()
    def tick(self) -> None:
        self.clock.advance(3600)
        self.harness.run_jobs()
        (newest,) = self.harness.runs.list("assistant", limit=1)
        assert newest.run.source == "schedule"
        self.expect_run(newest.run, "tick")

    @rule()
    def turn_on(self) -> None:
        self.harness.runs.set_memory("assistant", is_enabled=True)
        if not self.is_on:
            self.is_on, self.has_state, self.runs = True, False, 0

    @precondition(lambda self: self.is_on)
    @rule()
    def turn_off(self) -> None:
        self.harness.runs.set_memory("assistant", is_enabled=False)
        self.is_on = False

    @rule()
    def reset(self) -> None:
        self.harness.runs.reset_memory("assistant")
        self.has_state, self.runs = False, 0

    @invariant()
    def the_view_is_that_of_the_model(self) -> None:
        view = self.harness.runs.memory("assistant")
        assert (view.is_enabled, view.session_id is not None, view.runs) == (
            self.is_on,
            self.has_state,
            self.runs,
        )


ActiveMemoryMachine.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_active_memory_follows_its_rules = ActiveMemoryMachine.TestCase
