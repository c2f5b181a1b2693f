"""The conversations of other agents on this machine: list them, and read one.

A list reads the beginning and the end of each file. What it has read of a file is kept, also for the next
process, while size and time of the file stay. A reader finds the places of all messages first, and then
reads those that are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol, get_args

from harness.memorize.local import claude_code, claude_desktop, codex
from harness.memorize.local.found_file import FoundFile
from harness.memorize.local.list_cache import ListCache
from harness.memorize.local.local_message import (
    KeptTexts,
    LocalConversation,
    LocalMessage,
    LocalTranscript,
    MessagePlace,
    Provider,
    SaidPart,
    TranscriptPart,
    WholeConversation,
    raw_event_text,
)
from harness.memorize.local.transcript_file import (
    SkippedLines,
    opened_transcript,
    read_line,
    read_lines,
)
from harness.runtime.settings import Settings, configured_directory
from workspaces.errors import Conflict, NotFound, Refused, Unavailable
from workspaces.timestamp import Stamp
from workspaces.validation import unknown_name

PREFIX_CHARACTERS_MIN = 4
"""Characters of the beginning of an id that name a conversation. Fewer name too many."""

KEPT_CHARACTERS_MAX = 32 * 2**20
"""Characters of messages that stay in memory while a whole conversation is read. The lines of the others are
read a second time."""

LIST_CACHE = "search/local-conversations.json"
"""The cache of lists, below a home."""

OWN: Provider = "harness"

CANDIDATES_MAX = 20
"""Conversations that an ambiguous id names in the error."""


@dataclass(frozen=True, slots=True)
class TranscriptRoots:
    """The directories of the agents, each in the form of its agent."""

    codex: tuple[Path, ...] = ()
    claude_code: tuple[Path, ...] = ()
    claude_desktop: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadConversation:
    """A conversation and the messages that were asked for."""

    conversation: LocalConversation
    messages: tuple[LocalMessage, ...]
    total: int
    skipped: SkippedLines

    def as_json(self) -> dict[str, Any]:
        return {
            **self.conversation.as_json(),
            "messages": [one.as_json() for one in self.messages],
            "total": self.total,
            "skipped": self.skipped.as_json(),
        }


@dataclass(frozen=True, slots=True)
class _Source:
    """A conversation that can be listed and read."""

    id: str
    found: FoundFile | None
    """The file whose change changes what a list says. None: no transcript is read to describe it."""
    describe: Callable[[], LocalConversation]
    read: Callable[[KeptTexts], LocalTranscript]
    part: Callable[[Mapping[str, Any]], SaidPart | None]
    name: str | None = None
    """A name from elsewhere, which a list shows in place of the first words."""
    is_joined: bool = False
    """True if a session of Claude Desktop shows it in a list already."""


class OtherConversations(Protocol):
    """A store of conversations that are no files."""

    def list(self) -> Iterator[LocalConversation]: ...
    def find(self, conversation_id: str) -> WholeConversation | None: ...


@dataclass(slots=True, eq=False)
class LocalConversations:
    """The conversations below some directories. Threads may share one: at worst a file is read twice."""

    roots: TranscriptRoots
    own: OtherConversations | None = None
    """The conversations of this home, if they belong to the list."""
    cache: InitVar[Path | None] = None
    """The file that keeps what a list says, for the next process."""
    _cache: ListCache = field(init=False)

    def __post_init__(self, cache: Path | None) -> None:
        self._cache = ListCache(cache)

    def list(
        self,
        *,
        provider: str | None = None,
        project: str | None = None,
        query: str | None = None,
        since: Stamp | None = None,
        limit: int | None = 50,
    ) -> list[LocalConversation]:
        """Return the conversations, newest first. `project` is a directory or one above it; `query` is part
        of the title or of the directory, whatever its case.

        Raises: Refused for an unknown provider.
        """
        if provider is not None and provider not in get_args(Provider):
            raise unknown_name("provider", provider, [*get_args(Provider)])
        found: list[LocalConversation] = []
        sources = self._sources(provider)
        for source in sources:
            if source.is_joined:
                continue
            with suppress(OSError, Unavailable):  # deleted since, or not readable by this user
                one = self._describe(source)
                if _matches(one, project, query, since):
                    found.append(one)
        if provider is None:
            self._cache.keep({_key(source) for source in sources})
        self._cache.write()
        if self.own is not None and provider in (None, OWN):
            found += [one for one in self.own.list() if _matches(one, project, query, since)]
        found.sort(key=_newest_first, reverse=True)
        return found[:limit]

    def get(self, id_: str, *, around: int | None = None, limit: int = 50) -> ReadConversation:
        """Return messages of a conversation: those around a position, else the newest.

        Raises: NotFound; AmbiguousId; Unavailable.
        """
        if self.own is not None and (own := self.own.find(id_)) is not None:
            said = tuple(own.messages())
            first, last = shown_range(len(said), around, limit)
            return ReadConversation(own.about, said[first:last], len(said), SkippedLines())
        source = self._resolve(id_)
        conversation = self._describe(source)
        transcript = source.read(KeptTexts())
        places = transcript.places
        first, last = shown_range(len(places), around, limit)
        messages = tuple(_messages(places[first:last], first + 1, source.part))
        return ReadConversation(conversation, messages, len(places), transcript.skipped)

    def whole(self, id_: str) -> WholeConversation:
        """Return a conversation with all its messages, which are read when they are wanted.

        Raises: NotFound; AmbiguousId; Unavailable, also while the messages are read.
        """
        if self.own is not None and (own := self.own.find(id_)) is not None:
            return own
        source = self._resolve(id_)

        def messages() -> Iterator[LocalMessage]:
            kept = KeptTexts(KEPT_CHARACTERS_MAX)
            return _messages(source.read(kept).places, 1, source.part)

        def raw_event(index: int) -> str | None:
            return _raw_event(source.read(KeptTexts()).parts, index)

        return WholeConversation(self._describe(source), messages, raw_event)

    def _resolve(self, id_: str) -> _Source:
        """Return the conversation with this id; else the only one whose id begins so."""
        sources = self._sources(None)
        for source in sources:
            if source.id == id_:
                return source
        begun = {one.id: one for one in sources if one.id.startswith(id_)}
        if len(id_) < PREFIX_CHARACTERS_MIN or not begun:
            remedy = "`harness conversations local list` shows those on this machine"
            raise NotFound("local conversation", id_, remedy=remedy)
        if len(begun) > 1:
            raise AmbiguousId("conversation", id_, sorted(begun)[:CANDIDATES_MAX])
        return next(iter(begun.values()))

    def _describe(self, source: _Source) -> LocalConversation:
        if source.found is None:
            return source.describe()
        known = self._cache.get(_key(source), source.found)
        if known is None:
            known = source.describe()
            self._cache.put(_key(source), source.found, known)
        return known

    def _sources(self, provider: str | None) -> list[_Source]:
        """Return the conversations of a provider, or of all. No transcript is read."""
        found: list[_Source] = []
        if provider in (None, "codex"):
            found += [one for root in self.roots.codex for one in _codex_sources(root)]
        if provider not in ("codex", OWN):
            code = [
                one for root in self.roots.claude_code for one in claude_code.session_files(root)
            ]
            desktop = self._desktop_sessions(code)
            if provider != "claude-code":
                found += [_desktop_source(one) for one in desktop]
            if provider != "claude-desktop":
                joined = {one.session.id for one in desktop if one.session is not None}
                found += [_code_source(one, one.id in joined and provider is None) for one in code]
        return found

    def _desktop_sessions(
        self, code: Iterable[claude_code.SessionFile]
    ) -> list[claude_desktop.DesktopSession]:
        known = {one.id: one for one in code} if self.roots.claude_desktop else {}
        return [
            one
            for root in self.roots.claude_desktop
            for one in claude_desktop.desktop_sessions(root, known)
        ]


class AmbiguousId(Conflict):
    """Several objects have an id that begins so."""

    code = "ambiguous"

    def __init__(self, what: str, id_: str, candidates: list[str]) -> None:
        super().__init__(what, id_, expected="one", actual=candidates)
        self.args = (f"several {what}s begin with {id_!r}: {', '.join(candidates)}",)
        self.remedy = "give more of the id"
        self.candidates = candidates


def shown_range(total: int, around: int | None, limit: int) -> tuple[int, int]:
    """Return the first message and the end of those to show: around a position, else the newest.

    Raises: Refused if there is no such position.
    """
    if around is not None and not 1 <= around <= total:
        raise Refused("around", around, f"is not a position from 1 to {total}")
    last = total if around is None else min(total, around + limit // 2)
    return max(0, last - limit), last


def local_conversations(
    settings: Settings, own: OtherConversations | None = None
) -> LocalConversations:
    """Return the conversations of the person who runs this process, and those of the home if they are
    given."""
    roots = transcript_roots(
        Path.home(),
        codex_home=configured_directory("CODEX_HOME", "~/.codex"),
        claude_home=configured_directory("CLAUDE_CONFIG_DIR", "~/.claude"),
        extra=settings.transcript_roots,
    )
    return LocalConversations(roots, own, settings.home.root / LIST_CACHE)


def transcript_roots(
    home: Path,
    *,
    codex_home: Path | None = None,
    claude_home: Path | None = None,
    extra: Iterable[Path] = (),
) -> TranscriptRoots:
    """Return the directories of all agents below a person's home, and those that are given. An extra
    directory is one agent's own, or has the form of a home."""
    codex_roots = [codex_home or home / ".codex"]
    code_roots = [claude_home or home / ".claude", home / ".config" / "claude"]
    desktop = [
        home / "Library" / "Application Support" / "Claude",
        home / ".config" / "Claude",
        home / ".config" / "Claude-3p",
        home / ".var" / "app" / "com.anthropic.Claude" / "config" / "Claude",
        home / ".var" / "app" / "com.anthropic.Claude" / "config" / "Claude-3p",
    ]
    for root in extra:
        codex_roots += [root, root / ".codex"]
        code_roots += [root, root / ".claude"]
        desktop += [root, root / ".config" / "Claude"]
    return TranscriptRoots(_once(codex_roots), _once(code_roots), _once(desktop))


