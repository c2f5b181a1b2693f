"""The tools of the MCP server, in the order in which hosts list them."""

from harness.mcp.tool import AnyMcpTool
from harness.mcp.tools.files.read import READ
from harness.mcp.tools.files.recall import RECALL
from harness.mcp.tools.files.search import GLOB, GREP
from harness.mcp.tools.files.write import EDIT, WRITE
from harness.mcp.tools.history.recall_at import RECALL_AT
from harness.mcp.tools.history.whats_new import WHATS_NEW
from harness.mcp.tools.history.when_did import WHEN_DID
from harness.mcp.tools.history.why import WHY
from harness.mcp.tools.memorize.memorize import MEMORIZE
from harness.mcp.tools.memorize.resource import (
    RESOURCE_DELETE,
    RESOURCE_GET,
    RESOURCE_LIST,
    SCHEMA,
)
from harness.mcp.tools.memory.decisions import GET_MY_DECISIONS
from harness.mcp.tools.memory.facts import DELETE_FACT, LIST_FACTS, PUT_FACT
from harness.mcp.tools.memory.update_memory import UPDATE_BLOCK

TOOLS: tuple[AnyMcpTool, ...] = (
    RECALL,
    READ,
    GLOB,
    GREP,
    WRITE,
    EDIT,
    WHY,
    WHEN_DID,
    RECALL_AT,
    WHATS_NEW,
    UPDATE_BLOCK,
    LIST_FACTS,
    PUT_FACT,
    DELETE_FACT,
    GET_MY_DECISIONS,
    MEMORIZE,
    RESOURCE_LIST,
    RESOURCE_GET,
    RESOURCE_DELETE,
    SCHEMA,
)
