"""A provider on this machine that answers at once, in a process of its own: what is measured is the rest.

Its answers are bytes that were made before: a short one, a long one, and, to whoever says "work", first
two calls of the tool `read`, one after the other, then the short one.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

MODEL = "claude-sonnet-5-5"
LONG_PIECES = 2_000
CALLS = 2
PATH = "notes/n0.md"


@contextmanager
def provider() -> Generator[str]:
    """Its address."""
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.provider"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
    finally:
        server.kill()
        server.wait()


async def _serve() -> None:
    short, long = _said(["Hel", "lo."]), _said(["word "] * LONG_PIECES)
    calls = [_called(f"toolu_{number}") for number in range(CALLS)]

    def chosen(body: bytes) -> bytes:
        """By what was said last, and what was done about it since."""
        work = body.rfind(b'"work')
        if work < 0:
            return long if b'"long"' in body else short
        done = body.count(b'"tool_result"', work)
        return calls[done] if done < CALLS else short

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            writer.write(chosen(await reader.readexactly(_length(head))))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def _length(head: bytes) -> int:
    named = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    return int(named.partition(b":")[2])


def _said(pieces: list[str]) -> bytes:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return _answer({"type": "text", "text": ""}, deltas, "end_turn")


def _called(call_id: str) -> bytes:
    given = {"type": "input_json_delta", "partial_json": json.dumps({"path": PATH})}
    start = {"type": "tool_use", "id": call_id, "name": "read", "input": {}}
    return _answer(start, [given], "tool_use")


def _answer(block: dict[str, Any], deltas: list[dict[str, Any]], stop: str) -> bytes:
    usage = {"input_tokens": 9, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": []}
    ending = {"stop_reason": stop, "stop_sequence": None}
    events: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": {**message, "usage": usage}}),
        ("content_block_start", {"index": 0, "content_block": block}),
        *(("content_block_delta", {"index": 0, "delta": delta}) for delta in deltas),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": ending, "usage": {"output_tokens": 7}}),
        ("message_stop", {}),
    ]
    body = "".join(
        f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in events
    ).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


if __name__ == "__main__":
    asyncio.run(_serve())