def _once(roots: Iterable[Path]) -> tuple[Path, ...]:
    """Return the directories that exist, each once, also where names differ only in case."""
    found: dict[tuple[int, int], Path] = {}
    for root in roots:
        with suppress(OSError):
            stat = root.stat()
            found.setdefault((stat.st_dev, stat.st_ino), root)
    return tuple(found.values())


def _codex_sources(root: Path) -> list[_Source]:
    rollouts = codex.rollouts(root)
    known = {one.id: one for one in rollouts}
    names = codex.thread_names(root)
    return [
        _codex_source(one, names.get(one.thread), known)
        for one in codex.thread_files(rollouts).values()
    ]


def _codex_source(
    one: codex.Rollout, name: str | None, known: Mapping[str, codex.Rollout]
) -> _Source:
    def describe() -> LocalConversation:
        return codex.conversation(one, name)

    def read(kept: KeptTexts) -> LocalTranscript:
        return codex.read_thread(one, known, kept)

    return _Source(one.thread, one.found, describe, read, codex.said_part, name)


def _code_source(one: claude_code.SessionFile, is_joined: bool = False) -> _Source:
    def describe() -> LocalConversation:
        return claude_code.conversation(one)

    def read(kept: KeptTexts) -> LocalTranscript:
        return claude_code.read_session(one, kept)

    def part(event: Mapping[str, Any]) -> SaidPart | None:
        return claude_code.said_part(event, sidechains=one.is_subagent)

    return _Source(one.id, one.found, describe, read, part, is_joined=is_joined)


