"""The tools that every agent has."""

from __future__ import annotations

from harness.tools.bash import BASH
from harness.tools.files.edit import EDIT
from harness.tools.files.glob import GLOB
from harness.tools.files.grep import GREP
from harness.tools.files.read import READ
from harness.tools.files.read_result import READ_RESULT
from harness.tools.files.write import WRITE
from harness.tools.memory.recall import RECALL
from harness.tools.memory.update_memory import UPDATE_MEMORY
from harness.tools.port import AnyTool

TOOLS: tuple[AnyTool, ...] = (
    BASH,
    READ,
    GLOB,
    GREP,
    WRITE,
    EDIT,
    RECALL,
    UPDATE_MEMORY,
    READ_RESULT,
)
