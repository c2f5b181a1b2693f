"""Replication: the history of a workspace, in S3 and on every machine that has it.

**Out.** A revision is made here first, then its files go to S3 and what S3 lacks of the history goes as one
pack, and last, when all of these are there, the head is moved to name it, on the condition that it is still
the head that was seen. A death between any two of these leaves less there than here and nothing wrong: a
pack that no head names is worth nothing, so it may go before the files or with them (`pack`), and the next
push begins with what the head says. So the head never names a revision whose files were not there.

**In.** The head is read first and the files are listed after it: then the files are at least what the
head's newest revision says. While they are, and fetched, what is missing of its packs is fetched as well,
compared with its name and looked at in a quarantine. Then whoever brings the files (`Workspace.bring`) is
handed both, and makes them one.

**Lives.** A workspace may be deleted and begun anew in the same place before this machine has heard of it. A
head that has a revision of ours belongs to our life: the names of revisions are hashes. Before one that has
none is followed, and where there is none, the entry of the workspace is asked for, in which a deletion was
written before anything of another life (`workspaces.remote.registry`).

**Lost packs.** A pack that is missing, or not what its name says, is found by `check`: whoever has its
revisions packs them anew. Who lacks them is told so, keeps its own history, and syncs files as before.

What was seen of the head is remembered (`head` in the baseline), so that a push asks nothing first, and
believed only while the history here still has the revision it names.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256

from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict, Failure, NotFound, OverLimit, Refused, Unavailable
from workspaces.history.git.bundle import BUNDLE_BYTES_MAX
from workspaces.history.git.quarantine import Quarantine
from workspaces.history.history import PUT_BACK, History
from workspaces.revision import SYNC, RevisionId
from workspaces.storage.blobs import BlobStore, Token
from workspaces.sync.baseline import Baseline
from workspaces.sync.history_head import NAME, HistoryHead, Pack, fold_from, head_bytes, parse_head

FETCH_BYTES_MAX = 4 * 2**30
"""Of all packs of one history that are fetched at once."""

FETCHED_BYTES_MAX = BUNDLE_BYTES_MAX
"""Of packs that are on their way at the same time: one of the largest, or many small ones."""

THREADS = 16
"""Packs on their way: a history has at most twice as many."""

ORPHAN_KEPT_S = 24 * 3600.0
"""A pack that no head names any more, or not yet: somebody may be about to fetch it, or to name it."""

_SEEN, _CHECKED = "head", "packs checked"
"""Facts of the baseline: what was seen there; the day on which all packs were there."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """There, when it was last looked at."""

    head: HistoryHead
    token: Token
    good: Mapping[str, Token]
    """Packs that were found good, by name, and the tokens they had."""


class Replication:
    """One history and its part of the place. Threads may share it."""

    def __init__(
        self,
        history: History,
        there: BlobStore,
        baseline: Baseline,
        *,
        now: Callable[[], float],
        check_life: Callable[[], None] = lambda: None,
        threads: int = THREADS,
    ) -> None:
        """`now`: seconds since the epoch, to tell old packs from new ones. `check_life`: Deleted when what is
        here belongs to a life of the workspace that is over, as is said in the place by now."""
        self._history = history
        self._there = there
        self._baseline = baseline
        self._now = now
        self._check_life = check_life
        self._threads = threads
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._has_looked = False
        self._seen: tuple[str, _Seen] | None = None
        """What was remembered when it was last read, and the text that says so."""
        self._good: dict[str, Token] = {}
        """Found good since it was last remembered."""
        self._ahead: tuple[RevisionId | None, tuple[Pack, ...]] | None = None
        """What was packed for a head with this newest revision, and no head names yet."""
        self.requests = 0

    def has_moved(self) -> bool:
        """Whether the head in S3 names something that the history here does not have yet."""
        with self._lock:
            head = self._look()
        return head is not None and not self._has(head.tip)

    def news(self, *, look: bool = True) -> HistoryHead | None:
        """The head, where it names something that is not here. Refused, Unavailable: it cannot be used.
        `look`: at what is there, which the caller has not done just now."""
        with self._lock:
            seen = self._remembered()
            head = self._look() if look or seen is None else seen.head
            return None if head is None or self._has(head.tip) else head

    def fetch(self, head: HistoryHead) -> Quarantine:
        """What a head names and is not here, looked at; to be closed by the caller. Deleted; Refused,
        OverLimit, Unavailable: what is there cannot be used."""
        with self._lock:
            wanted = self._wanted(head.packs)
            if len(wanted) == len(head.packs):  # as far as they tell, it has nothing of ours
                self._ask_for_the_entry()
            quarantine = self._history.quarantine()
            try:
                for pack, data in self._fetched(wanted):
                    if quarantine.take(data) != pack.tip:
                        raise Refused(NAME, pack.name, "names a pack with another newest revision")
                quarantine.check()
            except BaseException:
                quarantine.close()
                raise
            if len(wanted) == len(head.packs):
                self._note_checked()
            return quarantine

    def recover(self) -> None:
        """The history here was lost: it is fetched again, whole, as far as it had come there. Unavailable
        when it had not."""
        with self._lock:
            head = self._look()
            if head is None or head.tip is None:
                raise Unavailable("history", "is lost here, and is not in S3", remedy=PUT_BACK)
            self._ask_for_the_entry()
            with self._history.recreate() as history, history.quarantine() as quarantine:
                for _, data in self._fetched(head.packs):
                    quarantine.take(data)
                quarantine.check()
                history.receive(quarantine, head.tip)
                history.follow(head.tip, {}, SYNC)

    def seen(self) -> RevisionId | None:
        """The revision that the head named when it was last seen."""
        seen = self._remembered()
        return seen.head.tip if seen else None

    def pack(self, tip: RevisionId) -> None:
        """Put there what is lacking of `tip`, whose files are on their way; `push` is to name it."""
        with self._lock:
            seen = self._known()
            base = seen.head.tip if seen else None
            if tip == base or not self._has_or_none(base) or not self._history.descends(tip, base):
                return
            self._ahead = base, self._packs_between(base, tip)

    def push(self, tip: RevisionId) -> bool:
        """Make `tip`, whose files are there, the head. False when others have moved it: what they made is
        to be brought here first. Deleted."""
        with self._lock:
            seen = self._known()
            head = seen.head if seen else HistoryHead(None)
            if head.tip is not None and head.tip != tip:
                if not self._history.has(head.tip):
                    return False
                if not self._history.descends(tip, head.tip):
                    return self._history.descends(head.tip, tip)
            if head.tip == tip:
                return True
            packs = (*head.packs, *self._packs_between(head.tip, tip))
            return self._moved(replace(head, tip=tip, packs=packs), seen)

    def fold(self) -> None:
        """Make few packs of many. Whoever has just read the old head still finds them, for a day."""
        with self._lock:
            seen = self._remembered()
            start = fold_from(seen.head.packs) if seen else None
            if seen is None or start is None or not self._has(seen.head.tip):
                return
            kept = seen.head.packs[:start]
            known = [kept[-1].tip] if kept else []
            packs = (*kept, *self._packed(seen.head.packs[-1].tip, known))
            if self._moved(replace(seen.head, packs=packs), seen):
                self._sweep(packs)

    def is_check_due(self) -> bool:
        """Once a day."""
        return self._baseline.fact(_CHECKED) != self._today()

    def check(self) -> list[str]:
        """Look whether every pack that the head names is there, and good; those that are not are made
        anew. Returns what was damaged. Unavailable when its revisions are not here."""
        with self._lock:
            seen = self._known()
            if seen is None or not seen.head.packs:
                return []
            damaged = self._damaged(seen)
            if not damaged:
                self._remember(seen.head, seen.token)
                self._note_checked()
                return []
            if not self._has(seen.head.tip):
                raise _lost(damaged[0])
            packs: list[Pack] = []
            before: list[RevisionId] = []
            for pack in seen.head.packs:
                packs += self._packed(pack.tip, before) if pack in damaged else [pack]
                before = [pack.tip]
            self._moved(replace(seen.head, packs=tuple(packs)), seen)
            return [pack.name for pack in damaged]

    def _look(self) -> HistoryHead | None:
        """The head as it is now; None when there is none. Deleted."""
        seen = self._remembered()
        self.requests += 1
        try:
            if seen is None or not self._has(seen.head.tip):
                blob = self._there.read(NAME)
            else:
                blob = self._there.read_if_changed(NAME, seen.token)
        except NotFound:
            self._baseline.note(_SEEN, "")
            self._ask_for_the_entry()
            self._has_looked = True
            return None
        self._has_looked = True
        if blob is None:
            return seen.head if seen else None
        found = _parsed(blob.data)
        self._remember(found, blob.token)
        return found

    def _known(self) -> _Seen | None:
        """The head as it was last seen, by anybody on this machine. It is looked at when it never was, or
        when what was seen is not in the history here."""
        seen = self._remembered()
        is_believed = self._has_looked if seen is None else self._has_or_none(seen.head.tip)
        if not is_believed:
            self._look()
            seen = self._remembered()
        return seen

    def _has_or_none(self, revision: RevisionId | None) -> bool:
        return revision is None or self._history.has(revision)

    def _has(self, revision: RevisionId | None) -> bool:
        """Whether the history here has grown from it."""
        if revision is None:
            return True
        tip = self._history.tip()
        if tip is None:
            return False
        return self._history.has(revision) and self._history.descends(tip, revision)

    def _ask_for_the_entry(self) -> None:
        self.requests += 1
        self._check_life()

    def _wanted(self, packs: Sequence[Pack]) -> Sequence[Pack]:
        """Who has the newest revision of a pack has all before it."""
        known = next((n for n in reversed(range(len(packs))) if self._has(packs[n].tip)), -1)
        found = packs[known + 1 :]
        total = sum(pack.bytes for pack in found)
        if total > FETCH_BYTES_MAX:
            raise OverLimit("history in S3", maximum=FETCH_BYTES_MAX, actual=total, unit="bytes")
        return found

    def _fetched(self, packs: Sequence[Pack]) -> Iterator[tuple[Pack, bytes]]:
        """One after the other; as many are on their way as may be in memory."""
        for group in _groups(packs):
            threads = min(self._threads, len(group))
            if threads <= 1:
                yield from ((pack, self._read(pack)) for pack in group)
                continue
            with ThreadPoolExecutor(threads) as pool:
                yield from zip(group, pool.map(self._read, group), strict=True)

    def _read(self, pack: Pack) -> bytes:
        with self._counting:
            self.requests += 1
        try:
            blob = self._there.read(pack.blob)
        except NotFound as missing:
            raise _lost(pack) from missing
        if len(blob.data) != pack.bytes or sha256(blob.data).hexdigest() != pack.name:
            raise _lost(pack)
        self._good[pack.name] = blob.token
        return blob.data

    def _packed(self, tip: RevisionId, known: Sequence[RevisionId]) -> Iterator[Pack]:
        """Under its name there is either nothing, or the same bytes, or damaged ones."""
        for newest, data in self._history.bundles(tip, known):
            pack = Pack(sha256(data).hexdigest(), len(data), newest)
            self.requests += 1
            self._good[pack.name] = self._there.write(pack.blob, data, expect=ANY)
            yield pack

    def _packs_between(self, base: RevisionId | None, tip: RevisionId) -> tuple[Pack, ...]:
        """Those that went ahead, and what is lacking behind them."""
        ahead = self._taken_ahead(base, tip)
        known = ahead[-1].tip if ahead else base
        rest = self._packed(tip, [known] if known else []) if known != tip else ()
        return (*ahead, *rest)

    def _taken_ahead(self, base: RevisionId | None, tip: RevisionId) -> tuple[Pack, ...]:
        """Packs that are there and lead from `base` towards `tip`."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != base or not ahead[1]:
            return ()
        return ahead[1] if self._history.descends(tip, ahead[1][-1].tip) else ()

    def _moved(self, head: HistoryHead, seen: _Seen | None) -> bool:
        self.requests += 1
        try:
            token = self._there.write(NAME, head_bytes(head), expect=seen.token if seen else ABSENT)
        except Conflict:
            return False
        self._remember(head, token)
        return True

    def _damaged(self, seen: _Seen) -> list[Pack]:
        self.requests += 1
        listed = {stat.name: stat for stat in self._there.scan()}
        good = {**seen.good, **self._good}
        damaged: list[Pack] = []
        for pack in seen.head.packs:
            stat = listed.get(pack.blob)
            if stat is None or stat.size != pack.bytes:
                damaged.append(pack)
            elif stat.token is None or good.get(pack.name) != stat.token:
                try:
                    self._read(pack)
                except Unavailable:
                    damaged.append(pack)
        return damaged

    def _sweep(self, packs: Sequence[Pack]) -> None:
        named = {NAME, *(pack.blob for pack in packs)}
        self.requests += 1
        for stat in list(self._there.scan()):
            is_old = stat.modified is not None and stat.modified < self._now() - ORPHAN_KEPT_S
            if stat.name not in named and is_old:
                with suppress(Failure):  # the next folding comes by here again
                    self.requests += 1
                    self._there.delete(stat.name, expect=ANY)

    def _note_checked(self) -> None:
        self._baseline.note(_CHECKED, self._today(), wait=False)

    def _today(self) -> str:
        return str(int(self._now() // 86_400))

    def _remembered(self) -> _Seen | None:
        text = self._baseline.fact(_SEEN)
        if not text:
            return None
        if self._seen is None or self._seen[0] != text:
            told = json.loads(text)
            head = parse_head(told["head"].encode())
            self._seen = text, _Seen(head, Token(told["token"]), told["good"])
        return self._seen[1]

    def _remember(self, head: HistoryHead, token: Token) -> None:
        """A power cut may take it back: then it is asked for once more."""
        before = self._remembered()
        known = {**(before.good if before else {}), **self._good}
        good = {pack.name: known[pack.name] for pack in head.packs if pack.name in known}
        told = {"token": token, "head": head_bytes(head).decode(), "good": good}
        self._baseline.note(_SEEN, json.dumps(told), wait=False)
        self._good.clear()


def _parsed(data: bytes) -> HistoryHead:
    try:
        return parse_head(data)
    except Refused as refused:
        if refused.remedy is None:
            refused.remedy = (
                "it was not written by workspace-harness: put the right one back, or delete it; "
                "the next sync of a machine that has the history writes it anew"
            )
        raise


def _groups(packs: Iterable[Pack]) -> Iterator[list[Pack]]:
    group: list[Pack] = []
    for pack in packs:
        if group and sum(one.bytes for one in group) + pack.bytes > FETCHED_BYTES_MAX:
            yield group
            group = []
        group.append(pack)
    if group:
        yield group


def _lost(pack: Pack) -> Unavailable:
    return Unavailable(
        "history in S3",
        f"its pack {pack.name[:12]} is missing or damaged",
        remedy="run `harness sync --check` on a machine that has the history",
    )