def _desktop_source(one: claude_desktop.DesktopSession) -> _Source:
    def describe() -> LocalConversation:
        return one.listed

    def read(kept: KeptTexts) -> LocalTranscript:
        if one.session is None:
            return LocalTranscript((), SkippedLines())
        return claude_code.read_session(one.session, kept)

    part = claude_code.said_part
    return _Source(one.listed.id, None, describe, read, part)


def _messages(
    places: Iterable[MessagePlace],
    first: int,
    part: Callable[[Mapping[str, Any]], SaidPart | None],
) -> Iterator[LocalMessage]:
    """Read messages again at their places. Those of one file follow each other."""
    position = first
    for file, group in groupby(places, key=_file):
        with opened_transcript(file) as opened:
            for place in group:
                said = place.said or part(read_line(opened, place.offset))
                if said is None:
                    raise Unavailable(f"transcript {file.name}", "it changed while it was read")
                yield said.message(position, place.raw_index)
                position += 1


def _raw_event(parts: Iterable[TranscriptPart], index: int) -> str | None:
    """Return a line of a conversation as JSON, by its number."""
    found = [part for part in parts if part.first_index <= index]
    if not found:
        return None
    part = found[-1]
    with opened_transcript(part.file) as opened:
        for line in read_lines(opened, part.file, SkippedLines(), until=part.until):
            if line.index == index - part.first_index:
                return raw_event_text(line.event)
            if line.index > index - part.first_index:
                break
    return None


def _key(source: _Source) -> str:
    path = "" if source.found is None else source.found.path
    return path if source.name is None else f"{path}\0{source.name}"


def _matches(
    one: LocalConversation, project: str | None, query: str | None, since: Stamp | None
) -> bool:
    if project is not None:
        wanted = project.rstrip("/")
        if one.project is None or not f"{one.project}/".startswith(f"{wanted}/"):
            return False
    if query is not None and query.casefold() not in f"{one.title}\n{one.project}".casefold():
        return False
    return since is None or one.updated_at >= since


def _newest_first(one: LocalConversation) -> tuple[str, str]:
    return one.updated_at, one.id


def _file(place: MessagePlace) -> Path:
    return place.file
