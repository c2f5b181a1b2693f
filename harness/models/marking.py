"""A wrapper of the model port that puts marks in the place of forbidden texts in a reply.

A reply is marked when it is whole, and while it is streamed. For the stream, text is held back that may still
become part of a forbidden one. The search may take a moment, so it runs beside the model: what the model
reports waits in line meanwhile, and keeps its order. Without a rule everything is passed on at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.messages.marking import TextMarks, marked_message
from harness.messages.model_request import ModelFailure, ModelRequest, Reply
from harness.messages.progress import Emit, Progress, TextArrived, Withdrawn, silent
from harness.runtime.async_bridge import run_in_thread
from workspaces.forgetting.streamed_text import StreamedText

if TYPE_CHECKING:
    from harness.models.port import Model


class MarkingModel:
    def __init__(self, model: Model, marks: TextMarks) -> None:
        self._model = model
        self._marks = marks

    @property
    def name(self) -> str:
        return self._model.name

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        if emit is silent or self._marks.is_empty:
            reply = await self._model.reply(request, output_tokens_max=output_tokens_max, emit=emit)
        else:
            async with _marking(emit, self._marks) as stream:
                reply = await self._model.reply(
                    request, output_tokens_max=output_tokens_max, emit=stream.take
                )
                await stream.end(is_whole=isinstance(reply, Reply))
        if isinstance(reply, ModelFailure):
            return reply
        return replace(
            reply, message=await run_in_thread(marked_message, reply.message, self._marks.marked)
        )


@asynccontextmanager
async def _marking(emit: Emit, marks: TextMarks) -> AsyncGenerator[_MarkedStream]:
    """Yield a stream. If the block fails, nothing more is passed on."""
    stream = _MarkedStream(emit, marks)
    try:
        yield stream
    finally:
        await stream.stop()


class _MarkedStream:
    """The progress of one request, on its way from the model to its listeners."""

    def __init__(self, emit: Emit, marks: TextMarks) -> None:
        self._emit = emit
        self._marks = marks
        self._waiting: deque[Progress] = deque()
        self._wake = asyncio.Event()
        self._is_over = False
        self._work = asyncio.create_task(self._pass_on())

    def take(self, progress: Progress) -> None:
        """Take what the model reports.

        Raises: what a listener raised, or why the search failed.
        """
        if self._work.done():  # nothing is forbidden, or it failed
            self._work.result()
            self._emit(progress)
            return
        self._waiting.append(progress)
        self._wake.set()

    async def end(self, *, is_whole: bool) -> None:
        """Pass everything on. With `is_whole` the answer has come, so what is held back belongs to it."""
        self._is_over = True
        self._wake.set()
        stream = await self._work
        if stream is not None and is_whole:
            self._emit_text(await run_in_thread(stream.rest))

    async def stop(self) -> None:
        self._work.cancel()
        with suppress(asyncio.CancelledError, Exception):  # the caller has it, or has another
            await self._work

    async def _pass_on(self) -> StreamedText | None:
        """Pass on what waits, until all is over. Return at once if nothing is forbidden."""
        stream = await run_in_thread(self._marks.stream)
        while stream is not None and not (self._is_over and not self._waiting):
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._pass(stream)
        while self._waiting:
            self._emit(self._waiting.popleft())
        return stream

    async def _pass(self, stream: StreamedText) -> None:
        progress = self._waiting.popleft()
        match progress:
            case TextArrived(text, part):
                text += self._more_of(part)
                self._emit_text(await run_in_thread(stream.take, text, part))
            case Withdrawn():
                stream.withdraw()
                self._emit(progress)
            case _:
                self._emit(progress)

    def _more_of(self, part: int) -> str:
        """Return the text of the same part that has arrived meanwhile: one search does for all."""
        more: list[str] = []
        while self._waiting:
            following = self._waiting[0]
            if not isinstance(following, TextArrived) or following.part != part:
                break
            more.append(following.text)
            self._waiting.popleft()
        return "".join(more)

    def _emit_text(self, text: str) -> None:
        if text:
            self._emit(TextArrived(text))
