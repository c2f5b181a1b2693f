"""The caller's own functions as tools of a turn that runs on a server: declared with the turn, called
here."""

from __future__ import annotations

from collections.abc import Sequence

from harness.messages.event import ToolAnswer
from harness.messages.message import ToolCall
from harness.tools.custom import CustomTool
from harness.tools.port import as_text
from harness.transcripts.outcome import Outcome
from workspaces.errors import Failure, Refused
from workspaces.storage.records import JsonObject


def declared(own: Sequence[CustomTool]) -> list[JsonObject]:
    """Return the declarations of the functions.

    Raises: Refused for a function whose calls need approval: no approval is asked for where it is called.
    """
    for tool in own:
        if tool.asks:
            remedy = "ask in the function itself"
            raise Refused(
                "tools",
                tool.name,
                "needs approval, which a tool of a client cannot ask for",
                remedy=remedy,
            )
    return [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.schema}
        for tool in own
    ]


async def results_of(outcome: Outcome, own: Sequence[CustomTool]) -> list[ToolAnswer]:
    """Call the functions that the turn waits for, in order, and return their results."""
    tools = {tool.name: tool for tool in own}
    mine = [one.call for one in outcome.pending if one.asked.waits_for == "result"]
    return [await _call(tools[call.name], call) for call in mine if call.name in tools]


async def _call(tool: CustomTool, call: ToolCall) -> ToolAnswer:
    """Call one function. A failure is a result too."""
    try:
        return ToolAnswer(call_id=call.id, content=await tool.run(call))
    except Failure as failure:
        return ToolAnswer(call_id=call.id, content=as_text(failure), is_error=True)
