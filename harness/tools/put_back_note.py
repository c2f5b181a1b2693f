"""The sentence by which a tool tells the model that a part of its change was put back."""

from __future__ import annotations

from harness.runtime.templates import render
from workspaces.workspace.protection import PutBack


def put_back_note(put_back: PutBack) -> str:
    return render("tools/put-back.md", path=put_back.path, what=put_back.what).strip()
