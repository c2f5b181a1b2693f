"""The MCP server: this memory as tools, resources and a prompt for other agent programs.

    server.py      the protocol: lists, calls, resources, the prompt
    caller.py      who asks, and what that caller may reach
    tool.py        what a tool is: input and output models, hints, the text for the model
    tools/         one tool a file: files/ history/ memory/
    resource.py    `memory://<workspace>/<path>`
    notices.py     telling clients that a file has changed
    stdio.py       serving one client over standard input and output

`harness/web/mcp_endpoint.py` serves the same over HTTP.
"""
