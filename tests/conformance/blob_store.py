"""The conformance tests of a blob store. An adapter's test is a subclass with one fixture, `store`."""

from __future__ import annotations

import pytest

from tests.conformance.race import race
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict, NotFound, OverLimit, Refused
from workspaces.ids import version_of
from workspaces.storage.blobs import BlobStore, Token

AWKWARD_NAMES = (
    "MEMORY.md",
    "notes/2026-01-02.md",
    "notes/a b.md",
    "notes/a+b&c=d#e.md",
    "notes/ünïcödé.md",
    "notes/日本語.md",
    "notes/😀.md",
    "notes/[x]{y}(z)'!@$^`,;.md",
    ".hidden",
    "a/b/c/d/e/f/g/h.md",
)


class BlobStoreConformance:
    def test_a_blob_is_read_back_as_written(self, store: BlobStore) -> None:
        data = bytes(range(256)) * 17
        token = store.write("notes/a.bin", data, expect=ANY)
        blob = store.read("notes/a.bin")
        assert (blob.name, blob.data, blob.token) == ("notes/a.bin", data, token)
        assert blob.version == version_of(data)

    def test_an_empty_blob_can_be_stored(self, store: BlobStore) -> None:
        store.write("empty.md", b"", expect=ABSENT)
        assert store.read("empty.md").data == b""
        assert [stat.size for stat in store.scan()] == [0]

    def test_a_blob_of_five_megabytes_is_read_back_as_written(self, store: BlobStore) -> None:
        data = b"0123456789abcdef" * (5 * 2**16)
        store.write("large.bin", data, expect=ANY)
        assert store.read("large.bin").data == data

    def test_a_missing_blob_is_not_found(self, store: BlobStore) -> None:
        with pytest.raises(NotFound) as caught:
            store.read("missing.md")
        assert caught.value.name == "missing.md"

    @pytest.mark.parametrize("name", AWKWARD_NAMES)
    def test_each_awkward_name_names_a_single_blob(self, store: BlobStore, name: str) -> None:
        store.write(name, name.encode(), expect=ABSENT)
        assert store.read(name).data == name.encode()
        assert [stat.name for stat in store.scan()] == [name]
        store.delete(name, expect=ANY)
        assert list(store.scan()) == []

    @pytest.mark.parametrize(
        "name", ["", "/etc/passwd", "../up.md", "a//b", "a/./b", "a\\b", "\x00"]
    )
    def test_every_method_refuses_an_invalid_blob_name(self, store: BlobStore, name: str) -> None:
        for call in (
            lambda: store.read(name),
            lambda: store.read_if_changed(name, Token("t")),
            lambda: store.write(name, b"x", expect=ANY),
            lambda: store.delete(name, expect=ANY),
        ):
            with pytest.raises(Refused):
                call()
        assert list(store.scan()) == []

    def test_a_conditional_read_returns_a_blob_only_if_changed(self, store: BlobStore) -> None:
        first = store.write("a.md", b"one", expect=ABSENT, meta={"by": "me"})
        assert store.read_if_changed("a.md", first) is None
        second = store.write("a.md", b"two", expect=first)
        blob = store.read_if_changed("a.md", first)
        assert blob is not None
        assert (blob.name, blob.data, blob.token) == ("a.md", b"two", second)
        assert store.read_if_changed("a.md", second) is None
        (stat,) = store.scan()
        assert stat.token is None or store.read_if_changed("a.md", stat.token) is None

    def test_a_conditional_read_of_a_deleted_blob_is_not_found(self, store: BlobStore) -> None:
        token = store.write("a.md", b"one", expect=ABSENT)
        store.delete("a.md", expect=token)
        with pytest.raises(NotFound):
            store.read_if_changed("a.md", token)

    def test_only_the_first_write_that_expects_absence_succeeds(self, store: BlobStore) -> None:
        store.write("a.md", b"first", expect=ABSENT)
        with pytest.raises(Conflict):
            store.write("a.md", b"second", expect=ABSENT)
        assert store.read("a.md").data == b"first"

    def test_a_write_with_the_current_token_replaces_the_blob(self, store: BlobStore) -> None:
        first = store.write("a.md", b"one", expect=ABSENT)
        second = store.write("a.md", b"two", expect=first)
        assert store.read("a.md").data == b"two"
        assert store.read("a.md").token == second != first

    def test_a_write_with_a_stale_token_is_a_conflict(self, store: BlobStore) -> None:
        stale = store.write("a.md", b"one", expect=ABSENT)
        store.write("a.md", b"two", expect=stale)
        with pytest.raises(Conflict) as caught:
            store.write("a.md", b"three", expect=stale)
        assert store.read("a.md").data == b"two"
        assert caught.value.name == "a.md"

    def test_the_token_of_a_deleted_blob_is_stale(self, store: BlobStore) -> None:
        token = store.write("a.md", b"one", expect=ABSENT)
        store.delete("a.md", expect=token)
        with pytest.raises(Conflict):
            store.write("a.md", b"two", expect=token)
        with pytest.raises(NotFound):
            store.read("a.md")

    def test_a_delete_with_the_current_token_removes_the_blob(self, store: BlobStore) -> None:
        token = store.write("a.md", b"one", expect=ABSENT)
        store.delete("a.md", expect=token)
        with pytest.raises(NotFound):
            store.read("a.md")

    def test_a_delete_with_a_stale_token_is_a_conflict(self, store: BlobStore) -> None:
        stale = store.write("a.md", b"one", expect=ABSENT)
        store.write("a.md", b"two", expect=ANY)
        with pytest.raises(Conflict):
            store.delete("a.md", expect=stale)
        assert store.read("a.md").data == b"two"

    def test_an_unconditional_delete_of_a_missing_blob_is_no_error(self, store: BlobStore) -> None:
        store.delete("missing.md", expect=ANY)

    def test_a_delete_of_a_missing_blob_with_a_token_is_a_conflict(self, store: BlobStore) -> None:
        token = store.write("a.md", b"one", expect=ABSENT)
        store.delete("a.md", expect=ANY)
        with pytest.raises(Conflict):
            store.delete("a.md", expect=token)

    def test_an_invented_token_is_stale(self, store: BlobStore) -> None:
        store.write("a.md", b"one", expect=ABSENT)
        with pytest.raises(Conflict):
            store.write("a.md", b"two", expect=Token("invented"))

    def test_equal_tokens_mean_equal_bytes(self, store: BlobStore) -> None:
        tokens = {store.write("a.md", data, expect=ANY): data for data in (b"1", b"2", b"1", b"3")}
        assert set(tokens.values()) == {b"1", b"2", b"3"}

    def test_the_metadata_of_a_blob_is_stored_whole_or_not_at_all(self, store: BlobStore) -> None:
        meta = {"version": version_of(b"1"), "stamp": "2026-01-01T00:00:00.000001Z", "by": "a b"}
        token = store.write("a.md", b"1", expect=ABSENT, meta=meta)
        assert store.read("a.md").meta in (meta, {})
        store.write("a.md", b"2", expect=token)
        assert store.read("a.md").meta == {}

    @pytest.mark.parametrize(
        "meta",
        [
            {"": "x"},
            {"Upper": "x"},
            {"content-type": "x"},
            {"a": ""},
            {"a": "é"},
            {"a": "x\r\ny: z"},
        ],
    )
    def test_blob_metadata_that_no_header_can_carry_is_refused(
        self, store: BlobStore, meta: dict[str, str]
    ) -> None:
        with pytest.raises(Refused):
            store.write("a.md", b"x", expect=ANY, meta=meta)
        assert list(store.scan()) == []

    def test_oversized_blob_metadata_is_refused(self, store: BlobStore) -> None:
        with pytest.raises(OverLimit):
            store.write("a.md", b"x", expect=ANY, meta={"a": "x" * 2000})

    def test_a_scan_of_blobs_is_ascending_and_complete(self, store: BlobStore) -> None:
        names = [
            "a.md",
            "a/b.md",
            "a-b.md",
            "a0.md",
            "Z.md",
            "notes/é.md",
            "notes/z.md",
            "a/b/c.md",
        ]
        for name in names:
            store.write(name, name.encode(), expect=ABSENT)
        assert [stat.name for stat in store.scan()] == sorted(names)

    def test_a_scan_of_blobs_matches_a_prefix_by_characters(self, store: BlobStore) -> None:
        for name in ("notes/a.md", "notes/b.md", "notes2.md", "other.md"):
            store.write(name, b"x", expect=ABSENT)
        assert [stat.name for stat in store.scan("notes/")] == ["notes/a.md", "notes/b.md"]
        assert [stat.name for stat in store.scan("note")] == [
            "notes/a.md",
            "notes/b.md",
            "notes2.md",
        ]
        assert list(store.scan("nothing")) == []

    def test_a_scan_of_blobs_yields_size_and_a_current_token(self, store: BlobStore) -> None:
        store.write("a.md", b"12345", expect=ABSENT)
        (stat,) = store.scan()
        assert stat.size == 5
        if stat.token is not None:
            store.write("a.md", b"6", expect=stat.token)

    def test_a_single_creator_of_many_succeeds(self, store: BlobStore) -> None:
        winners = race(8, lambda index: store.write("a.md", b"%d" % index, expect=ABSENT))
        assert len(winners) == 1
        assert store.read("a.md").data == b"%d" % winners[0]

    def test_a_single_writer_of_many_with_the_same_token_succeeds(self, store: BlobStore) -> None:
        for round_number in range(10):
            token = store.write("a.md", b"round %d" % round_number, expect=ANY)
            winners = race(
                6,
                lambda index, token=token, r=round_number: store.write(
                    "a.md", b"%d in %d" % (index, r), expect=token
                ),
            )
            assert len(winners) == 1
            assert store.read("a.md").data == b"%d in %d" % (winners[0], round_number)

    def test_conditional_increments_of_a_blob_are_never_lost(self, store: BlobStore) -> None:
        store.write("n", b"0", expect=ABSENT)

        def increment(_: int) -> None:
            for _ in range(10):
                while True:
                    blob = store.read("n")
                    try:
                        store.write("n", b"%d" % (int(blob.data) + 1), expect=blob.token)
                    except Conflict:
                        continue
                    break

        race(4, increment)
        assert store.read("n").data == b"40"
