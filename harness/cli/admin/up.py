"""The command `harness up`: the HTTP server of a home."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from harness.cli.console.console import HomeOption, notes, opened, put

HOST = "127.0.0.1"
PORT = 8642


def register(app: typer.Typer) -> None:
    app.command()(up)


def up(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = HOST,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 chooses a free one.")
    ] = PORT,
    home: HomeOption = None,
) -> int:
    """Serve a home over HTTP: the API and web pages.

    The command prints the address to open, with a token that is valid while the server runs. Logs are JSON
    lines on standard error. Ctrl-C ends the server after it has finished running requests.
    """
    import asyncio

    from harness.bootstrap.authentication import admin_key, start_token
    from harness.bootstrap.composition import background_tasks
    from harness.runtime.json_log import log_json_lines
    from harness.web.app import create_app
    from harness.web.server import Server, listen

    with opened(home) as harness:
        listening = listen(host, port)
        log_json_lines()
        app = create_app(harness, names=[host], residents=background_tasks(harness.house))
        server = Server(app)
        if harness.settings.admin_key is None:
            admin_key(harness.settings.home)  # create the file now: users look for it there
        with start_token(harness.settings.home) as token, server.capture_signals():
            address = _address(host, listening.getsockname()[1])
            put(f"{address}/?token={token}\n")
            sys.stdout.flush()
            if sys.stderr.isatty():
                notes().print("[dim]Ctrl-C ends it.[/]")
            asyncio.run(server.serve(sockets=[listening]))
    return 130 if server.ended_by == signal.SIGINT else 0


def _address(host: str, port: int) -> str:
    """Return the address that a browser on this machine can open."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)  # noqa: S104
    shown = f"[{name}]" if ":" in name and not name.startswith("[") else name
    return f"http://{shown}:{port}"
