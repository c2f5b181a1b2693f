"""The outbox: a pull waits until the pushes of other processes have entered their files in the baseline."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces.actors import start
from tests.workspaces.replicas import Replica
from tests.workspaces.two_machines import a, machine, place, prefix
from workspaces.paths import WorkspacePath
from workspaces.sync import outbox
from workspaces.sync.outbox import Outbox

__all__ = ["a", "machine", "place", "prefix"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "outbox.lock"


def test_waiting_for_the_outbox_ends_when_every_sender_has_finished(file: Path) -> None:
    waiting = threading.Thread(target=Outbox(file).wait)
    mine = Outbox(file)
    with mine.sending():
        with mine.sending(), Outbox(file).sending():
            waiting.start()
        waiting.join(timeout=0.1)
        assert waiting.is_alive()
    waiting.join(timeout=60)
    assert not waiting.is_alive()
    with mine.sending():  # nobody is kept from it
        pass


def test_waiting_for_the_outbox_ends_when_the_sending_process_is_killed(file: Path) -> None:
    sender = start(send_for_ever, str(file), out=-1)
    try:
        assert sender.stdout is not None
        assert sender.stdout.readline() == "sending\n"
        waiting = threading.Thread(target=Outbox(file).wait)
        waiting.start()
        waiting.join(timeout=0.1)
        assert waiting.is_alive()
    finally:
        os.killpg(sender.pid, signal.SIGKILL)
        sender.communicate(timeout=60)
    waiting.join(timeout=60)
    assert not waiting.is_alive()


def send_for_ever(file: str) -> None:
    with Outbox(Path(file)).sending():
        print("sending", flush=True)
        time.sleep(600)


def test_waiting_for_the_outbox_ignores_a_child_forked_during_a_send(file: Path) -> None:
    mine = Outbox(file)
    with mine.sending():
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    begun = time.monotonic()
    try:
        mine.wait()
        assert time.monotonic() - begun < outbox.WAIT_S
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_wait_for_the_outbox_that_timed_out_is_not_repeated_at_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "WAIT_S", 0.2)
    mine = Outbox(file)
    begun = time.monotonic()
    with Outbox(file).sending():
        mine.wait()
        assert time.monotonic() - begun >= outbox.WAIT_S
        monkeypatch.setattr(outbox, "WAIT_S", 600)
        mine.wait()


def test_a_push_updates_the_baseline_after_each_file_and_not_at_the_end(
    a: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever brings what others have built on one does not wait for the other."""
    a.sync.run()
    write = a.sync._there.write
    may_go_on = threading.Event()

    def slowly(path: str, *given: Any, **how: Any) -> Any:
        if path == "big.md":
            assert may_go_on.wait(timeout=60)
        return write(path, *given, **how)

    monkeypatch.setattr(a.sync._there, "write", slowly)
    paths = [WorkspacePath("big.md"), WorkspacePath("small.md")]
    for path in paths:
        a.put(path, "x\n")
    pushing = threading.Thread(target=a.sync.push, args=[paths])
    pushing.start()
    end = time.monotonic() + 60
    while a.sync._baseline.find(paths[1]) is None and time.monotonic() < end:
        time.sleep(0.01)
    assert [a.sync._baseline.find(path) is not None for path in paths] == [False, True]
    may_go_on.set()
    pushing.join(timeout=60)
    assert a.sync._baseline.find(paths[0]) is not None


def test_waiting_for_the_outbox_ends_after_a_time_limit(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "WAIT_S", 0.05)
    with Outbox(file).sending():
        Outbox(file).wait()


def test_an_outbox_without_a_lock_file_never_waits() -> None:
    with Outbox(None).sending():
        Outbox(None).wait()
