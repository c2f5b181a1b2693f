"""The conformance tests of a record store: a test of an adapter subclasses them with `store` and `clock`."""

from __future__ import annotations

import pytest

from tests.conformance.race import race
from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict, OverLimit, Refused
from workspaces.storage.records import (
    BATCH_BYTES_MAX,
    BATCH_CHANGES_MAX,
    SCAN_ITEMS_MAX,
    VALUE_BYTES_MAX,
    Check,
    Delete,
    Key,
    Put,
    RecordStore,
    with_prefix,
)

A, B, C = Key("p", "a"), Key("p", "b"), Key("p", "c")


class RecordStoreConformance:
    def test_a_record_is_read_back_as_written(self, store: RecordStore) -> None:
        value = {"s": "ä\n😀", "n": 1, "f": 1.5, "b": True, "z": None, "l": [1, {"x": []}], "e": {}}
        assert store.write(Put(A, value, expect=ABSENT)) == (1,)
        item = store.get(A)
        assert item is not None
        assert (item.key, item.value, item.counter, item.expires_at) == (A, value, 1, None)

    def test_numbers_in_a_record_keep_their_type(self, store: RecordStore) -> None:
        store.write(Put(A, {"int": 7, "big": 2**60, "float": 0.1, "whole": 2.0}))
        item = store.get(A)
        assert item is not None
        assert item.value == {"int": 7, "big": 2**60, "float": 0.1, "whole": 2.0}
        assert isinstance(item.value["int"], int)

    def test_a_missing_record_is_read_as_none(self, store: RecordStore) -> None:
        assert store.get(A) is None

    def test_the_counter_of_a_record_grows_with_every_put(self, store: RecordStore) -> None:
        assert [store.write(Put(A, {"n": n})) for n in range(3)] == [(1,), (2,), (3,)]

    def test_only_the_first_put_that_expects_absence_succeeds(self, store: RecordStore) -> None:
        store.write(Put(A, {"n": 1}, expect=ABSENT))
        with pytest.raises(Conflict) as caught:
            store.write(Put(A, {"n": 2}, expect=ABSENT))
        assert caught.value.name == str(A)
        assert _value(store, A) == {"n": 1}

    def test_a_put_with_the_current_counter_replaces_the_record(self, store: RecordStore) -> None:
        (counter,) = store.write(Put(A, {"n": 1}))
        assert store.write(Put(A, {"n": 2}, expect=counter)) == (counter + 1,)

    def test_a_put_with_a_stale_counter_is_a_conflict(self, store: RecordStore) -> None:
        (stale,) = store.write(Put(A, {"n": 1}))
        store.write(Put(A, {"n": 2}))
        with pytest.raises(Conflict):
            store.write(Put(A, {"n": 3}, expect=stale))
        assert _value(store, A) == {"n": 2}

    def test_a_put_with_a_counter_for_a_missing_record_is_a_conflict(
        self, store: RecordStore
    ) -> None:
        with pytest.raises(Conflict):
            store.write(Put(A, {"n": 1}, expect=1))
        assert store.get(A) is None

    def test_a_record_delete_obeys_its_condition(self, store: RecordStore) -> None:
        store.write(Put(A, {"n": 1}))
        (counter,) = store.write(Put(A, {"n": 2}))
        with pytest.raises(Conflict):
            store.write(Delete(A, expect=counter - 1))
        assert store.get(A) is not None
        assert store.write(Delete(A, expect=counter)) == ()
        assert store.get(A) is None

    def test_an_unconditional_delete_of_a_missing_record_is_no_error(
        self, store: RecordStore
    ) -> None:
        store.write(Delete(A, expect=ANY))
        with pytest.raises(Conflict):
            store.write(Delete(A, expect=1))

    def test_a_batch_of_records_applies_as_a_whole(self, store: RecordStore) -> None:
        store.write(Put(C, {"n": 0}))
        counters = store.write(Put(A, {"n": 1}, expect=ABSENT), Delete(C), Put(B, {"n": 2}))
        assert counters == (1, 1)
        assert (_value(store, A), _value(store, B), store.get(C)) == ({"n": 1}, {"n": 2}, None)

    @pytest.mark.parametrize("position", [0, 1, 2])
    def test_a_batch_with_an_unmet_condition_changes_no_record(
        self, store: RecordStore, position: int
    ) -> None:
        store.write(Put(B, {"n": 0}))
        changes = [Put(A, {"n": 1}, expect=ABSENT), Put(C, {"n": 1}, expect=ABSENT)]
        changes.insert(position, Put(B, {"n": 1}, expect=99))
        with pytest.raises(Conflict) as caught:
            store.write(*changes)
        assert caught.value.name == str(B)
        assert (store.get(A), _value(store, B), store.get(C)) == (None, {"n": 0}, None)

    def test_a_guard_admits_a_write_only_while_its_record_is_unchanged(
        self, store: RecordStore
    ) -> None:
        (held,) = store.write(Put(A, {"holder": "me"}))
        store.write(Check(A, held), Put(B, {"n": 1}))
        store.write(Put(A, {"holder": "you"}, expect=held))
        with pytest.raises(Conflict) as caught:
            store.write(Check(A, held), Put(B, {"n": 2}))
        assert caught.value.name == str(A)
        assert _value(store, B) == {"n": 1}

    def test_a_guard_does_not_change_its_record(self, store: RecordStore) -> None:
        (held,) = store.write(Put(A, {"n": 1}))
        store.write(Check(A, held), Put(B, {"n": 1}))
        item = store.get(A)
        assert item is not None
        assert item.counter == held

    def test_a_guard_can_require_absence(self, store: RecordStore) -> None:
        store.write(Check(A, ABSENT), Put(B, {"n": 1}))
        store.write(Put(A, {"n": 1}))
        with pytest.raises(Conflict):
            store.write(Check(A, ABSENT), Put(B, {"n": 2}))

    def test_an_expired_record_is_absent_for_reads_scans_and_conditions(
        self, store: RecordStore, clock: ManualClock
    ) -> None:
        until = clock.now().timestamp() + 60
        store.write(Put(A, {"n": 1}, expires_at=until))
        item = store.get(A)
        assert item is not None
        assert item.expires_at == until
        clock.advance(60)
        assert store.get(A) is None
        assert store.scan("p") == []
        with pytest.raises(Conflict):
            store.write(Put(A, {"n": 2}, expect=1))
        with pytest.raises(Conflict):
            store.write(Check(A, 1), Put(B, {}))
        store.write(Check(A, ABSENT), Put(B, {}))
        assert store.write(Put(A, {"n": 3}, expect=ABSENT)) == (1,)

    def test_a_put_without_expiry_removes_the_expiry_of_a_record(
        self, store: RecordStore, clock: ManualClock
    ) -> None:
        store.write(Put(A, {"n": 1}, expires_at=clock.now().timestamp() + 60))
        store.write(Put(A, {"n": 2}))
        clock.advance(3600)
        assert _value(store, A) == {"n": 2}

    def test_a_scan_of_records_is_ascending_within_its_partition(self, store: RecordStore) -> None:
        sorts = ["a", "B", "é", "0", "a/b", "a-b", "😀", "\uffff"]
        for sort in sorts:
            store.write(Put(Key("p", sort), {"sort": sort}))
        store.write(Put(Key("q", "a"), {}))
        found = store.scan("p")
        assert [item.key.sort for item in found] == sorted(sorts, key=str.encode)
        assert [item.value["sort"] for item in found] == [item.key.sort for item in found]
        assert store.scan("nothing") == []

    def test_a_scan_of_records_includes_start_and_excludes_end(self, store: RecordStore) -> None:
        self._put_numbers(store, 6)
        assert _sorts(store.scan("n", start="2", end="4")) == ["2", "3"]
        assert _sorts(store.scan("n", start="4")) == ["4", "5"]
        assert _sorts(store.scan("n", end="2")) == ["0", "1"]

    def test_a_backward_scan_of_records_begins_at_the_end(self, store: RecordStore) -> None:
        self._put_numbers(store, 6)
        assert _sorts(store.scan("n", backwards=True, limit=2)) == ["5", "4"]
        assert _sorts(store.scan("n", start="1", end="4", backwards=True)) == ["3", "2", "1"]

    def test_the_limit_of_a_scan_counts_only_returned_records(
        self, store: RecordStore, clock: ManualClock
    ) -> None:
        soon = clock.now().timestamp() + 1
        for n in range(6):
            store.write(Put(Key("n", str(n)), {}, expires_at=soon if n % 2 == 0 else None))
        clock.advance(2)
        assert _sorts(store.scan("n", limit=2)) == ["1", "3"]

    def test_a_scan_of_records_returns_at_most_its_maximum(self, store: RecordStore) -> None:
        for n in range(SCAN_ITEMS_MAX + 40):
            store.write(Put(Key("n", f"{n:05}"), {}, expect=ABSENT))
        assert len(store.scan("n", limit=10**6)) == SCAN_ITEMS_MAX
        assert len(with_prefix(store, "n", "0")) == SCAN_ITEMS_MAX + 40
        assert len(with_prefix(store, "n", "0000")) == 10

    def test_a_record_value_may_reach_its_byte_limit_and_not_exceed_the_limit(
        self, store: RecordStore
    ) -> None:
        text = "é" * ((VALUE_BYTES_MAX - len('{"t":""}')) // 2)
        store.write(Put(A, {"t": text}))
        assert _value(store, A) == {"t": text}
        with pytest.raises(OverLimit):
            store.write(Put(A, {"t": text + "x"}))
        assert _value(store, A) == {"t": text}

    def test_the_values_of_a_batch_have_a_common_byte_limit(self, store: RecordStore) -> None:
        large = {"t": "x" * (BATCH_BYTES_MAX // 50)}
        puts = [Put(Key("p", str(n)), large, expect=ABSENT) for n in range(50)]
        with pytest.raises(OverLimit):
            store.write(*puts)
        assert store.scan("p") == []
        assert len(store.write(*puts[:49])) == 49

    @pytest.mark.parametrize("value", [{"n": float("nan")}, {"x": object()}, {"s": "\ud800"}])
    def test_a_record_value_that_is_not_json_is_refused(
        self, store: RecordStore, value: dict[str, object]
    ) -> None:
        with pytest.raises(Refused):
            store.write(Put(A, value))
        assert store.get(A) is None

    @pytest.mark.parametrize(
        "key", [Key("", "a"), Key("p", ""), Key("p", "x" * 1025), Key("p", "\ud800")]
    )
    def test_a_bad_record_key_is_refused(self, store: RecordStore, key: Key) -> None:
        with pytest.raises(Refused):
            store.write(Put(key, {}))

    def test_a_key_that_is_not_valid_text_has_no_record(self, store: RecordStore) -> None:
        assert store.get(Key("p", "\ud800")) is None

    def test_a_batch_has_a_size_limit_and_names_each_key_once(self, store: RecordStore) -> None:
        many = [Put(Key("m", str(n)), {}) for n in range(BATCH_CHANGES_MAX + 1)]
        with pytest.raises(OverLimit):
            store.write(*many)
        with pytest.raises(Refused):
            store.write(Put(A, {}), Check(A, 1))
        assert store.scan("m") == []
        assert len(store.write(*many[:-1])) == BATCH_CHANGES_MAX

    def test_a_single_writer_of_many_with_the_same_counter_succeeds(
        self, store: RecordStore
    ) -> None:
        for _ in range(5):
            (counter,) = store.write(Put(A, {}))
            assert len(race(6, lambda i, c=counter: store.write(Put(A, {"i": i}, expect=c)))) == 1

    def test_no_batch_passes_a_guard_whose_record_has_changed(self, store: RecordStore) -> None:
        (held,) = store.write(Put(A, {}))
        entries = iter(range(10**6))

        def append(index: int) -> None:
            if index == 0:
                store.write(Put(A, {"moved": True}, expect=held))
                return
            for _ in range(20):
                store.write(Check(A, held), Put(Key("log", f"{next(entries):06}"), {}))

        race(4, append)
        before = len(store.scan("log"))
        with pytest.raises(Conflict):
            store.write(Check(A, held), Put(Key("log", "late"), {}))
        assert len(store.scan("log")) == before

    def test_conditional_increments_of_a_record_are_never_lost(self, store: RecordStore) -> None:
        store.write(Put(A, {"n": 0}))

        def increment(_: int) -> None:
            done = 0
            while done < 15:
                item = store.get(A)
                assert item is not None
                try:
                    store.write(Put(A, {"n": item.value["n"] + 1}, expect=item.counter))
                except Conflict:
                    continue
                done += 1

        race(4, increment)
        assert _value(store, A) == {"n": 60}

    def test_unconditional_puts_from_many_threads_all_apply(self, store: RecordStore) -> None:
        race(4, lambda _: [store.write(Put(A, {})) for _ in range(10)])
        item = store.get(A)
        assert item is not None
        assert item.counter == 40

    def _put_numbers(self, store: RecordStore, count: int) -> None:
        store.write(*(Put(Key("n", str(n)), {}) for n in range(count)))


def _value(store: RecordStore, key: Key) -> dict[str, object] | None:
    item = store.get(key)
    return item.value if item else None


def _sorts(items: list) -> list[str]:
    return [item.key.sort for item in items]
