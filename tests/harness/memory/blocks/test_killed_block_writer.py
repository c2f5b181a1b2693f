"""A writer that is killed after S3 has accepted its block, and before its revision is made."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from harness.memory.blocks.block import BlockConflict
from harness.memory.blocks.condition import BlockCondition
from tests.faulty_proxy import Late, faulty_proxy
from tests.harness.cli.terminal import COMMAND, COMMAND_S_MAX, Terminal
from tests.harness.homes import Open, opened, prefix
from tests.servers import S3Server

__all__ = ["opened", "prefix"]

EDIT = ("block", "edit", "core", "--text")


def show(terminal: Terminal) -> str:
    return terminal("block", "show", "core").done().out


def test_a_block_that_s3_has_accepted_stands_after_its_writer_was_killed(
    tmp_path: Path, seaweedfs: S3Server, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty_proxy(seaweedfs.url) as wire:
        names = ("HARNESS_S3", "HARNESS_RECORDS")
        variables = {name: os.environ[name] for name in names}
        here = Terminal(tmp_path / "here", {**variables, "AWS_ENDPOINT_URL_S3": wire.url})
        there = opened("there")
        here(*EDIT, "- begun").done()
        here(*EDIT, "- second").done()
        place = there.blocks.place("core")
        stale = there.blocks.get(place)
        assert stale.content == "- second"
        late = Late()
        wire.carried.clear()
        wire.fault_at = ("PUT", "blocks/core.md", late)
        writer = subprocess.Popen(
            [*COMMAND, *EDIT, "- killed"],
            env=here.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until = time.monotonic() + COMMAND_S_MAX
            while "PUT" not in wire.carried:
                assert time.monotonic() < until
                assert writer.poll() is None
                time.sleep(0.01)
        finally:
            writer.kill()
            writer.wait()
            late.released.set()
        assert file_of(here).read_text() == "- second\n"
        won = there.blocks.get(place)
        assert won.content == "- killed"
        by = there.rooms.principal.author("api")
        with pytest.raises(BlockConflict) as caught:
            there.blocks.put(place, "- another", BlockCondition(stale.updated_at), by=by)
        assert caught.value.block == won
        assert show(here) == "- killed\n"
        there.blocks.put(place, "- after", BlockCondition(won.updated_at), by=by)
        assert show(here) == "- after\n"


def file_of(terminal: Terminal) -> Path:
    """The block's file at a home, without opening the home."""
    (file,) = (terminal.home / "workspaces").glob("*/blocks/core.md")
    return file
