from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.workspaces.actors import start
from workspaces.sync import outbox
from workspaces.sync.outbox import Outbox


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "outbox.lock"


def test_who_waits_waits_until_all_have_told_who_were_sending(file: Path) -> None:
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


def test_who_is_dead_is_not_waited_for(file: Path) -> None:
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


def test_nobody_waits_for_ever(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "WAIT_S", 0.05)
    with Outbox(file).sending():
        Outbox(file).wait()


def test_where_nobody_else_sends_nobody_waits() -> None:
    with Outbox(None).sending():
        Outbox(None).wait()
