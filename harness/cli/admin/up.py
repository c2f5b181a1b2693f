"""The command `harness up`: the HTTP server of a home."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from harness.cli.console.console import HomeOption, notes, opened, put

if TYPE_CHECKING:
    from harness import Harness

HOST = "127.0.0.1"
PORT = 8642

LogLevel = Literal["debug", "info", "warning", "error"]

_PLAIN = "other machines can reach this address, and keys travel to it without encryption"
_BEHIND_PROXY = (
    "put a proxy with TLS before it, as docs/operations.md shows, and listen on 127.0.0.1"
)

ALLOCATIONS_PER_COLLECTION = 50_000
"""Allocations between two runs of the garbage collector. A server makes so many in a second."""

OPEN_AFTER_S = 0.5
"""Seconds until the browser is opened; by then the server answers."""


def register(app: typer.Typer) -> None:
    app.command()(up)


def up(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = HOST,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 chooses a free one.")
    ] = PORT,
    demo: Annotated[
        bool,
        typer.Option("--demo/--no-demo", help="Let the offline demo model answer without a key."),
    ] = True,
    no_auth: Annotated[
        bool,
        typer.Option("--no-auth", help="Ask for no key. Only on an address of this machine alone."),
    ] = False,
    shows: Annotated[
        bool, typer.Option("--open", help="Open the pages in a browser, if this is a terminal.")
    ] = False,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Make no start token, and print none.")
    ] = False,
    log_level: Annotated[
        LogLevel, typer.Option(help="The least serious lines that are logged.")
    ] = "info",
    home: HomeOption = None,
) -> int:
    """Serve a home over HTTP: the API and web pages.

    The command prints the address to open, with a token that is valid while the server runs. With --no-token
    there is none, for a server whose output others can read: sign in with a key. Logs are JSON lines on
    standard error. Ctrl-C ends the server after it has finished running requests. With --no-demo it
    does not start without a model of a provider.

    With --no-auth every program on this machine acts as the owner, without a key. Routes that make keys or
    accounts are then not served.
    """
    import asyncio
    from contextlib import ExitStack

    from harness.bootstrap.authentication import admin_key, start_token
    from harness.bootstrap.composition import background_tasks
    from harness.bootstrap.open_server import marked_open
    from harness.runtime.json_log import event, log_json_lines
    from harness.runtime.memory_arenas import bound_arenas
    from harness.web.app import create_app
    from harness.web.server import Server, listen

    log = logging.getLogger("harness.server")
    with opened(home, allows_demo=demo) as harness:
        harness.house.models.check_start()
        listening = listen(host, port)
        if no_auth:
            _check_loopback(host, listening.getsockname()[0])
        log_json_lines(level=logging.getLevelNamesMapping()[log_level.upper()])
        bound_arenas()
        gc.set_threshold(ALLOCATIONS_PER_COLLECTION)
        harness.house.build_all(harness.rooms.principal)
        residents = background_tasks(harness.house)
        app = create_app(harness, names=[host], residents=residents, asks_for_keys=not no_auth)
        server = Server(app)
        takes_writes = _takes_writes(harness, log)
        if takes_writes and harness.settings.admin_key is None:
            admin_key(harness.settings.home)  # create the file now: users look for it there
        with ExitStack() as stack:
            token = None
            if takes_writes and not no_token:
                token = stack.enter_context(start_token(harness.settings.home))
            stack.enter_context(server.capture_signals())
            address = _address(host, listening.getsockname()[1])
            if no_auth:
                stack.enter_context(marked_open(harness.settings.home, address))
                put("No key is required: every program on this machine acts as the owner.\n")
            event(log, "started", **_start_facts(harness, address))
            if notice := harness.house.models.demo_notice():
                remedy = "set ANTHROPIC_API_KEY; `harness up --no-demo` does not start without it"
                event(log, "demo model", level=logging.WARNING, reason=notice, remedy=remedy)
            if not _is_loopback(listening.getsockname()[0]):
                event(log, "plain HTTP", level=logging.WARNING, reason=_PLAIN, remedy=_BEHIND_PROXY)
            shown = f"{address}/" if token is None else f"{address}/?token={token}"
            put(f"{shown}\n")
            sys.stdout.flush()
            if sys.stderr.isatty():
                notes().print("[dim]Ctrl-C ends it.[/]")
            if shows and _can_show(sys.stdout.isatty(), sys.platform, os.environ):
                _show_soon(shown)
            asyncio.run(server.serve(sockets=[listening]))
            ended_by = None if server.ended_by is None else signal.Signals(server.ended_by).name
            event(log, "ended", address=address, signal=ended_by)
    return 130 if server.ended_by == signal.SIGINT else 0


def _takes_writes(harness: Harness, log: logging.Logger) -> bool:
    """Return True if the home can be written. One that cannot is served to readers, who sign in with a key,
    because a token is a file."""
    from harness.runtime.json_log import event
    from workspaces.errors import Unavailable

    try:
        harness.settings.home.check_writable()
    except Unavailable as failure:
        remedy = "files can be read with a key; to write, free disk space or make the home writable"
        event(log, "no writes", level=logging.WARNING, reason=str(failure), remedy=remedy)
        return False
    return True


def _is_loopback(bound: str) -> bool:
    from ipaddress import ip_address

    return ip_address(bound.partition("%")[0]).is_loopback


def _check_loopback(host: str, bound: str) -> None:
    """Raise Refused if other machines may reach the address."""
    from workspaces.errors import Refused

    if not _is_loopback(bound):
        rule = "is reachable from other machines; --no-auth is only for this machine"
        remedy = "leave --host out, or leave --no-auth out"
        raise Refused("host", host, rule, remedy=remedy)


def _start_facts(harness: Harness, address: str) -> dict[str, Any]:
    from importlib.metadata import version

    from harness.models.model_name import DEMO

    is_demo = harness.house.models.demo_notice() is not None
    return {
        "version": version("workspace-harness"),
        "home": str(harness.settings.home.root),
        "address": address,
        "model": DEMO if is_demo else harness.settings.model,
    }


def _can_show(is_terminal: bool, platform: str, environment: Mapping[str, str]) -> bool:
    """Return True if a person sits here, at a screen. A text browser would take over the terminal."""
    has_screen = platform in ("darwin", "win32") or any(
        environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return is_terminal and has_screen


def _show_soon(url: str) -> None:
    """Open a browser once the server is up. It does not matter if there is none: the address is printed."""
    import threading
    import webbrowser

    opening = threading.Timer(OPEN_AFTER_S, webbrowser.open, [url])
    opening.daemon = True
    opening.start()


def _address(host: str, port: int) -> str:
    """Return the address that a browser on this machine can open."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)  # noqa: S104
    shown = f"[{name}]" if ":" in name and not name.startswith("[") else name
    return f"http://{shown}:{port}"
