"""Exchange what is forbidden in an account between its machines, through the bucket.

    .records/<accountId>/forbidden/<id>.json     a rule (`f_…`, `p_…`, `d_…`) or a key (`k_…`)

Every machine publishes what it knows and adopts what it finds. Of two states of a rule the later counts, so
the machines end with the same rules in whatever order they meet. Nothing is removed while the account lives:
a lifted rule is an entry too.

The entries are untrusted, as all of the registry. One that is not valid is listed and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict, NotFound, OverLimit, Refused
from workspaces.forgetting.rule import RuleEntry, rule_from_json
from workspaces.forgetting.rule_records import RuleRecords
from workspaces.remote.registry import FORBIDDEN, InvalidEntry
from workspaces.storage.blobs import BlobStore, Token

THREADS = 16

_ENDING = ".json"


class RuleExchange:
    """The rules of one account in the bucket, and those of this machine."""

    def __init__(self, store: BlobStore, records: RuleRecords) -> None:
        """`store` is of the account's registry."""
        self._store = store
        self._records = records
        self._read: dict[str, tuple[Token, RuleEntry | InvalidEntry]] = {}
        """The entries that this process has read, by id."""

    def run(self, listed: Mapping[str, Token]) -> list[InvalidEntry]:
        """Adopt what other machines forbid and publish what this one does. Return the invalid entries.

        `listed` is the part of the registry's listing. If nothing has changed, no request is made.

        Raises: Unavailable if the bucket does not answer.
        """
        tokens = {
            name.removeprefix(FORBIDDEN).removesuffix(_ENDING): token
            for name, token in listed.items()
            if name.endswith(_ENDING)
        }
        there = self._entries(tokens)
        self._records.adopt([one for one in there.values() if not isinstance(one, InvalidEntry)])
        here = self._records.entries()
        for entry_id, entry in here.items():
            if there.get(entry_id) != entry:
                self._publish(entry, tokens.get(entry_id))
        return [one for one in there.values() if isinstance(one, InvalidEntry)]

    def erase(self) -> None:
        """Delete the entries of an account that is being deleted."""
        for stat in list(self._store.scan(FORBIDDEN)):
            with suppress(NotFound):  # another machine deletes them too
                self._store.delete(stat.name, expect=ANY)

    def _entries(self, tokens: Mapping[str, Token]) -> dict[str, RuleEntry | InvalidEntry]:
        unknown = [
            entry_id
            for entry_id, token in tokens.items()
            if entry_id not in self._read or self._read[entry_id][0] != token
        ]
        if unknown:
            with ThreadPoolExecutor(min(THREADS, len(unknown))) as pool:
                for entry_id, found in zip(unknown, pool.map(self._one, unknown), strict=True):
                    if found is not None:
                        self._read[entry_id] = found
        return {entry_id: self._read[entry_id][1] for entry_id in tokens if entry_id in self._read}

    def _one(self, entry_id: str) -> tuple[Token, RuleEntry | InvalidEntry] | None:
        name = f"{FORBIDDEN}{entry_id}{_ENDING}"
        try:
            blob = self._store.read(name)
        except NotFound:
            return None
        try:
            entry = rule_from_json(json.loads(blob.data))
            if entry.id != entry_id:
                raise Refused("rule", None, "is under the id of another one")
        except (Refused, OverLimit, ValueError, RecursionError) as error:
            return blob.token, InvalidEntry(name, str(error))
        return blob.token, entry

    def _publish(self, entry: RuleEntry, token: Token | None) -> None:
        data = json.dumps(entry.as_json(), ensure_ascii=False, indent=1, sort_keys=True).encode()
        # if another machine was faster, the next run joins its state with this one
        with suppress(Conflict):
            expect = ABSENT if token is None else token
            written = self._store.write(f"{FORBIDDEN}{entry.id}{_ENDING}", data, expect=expect)
            self._read[entry.id] = (written, entry)
