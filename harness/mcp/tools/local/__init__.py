"""The tools that read conversations of other agents. They are served over standard input alone: there the
client runs on this machine, as the person whose conversations these are."""

from harness.mcp.tool import AnyMcpTool
from harness.mcp.tools.local.local_conversations_get import LOCAL_CONVERSATIONS_GET
from harness.mcp.tools.local.local_conversations_list import LOCAL_CONVERSATIONS_LIST

LOCAL_TOOLS: tuple[AnyMcpTool, ...] = (LOCAL_CONVERSATIONS_LIST, LOCAL_CONVERSATIONS_GET)
