"""Replicate the history of a workspace between S3 and every machine that has it.

**Out.** A machine first makes a revision. Then its files go to S3, and the part of the history that S3
lacks goes as one pack. When all of these are stored, the head is moved to name the revision. The move is
conditional: the head must still be the one that was read. A crash between any two steps leaves too
little in S3 and nothing wrong. A pack that no head names has no effect, so it may go before the files or
with them (`pack`). The next push starts from the current head. So the head never names a revision whose
files were not in S3.

**In.** The head is read first, and the files are listed after it. So the listed files are at least as
new as the head's newest revision. While the files are listed and fetched, the missing packs are fetched
too. Each is compared with its name and checked in a quarantine. The caller then hands both to
`IncomingChanges`, which merges them.

**Lives.** A workspace may be deleted and created anew in the same place before this machine learns of
it. A head that names one of our revisions belongs to our life, because revision names are hashes. A head
may name none of them, or there may be no head. Then this machine first reads the entry of the workspace.
A deletion was written there before any object of a new life (`workspaces.remote.registry`).

**Lost packs.** `check` finds a pack that is missing or does not match its name. A machine that has its
revisions packs them again. A machine that lacks them reports it, keeps its own history, and syncs files
as before.

The baseline stores the head that was last read (fact `head`), so that a push need not read it first. It
is trusted only while the history here still contains the revision it names.
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
from workspaces.history.git.rewrite import RewrittenHistory
from workspaces.history.history import PUT_BACK, History
from workspaces.revision import SYNC, RevisionId
from workspaces.storage.blobs import BlobStore, Token
from workspaces.sync.baseline import Baseline
from workspaces.sync.history_head import NAME, HistoryHead, Pack, fold_from, head_bytes, parse_head

FETCH_BYTES_MAX = 4 * 2**30
"""Limit for all packs of one history fetched in one go."""

FETCHED_BYTES_MAX = BUNDLE_BYTES_MAX
"""Limit for packs in flight at the same time: one of the largest, or many small ones."""

THREADS = 16
"""Packs in flight. A history has at most twice as many."""

ORPHAN_KEPT_S = 24 * 3600.0
"""Seconds to keep a pack that no head names. Another machine may be about to fetch it, or to name it."""

ABANDONED_S = 3600.0
"""Age from which a pack that no head names is deleted with a history that was replaced. Its writer
names it within seconds, or never."""

_SEEN, _CHECKED = "head", "packs checked"
"""Facts of the baseline: the head last read, and the day on which all packs were present."""

_REPLACED, _WRITTEN = "packs replaced", "packs written"
"""Facts of the baseline: the packs of a history that a rewritten one replaces, and those written here that no
head has named yet."""


@dataclass(frozen=True, slots=True)
class _SeenHead:
    """The head in S3 when it was last read."""

    head: HistoryHead
    token: Token
    good: Mapping[str, Token]
    """Tokens of the packs that were verified, by name."""


class Replication:
    """The replication of one history with its part of the bucket. Threads may share it."""

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
        """Attach a history to its store.

        `now` returns seconds since the epoch, to tell old packs from new ones. `check_life` raises
        Deleted if the store says that this workspace's life is over.
        """
        self._history = history
        self._there = there
        self._baseline = baseline
        self._now = now
        self._check_life = check_life
        self._threads = threads
        self._lock = threading.Lock()
        self._count_lock = threading.Lock()
        self._has_read_head = False
        self._seen: tuple[str, _SeenHead] | None = None
        """The stored text when it was last read, and the head parsed from it."""
        self._verified: dict[str, Token] = {}
        """Packs verified since the head was last stored."""
        self._ahead: tuple[RevisionId | None, tuple[Pack, ...]] | None = None
        """Packs written ahead for a head with this newest revision. No head names them yet."""
        self.requests = 0

    def has_moved(self) -> bool:
        """Return True if the head in S3 names a revision that the history here lacks."""
        with self._lock:
            head = self._read_head()
        return head is not None and not self._contains(head.tip)

    def new_head(self, *, read_head: bool = True) -> HistoryHead | None:
        """Return the head if it names a revision that is not here, else None.

        With `read_head` False, the caller has just read the head.

        Raises: Refused or Unavailable if the head cannot be used.
        """
        with self._lock:
            seen = self._load_seen()
            head = self._read_head() if read_head or seen is None else seen.head
            return None if head is None or self._contains(head.tip) else head

    def fetch(self, head: HistoryHead) -> Quarantine:
        """Fetch the packs of a head that are missing here, check them, and return them in a quarantine.
        The caller closes it.

        Raises: Deleted if this life of the workspace is over; Refused, OverLimit or Unavailable if the
        packs cannot be used.
        """
        with self._lock:
            wanted = self._missing_packs(head.packs)
            if len(wanted) == len(head.packs):  # the head may belong to another life
                self._check_entry()
            quarantine = self._history.quarantine()
            try:
                for pack, data in self._fetch_packs(wanted):
                    if quarantine.take(data) != pack.tip:
                        raise Refused(
                            NAME,
                            pack.name,
                            "is a pack with another newest revision than the head names",
                        )
                quarantine.check()
            except BaseException:
                quarantine.close()
                raise
            if len(wanted) == len(head.packs):
                self._note_checked()
            return quarantine

    def recover(self) -> None:
        """Fetch the whole history again after it was lost here, as far as it had reached S3.

        Raises: Unavailable if S3 has no history.
        """
        with self._lock:
            head = self._read_head()
            if head is None or head.tip is None:
                raise Unavailable("history", "is lost here, and is not in S3", remedy=PUT_BACK)
            self._check_entry()
            with self._history.recreate() as history, history.quarantine() as quarantine:
                for _, data in self._fetch_packs(head.packs):
                    quarantine.take(data)
                quarantine.check()
                history.receive(quarantine, head.tip)
                history.follow(head.tip, {}, SYNC)

    def seen(self) -> RevisionId | None:
        """Return the revision that the head named when it was last read."""
        seen = self._load_seen()
        return seen.head.tip if seen else None

    def pack(self, tip: RevisionId) -> None:
        """Write the packs that S3 lacks for `tip`, while its files are being sent. `push` names them
        later."""
        with self._lock:
            seen = self._known_head()
            base = seen.head.tip if seen else None
            if (
                tip == base
                or not self._is_none_or_here(base)
                or not self._history.descends(tip, base)
            ):
                return
            self._ahead = base, self._packs_between(base, tip)

    def push(self, tip: RevisionId) -> bool:
        """Move the head to `tip`, whose files are in S3.

        Return False if other machines have moved the head, and their revisions must be brought here
        first.

        Raises: Deleted if this life of the workspace is over.
        """
        with self._lock:
            seen = self._known_head()
            head = seen.head if seen else HistoryHead(None)
            if head.tip is not None and head.tip != tip:
                if not self._history.has(head.tip):
                    return False
                if not self._history.descends(tip, head.tip):
                    return self._history.descends(head.tip, tip)
            if head.tip == tip:
                return True
            packs = (*head.packs, *self._packs_between(head.tip, tip))
            return self._move_head(replace(head, tip=tip, packs=packs), seen)

    def replace(self, rewritten: RewrittenHistory, *, instead_of: RevisionId) -> bool:
        """Publish a rewritten history instead of the one that ends with `instead_of`. The packs of what stays
        the same stay; `erase_replaced` deletes the others. May be repeated.

        Return False if other machines have moved the head: then their revisions must be brought here first.
        """
        with self._lock:
            self._read_head()
            seen = self._load_seen()
            if seen is None or seen.head.tip == rewritten.tip:
                return seen is not None
            if seen.head.tip != instead_of:
                return False
            kept = self._packs_of(rewritten, seen.head.packs)
            self.requests += 1
            there = {stat.name for stat in self._there.scan()}
            known = [kept[-1].tip] if kept else []
            packs = (*kept, *self._write_packs(rewritten.tip, known))
            reviewed = seen.head.reviewed and rewritten.renamed.get(
                seen.head.reviewed, seen.head.reviewed
            )
            # noted first: after a crash, only this tells which packs belong to the old history
            replaced = sorted(there - {NAME, *(pack.blob for pack in packs)})
            self._baseline.note(_REPLACED, json.dumps(replaced))
            return self._move_head(HistoryHead(rewritten.tip, packs, reviewed), seen)

    def erase_replaced(self) -> None:
        """Delete the packs of a history that was replaced, also those that no head ever named."""
        with self._lock:
            seen = self._load_seen()
            named = {NAME, *(pack.blob for pack in (seen.head.packs if seen else ()))}
            names = {*self._noted(_REPLACED), *self._noted(_WRITTEN)}
            self.requests += 1
            old = self._now() - ABANDONED_S
            stats = list(self._there.scan())
            names.update(one.name for one in stats if one.modified and one.modified < old)
            self._ahead = None
            for name in sorted(names - named):
                self.requests += 1
                self._there.delete(name, expect=ANY)
            self._baseline.note(_REPLACED, "")
            self._baseline.note(_WRITTEN, "")

    def fold(self) -> None:
        """Fold many packs into few. A machine that has just read the old head still finds its packs for
        a day."""
        with self._lock:
            seen = self._load_seen()
            start = fold_from(seen.head.packs) if seen else None
            if seen is None or start is None or not self._contains(seen.head.tip):
                return
            kept = seen.head.packs[:start]
            known = [kept[-1].tip] if kept else []
            packs = (*kept, *self._write_packs(seen.head.packs[-1].tip, known))
            if self._move_head(replace(seen.head, packs=packs), seen):
                self._sweep(packs)

    def is_check_due(self) -> bool:
        """Return True if no check has succeeded today."""
        return self._baseline.fact(_CHECKED) != self._today()

    def check(self) -> list[str]:
        """Verify that every pack named by the head is present and correct, and write damaged packs anew.
        Return their names.

        Raises: Unavailable if the revisions of a damaged pack are not here.
        """
        with self._lock:
            seen = self._known_head()
            if seen is None or not seen.head.packs:
                return []
            damaged = self._find_damaged(seen)
            if not damaged:
                self._save_seen(seen.head, seen.token)
                self._note_checked()
                return []
            if not self._contains(seen.head.tip):
                raise _pack_lost(damaged[0])
            packs: list[Pack] = []
            before: list[RevisionId] = []
            for pack in seen.head.packs:
                packs += self._write_packs(pack.tip, before) if pack in damaged else [pack]
                before = [pack.tip]
            self._move_head(replace(seen.head, packs=tuple(packs)), seen)
            return [pack.name for pack in damaged]

    def _read_head(self) -> HistoryHead | None:
        """Return the current head, or None if there is none.

        Raises: Deleted if this life of the workspace is over.
        """
        seen = self._load_seen()
        self.requests += 1
        try:
            if seen is None or not self._contains(seen.head.tip):
                blob = self._there.read(NAME)
            else:
                blob = self._there.read_if_changed(NAME, seen.token)
        except NotFound:
            self._baseline.note(_SEEN, "")
            self._check_entry()
            self._has_read_head = True
            return None
        self._has_read_head = True
        if blob is None:
            return seen.head if seen else None
        head = _parse(blob.data)
        self._save_seen(head, blob.token)
        return head

    def _known_head(self) -> _SeenHead | None:
        """Return the head that a process on this machine last read.

        Read it now if none was read before, or if the history here lacks the revision it names.
        """
        seen = self._load_seen()
        is_usable = self._has_read_head if seen is None else self._is_none_or_here(seen.head.tip)
        if not is_usable:
            self._read_head()
            seen = self._load_seen()
        return seen

    def _is_none_or_here(self, revision: RevisionId | None) -> bool:
        return revision is None or self._history.has(revision)

    def _contains(self, revision: RevisionId | None) -> bool:
        """Return True if the newest revision here descends from `revision`."""
        if revision is None:
            return True
        tip = self._history.tip()
        if tip is None:
            return False
        return self._history.has(revision) and self._history.descends(tip, revision)

    def _check_entry(self) -> None:
        self.requests += 1
        self._check_life()

    def _missing_packs(self, packs: Sequence[Pack]) -> Sequence[Pack]:
        """Return the packs to fetch. A history with the newest revision of a pack has all packs before
        it.

        Raises: OverLimit if they are too large together.
        """
        known = next((n for n in reversed(range(len(packs))) if self._contains(packs[n].tip)), -1)
        missing = packs[known + 1 :]
        total = sum(pack.bytes for pack in missing)
        if total > FETCH_BYTES_MAX:
            raise OverLimit("history in S3", maximum=FETCH_BYTES_MAX, actual=total, unit="bytes")
        return missing

    def _fetch_packs(self, packs: Sequence[Pack]) -> Iterator[tuple[Pack, bytes]]:
        """Yield the packs in order. As many are in flight as may be in memory."""
        for group in _groups(packs):
            threads = min(self._threads, len(group))
            if threads <= 1:
                yield from ((pack, self._read(pack)) for pack in group)
                continue
            with ThreadPoolExecutor(threads) as pool:
                yield from zip(group, pool.map(self._read, group), strict=True)

    def _read(self, pack: Pack) -> bytes:
        with self._count_lock:
            self.requests += 1
        try:
            blob = self._there.read(pack.blob)
        except NotFound as missing:
            raise _pack_lost(pack) from missing
        if len(blob.data) != pack.bytes or sha256(blob.data).hexdigest() != pack.name:
            raise _pack_lost(pack)
        self._verified[pack.name] = blob.token
        return blob.data

    def _write_packs(self, tip: RevisionId, known: Sequence[RevisionId]) -> Iterator[Pack]:
        """Write the packs that lead from `known` to `tip`.

        Overwriting is safe: the name holds either nothing, or the same bytes, or damaged ones.
        """
        for newest, data in self._history.bundles(tip, known):
            pack = Pack(sha256(data).hexdigest(), len(data), newest)
            self.requests += 1
            self._note_written(pack.blob)
            self._verified[pack.name] = self._there.write(pack.blob, data, expect=ANY)
            yield pack

    def _packs_between(self, base: RevisionId | None, tip: RevisionId) -> tuple[Pack, ...]:
        """Return the packs written ahead, and write the packs that follow them."""
        ahead = self._take_ahead(base, tip)
        known = ahead[-1].tip if ahead else base
        rest = self._write_packs(tip, [known] if known else []) if known != tip else ()
        return (*ahead, *rest)

    def _note_written(self, name: str) -> None:
        """Note a pack that is about to be written. If no head ever names it, only this tells whose it is.
        Packs that a head has named since are no longer noted."""
        seen = self._load_seen()
        named = {pack.blob for pack in (seen.head.packs if seen else ())}
        noted = [one for one in self._noted(_WRITTEN) if one not in named and one != name]
        self._baseline.note(_WRITTEN, json.dumps([*noted, name]), wait=False)

    def _noted(self, fact: str) -> list[str]:
        return json.loads(self._baseline.fact(fact) or "[]")

    def _packs_of(self, rewritten: RewrittenHistory, packs: Sequence[Pack]) -> list[Pack]:
        """Return the packs at the beginning that hold nothing but revisions which stay the same."""
        kept: list[Pack] = []
        for pack in packs:
            if pack.tip in rewritten.renamed or not self._history.descends(rewritten.tip, pack.tip):
                break
            kept.append(pack)
        return kept

    def _take_ahead(self, base: RevisionId | None, tip: RevisionId) -> tuple[Pack, ...]:
        """Return the packs already written that lead from `base` towards `tip`."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != base or not ahead[1]:
            return ()
        return ahead[1] if self._history.descends(tip, ahead[1][-1].tip) else ()

    def _move_head(self, head: HistoryHead, seen: _SeenHead | None) -> bool:
        self.requests += 1
        try:
            token = self._there.write(NAME, head_bytes(head), expect=seen.token if seen else ABSENT)
        except Conflict:
            return False
        self._save_seen(head, token)
        return True

    def _find_damaged(self, seen: _SeenHead) -> list[Pack]:
        self.requests += 1
        listed = {stat.name: stat for stat in self._there.scan()}
        good = {**seen.good, **self._verified}
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
                with suppress(Failure):  # the next fold tries again
                    self.requests += 1
                    self._there.delete(stat.name, expect=ANY)

    def _note_checked(self) -> None:
        self._baseline.note(_CHECKED, self._today(), wait=False)

    def _today(self) -> str:
        return str(int(self._now() // 86_400))

    def _load_seen(self) -> _SeenHead | None:
        text = self._baseline.fact(_SEEN)
        if not text:
            return None
        if self._seen is None or self._seen[0] != text:
            record = json.loads(text)
            head = parse_head(record["head"].encode())
            self._seen = text, _SeenHead(head, Token(record["token"]), record["good"])
        return self._seen[1]

    def _save_seen(self, head: HistoryHead, token: Token) -> None:
        """Store the head that was read. A power cut may undo this, and then the head is read once more."""
        before = self._load_seen()
        known = {**(before.good if before else {}), **self._verified}
        good = {pack.name: known[pack.name] for pack in head.packs if pack.name in known}
        record = {"token": token, "head": head_bytes(head).decode(), "good": good}
        self._baseline.note(_SEEN, json.dumps(record), wait=False)
        self._verified.clear()


def _parse(data: bytes) -> HistoryHead:
    try:
        return parse_head(data)
    except Refused as refused:
        if refused.remedy is None:
            refused.remedy = (
                "workspace-harness did not write it: restore the right file, or delete it; "
                "a machine that has the history writes it again at its next sync"
            )
        raise


def _groups(packs: Iterable[Pack]) -> Iterator[list[Pack]]:
    group: list[Pack] = []
    for pack in packs:
        if group and sum(member.bytes for member in group) + pack.bytes > FETCHED_BYTES_MAX:
            yield group
            group = []
        group.append(pack)
    if group:
        yield group


def _pack_lost(pack: Pack) -> Unavailable:
    return Unavailable(
        "history in S3",
        f"its pack {pack.name[:12]} is missing or damaged",
        remedy="run `harness sync --check` on a machine that has the history",
    )
