"""The routers of all pages for people."""

from __future__ import annotations

from harness.web.pages.account import forbid, forget, keys, overview, sign_in, trash, usage
from harness.web.pages.agent import agent, blocks, conversation, decisions, prompt, runs
from harness.web.pages.workspace import files, history, memory, problems, recall

PAGES = (
    sign_in.router,
    overview.router,
    usage.router,
    keys.router,
    forget.router,
    forbid.router,
    trash.router,
    memory.picker,
    memory.workspace_rows,
    memory.agent_rows,
    files.router,
    history.router,
    problems.router,
    recall.router,
    agent.router,
    blocks.router,
    prompt.router,
    runs.router,
    decisions.router,
    conversation.router,
)
