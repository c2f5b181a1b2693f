"""The routers of all pages for people."""

from __future__ import annotations

from harness.web.pages.account import forget, keys, overview, sign_in, usage
from harness.web.pages.agent import agent, blocks, conversation, decisions, prompt, runs
from harness.web.pages.workspace import files, history, memory, problems, recall

PAGES = (
    sign_in.router,
    overview.router,
    usage.router,
    keys.router,
    forget.router,
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
