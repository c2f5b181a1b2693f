"""The tool `get_my_decisions`: what an agent has decided before."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from harness.mcp.tool import READS, McpCall, McpTool, ToolInput, ToolOutput, fitting
from harness.runs.result_tools import LISTED, LISTED_MAX
from workspaces.errors import Forbidden


class MyDecisionsArguments(ToolInput):
    agent_id: str | None = None
    """Name or id. Null: the agent that HARNESS_AGENT_ID names."""
    limit: Annotated[int, Field(ge=1, le=LISTED_MAX)] = LISTED


class MyDecision(ToolOutput):
    run_id: str
    at: str
    type: str
    line: str
    outcome: str | None
    resolution_status: str | None
    conviction: dict[str, Any] | None


class MyDecisionsOutput(ToolOutput):
    decisions: list[MyDecision]
    told: str
    """The same as lines for a model, with ages and the tally."""
    left_out: int


def _my_decisions(arguments: MyDecisionsArguments, call: McpCall) -> MyDecisionsOutput:
    principal = call.caller.services.principal
    if not principal.may_configure or principal.user_id != principal.owner.id:
        raise Forbidden("read an agent's decisions")
    agent = call.caller.agent(arguments.agent_id)
    decisions = call.caller.services.decisions
    views = [view.as_json() for view in decisions.list(agent.id, limit=arguments.limit)]
    rows = [
        MyDecision(
            run_id=view["runId"],
            at=view["at"],
            type=view["type"],
            line=view["line"],
            outcome=view["outcome"],
            resolution_status=view["resolutionStatus"],
            conviction=view["conviction"],
        )
        for view in views
    ]
    kept = fitting(rows)
    told = decisions.told(agent.id, len(kept))
    return MyDecisionsOutput(decisions=kept, told=told, left_out=len(rows) - len(kept))


def _text(output: MyDecisionsOutput) -> str:
    left = f"\n({output.left_out} older ones are left out)" if output.left_out else ""
    return f"{output.told}{left}"


GET_MY_DECISIONS = McpTool(
    "get_my_decisions",
    "List an agent's decisions",
    input=MyDecisionsArguments,
    output=MyDecisionsOutput,
    run=_my_decisions,
    text=_text,
    hints=READS,
)
