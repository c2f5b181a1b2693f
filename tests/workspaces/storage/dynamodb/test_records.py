"""Records in DynamoDB: the conformance tests, lost answers, throttling, errors before the first item."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator

import boto3.session
import pytest

from tests.conformance.race import race
from tests.conformance.record_store import RecordStoreConformance
from tests.dynamodb_server import Wire, dynamodb, dynamodb_url, make_table, point_to, wire_to
from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Refused, Unavailable
from workspaces.storage.attempts import TRIES_MAX
from workspaces.storage.dynamodb.records import DynamoRecords
from workspaces.storage.dynamodb.table import create_table
from workspaces.storage.records import Check, Delete, Item, Key, Put

__all__ = ["dynamodb", "dynamodb_url"]

A, B, C = Key("p", "a"), Key("p", "b"), Key("p", "c")
TABLES = (f"records-{number}" for number in itertools.count())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def table(dynamodb: str) -> str:
    """An empty one; made by a copied request, because a client of its own would take 40 ms."""
    name = next(TABLES)
    make_table(dynamodb, name)
    return name


@pytest.fixture
def store(table: str, clock: ManualClock) -> Iterator[DynamoRecords]:
    store = DynamoRecords(table, clock=clock)
    yield store
    store.close()


@pytest.fixture
def wire(table: str, dynamodb: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    with wire_to(dynamodb) as (wire, url):
        point_to(url, monkeypatch)
        yield wire


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def far(wire: Wire, table: str, clock: ManualClock, pauses: list[float]) -> Iterator[DynamoRecords]:
    """A store behind the wire, which waits for nothing."""
    store = DynamoRecords(table, clock=clock, sleep=pauses.append)
    yield store
    store.close()


class TestDynamoRecords(RecordStoreConformance):
    @pytest.fixture
    def store(self, store: DynamoRecords) -> DynamoRecords:
        return store


class TestBounds:
    def test_a_dynamodb_scan_accepts_a_bound_longer_than_any_key(
        self, store: DynamoRecords
    ) -> None:
        longest = "é" * 511 + "ab"
        store.write(Put(Key("p", longest), {}), Put(Key("p", "a"), {}), Put(Key("p", "z"), {}))
        assert sorts(store.scan("p", start=longest + "\0")) == []
        assert sorts(store.scan("p", start=longest, end=longest + "\U0010ffff")) == [longest]
        assert sorts(store.scan("p", end=longest + "\0", backwards=True)) == [longest, "z", "a"]

    def test_a_dynamodb_scan_of_an_empty_or_reversed_range_is_empty(
        self, store: DynamoRecords
    ) -> None:
        store.write(Put(A, {}), Put(B, {}))
        assert store.scan("p", start="b", end="b") == []
        assert store.scan("p", start="c", end="a") == []
        assert store.scan("p", end="") == []
        assert store.scan("p", limit=0) == []

    def test_a_dynamodb_scan_skips_many_expired_items_in_few_requests(
        self, far: DynamoRecords, wire: Wire, clock: ManualClock
    ) -> None:
        soon = clock.now().timestamp() + 1
        far.write(*(Put(Key("p", f"a{n:03}"), {}) for n in range(2)))
        for n in range(200):
            far.write(Put(Key("p", f"b{n:03}"), {}, ABSENT, soon))
        clock.advance(2)
        wire.operations.clear()
        assert sorts(far.scan("p", backwards=True, limit=2)) == ["a001", "a000"]
        assert len(wire.operations) < 10


class TestExpiry:
    def test_dynamodb_stores_the_fraction_of_an_expiry_exactly(
        self, store: DynamoRecords, clock: ManualClock
    ) -> None:
        until = clock.now().timestamp() + 0.123456
        store.write(Put(A, {}, expires_at=until))
        item = store.get(A)
        assert item is not None
        assert item.expires_at == until
        clock.advance(0.123455)
        assert store.get(A) is not None
        clock.advance(0.000001)
        assert store.get(A) is None

    def test_the_dynamodb_time_to_live_is_rounded_up_to_whole_seconds(self, dynamodb: str) -> None:
        create_table("expiring")
        store = DynamoRecords("expiring")
        store.write(Put(A, {}, expires_at=1234.5), Put(B, {}))
        store.close()
        client = boto3.session.Session().client("dynamodb")
        ttl = client.describe_time_to_live(TableName="expiring")["TimeToLiveDescription"]
        assert (ttl["TimeToLiveStatus"], ttl["AttributeName"]) == ("ENABLED", "sweep_at")
        kept = client.scan(TableName="expiring")["Items"]
        assert sorted(item.get("sweep_at", {"N": "-"})["N"] for item in kept) == ["-", "1235"]
        client.close()

    def test_a_dynamodb_put_over_an_expired_item_starts_a_new_counter(
        self, store: DynamoRecords, clock: ManualClock
    ) -> None:
        store.write(Put(A, {}))
        store.write(Put(A, {}, expires_at=clock.now().timestamp() + 1))
        clock.advance(1)
        assert store.write(Put(A, {"n": 1})) == (1,)
        store.write(Put(A, {}, expires_at=clock.now().timestamp() + 1))
        clock.advance(1)
        assert store.write(Put(A, {"n": 2}), Put(B, {})) == (1, 1)


class TestLostAnswers:
    @pytest.mark.parametrize("fate", ["lost", "InternalServerError"])
    @pytest.mark.parametrize("expect", [ABSENT, ANY])
    def test_a_dynamodb_put_whose_answer_was_lost_is_applied_once(
        self, far: DynamoRecords, wire: Wire, fate: str, expect: object
    ) -> None:
        wire.next_answers = [fate]
        assert far.write(Put(A, {"n": 1}, expect=expect)) == (1,)
        wire.next_answers = [fate, fate]
        assert far.write(Put(A, {"n": 2}, expect=1 if expect is ABSENT else ANY)) == (2,)
        assert values(far, A) == [{"n": 2}]

    def test_a_dynamodb_batch_whose_answer_was_lost_is_applied_once(
        self, far: DynamoRecords, wire: Wire
    ) -> None:
        (held,) = far.write(Put(A, {}))
        far.write(Put(C, {}))
        wire.next_answers = ["", "lost"]  # the read for the item with ANY, then the batch
        counters = far.write(
            Check(A, held), Put(B, {"n": 1}, ABSENT), Put(Key("p", "d"), {}, ANY), Delete(C, 1)
        )
        assert counters == (1, 1)
        assert values(far, A, B, C) == [{}, {"n": 1}, None]

    def test_a_failed_dynamodb_batch_without_effect_is_repeated(
        self, far: DynamoRecords, wire: Wire
    ) -> None:
        far.write(Put(A, {}))
        wire.next_answers = ["InternalServerError"]
        assert far.write(Check(A, 1), Put(B, {}, ABSENT)) == (1,)

    def test_a_lost_dynamodb_answer_followed_by_a_foreign_write_is_unknown(
        self, far: DynamoRecords, store: DynamoRecords, wire: Wire, pauses: list[float]
    ) -> None:
        far.write(Put(A, {"n": 1}))
        wire.next_answers = ["lost"]
        other = DynamoRecords(
            far._table._table,
            clock=far._clock,
            sleep=lambda _: store.write(Put(A, {"n": 3}, expect=2)),
        )
        with pytest.raises(Unavailable, match="unknown") as caught:
            other.write(Put(A, {"n": 2}, expect=1))
        other.close()
        assert caught.value.remedy is not None
        assert values(store, A) == [{"n": 3}]

    def test_a_conditional_dynamodb_delete_whose_answer_was_lost_is_unknown(
        self, far: DynamoRecords, wire: Wire
    ) -> None:
        far.write(Put(A, {}))
        wire.next_answers = ["lost"]
        with pytest.raises(Unavailable, match="unknown"):
            far.write(Delete(A, expect=1))
        far.write(Put(A, {}))
        wire.next_answers = ["lost"]
        far.write(Delete(A))
        assert far.get(A) is None

    def test_dynamodb_reads_are_repeated_after_a_fault(
        self, far: DynamoRecords, wire: Wire
    ) -> None:
        far.write(Put(A, {"n": 1}))
        wire.next_answers = ["lost", "InternalServerError"]
        assert values(far, A) == [{"n": 1}]
        wire.next_answers = ["lost", "ThrottlingException"]
        assert sorts(far.scan("p")) == ["a"]

    def test_dynamodb_without_any_answer_is_unavailable(
        self, far: DynamoRecords, wire: Wire
    ) -> None:
        wire.next_answers = ["lost"] * 5
        with pytest.raises(Unavailable, match="may have happened"):
            far.write(Put(A, {}, ABSENT), Put(B, {}, ABSENT))
        assert wire.next_answers == ["lost"] * 2


class TestBusy:
    @pytest.mark.parametrize(
        "fate",
        ["ThrottlingException", "TransactionConflictException", "RequestLimitExceeded"],
    )
    def test_dynamodb_waits_while_requests_are_throttled(
        self, far: DynamoRecords, wire: Wire, pauses: list[float], fate: str
    ) -> None:
        wire.next_answers = [fate] * 3
        assert far.write(Put(A, {}, ABSENT), Put(B, {}, ABSENT)) == (1, 1)
        assert len(pauses) == 3
        assert all(0 <= pause <= 1 for pause in pauses)

    def test_endless_dynamodb_throttling_is_unavailable(
        self, far: DynamoRecords, wire: Wire, pauses: list[float]
    ) -> None:
        wire.next_answers = ["ThrottlingException"] * 100
        with pytest.raises(Unavailable, match="busy"):
            far.write(Put(A, {}))
        assert len(pauses) == TRIES_MAX - 1

    def test_unconditional_dynamodb_batches_from_many_threads_all_apply(
        self, store: DynamoRecords
    ) -> None:
        race(4, lambda i: [store.write(Put(A, {}), Put(Key(f"{i}", "x"), {})) for _ in range(5)])
        item = store.get(A)
        assert item is not None
        assert item.counter == 20


class TestBeforeTheFirstItem:
    def test_creating_the_dynamodb_table_twice_changes_no_item(self, dynamodb: str) -> None:
        create_table("made")
        store = DynamoRecords("made")
        store.write(Put(A, {"n": 1}))
        create_table("made")
        assert values(store, A) == [{"n": 1}]
        store.close()

    def test_a_dynamodb_table_with_a_different_key_schema_is_refused(self, dynamodb: str) -> None:
        client = boto3.session.Session().client("dynamodb")
        client.create_table(
            TableName="foreign",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        )
        client.close()
        with pytest.raises(Refused, match="other keys"):
            create_table("foreign")

    @pytest.mark.parametrize("changes", [1, 2])
    def test_a_missing_dynamodb_table_is_named_with_a_remedy(
        self, dynamodb: str, changes: int
    ) -> None:
        store = DynamoRecords("missing")
        for call in (
            lambda: store.get(A),
            lambda: store.scan("p"),
            lambda: store.write(*[Put(A, {}, ABSENT), Put(B, {}, ABSENT)][:changes]),
        ):
            with pytest.raises(Unavailable, match="'missing': it does not exist") as caught:
                call()
            assert "harness admin init-dynamodb" in str(caught.value.remedy)
        store.close()

    def test_an_unreachable_dynamodb_endpoint_is_named_at_once(
        self, dynamodb: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            point_to(f"http://127.0.0.1:{nobody.getsockname()[1]}", monkeypatch)
            store = DynamoRecords("records")
            with pytest.raises(Unavailable, match="is unreachable") as caught:
                store.write(Put(A, {}))
            assert "AWS_ENDPOINT_URL_DYNAMODB" in str(caught.value.remedy)
            store.close()

    @pytest.mark.parametrize(
        "code", ["UnrecognizedClientException", "AccessDeniedException", "ExpiredTokenException"]
    )
    def test_refused_dynamodb_credentials_are_named_with_their_variables(
        self, far: DynamoRecords, wire: Wire, code: str
    ) -> None:
        wire.next_answers = [code]
        with pytest.raises(Unavailable, match=code) as caught:
            far.get(A)
        assert "AWS_ACCESS_KEY_ID" in str(caught.value.remedy)

    @pytest.mark.parametrize(
        ("missing", "remedy"),
        [
            ("AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID"),
            ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
            ("AWS_DEFAULT_REGION", "AWS_DEFAULT_REGION"),
        ],
    )
    def test_a_missing_dynamodb_environment_variable_is_named(
        self, dynamodb: str, monkeypatch: pytest.MonkeyPatch, missing: str, remedy: str
    ) -> None:
        monkeypatch.delenv(missing)
        with pytest.raises(Unavailable) as caught:
            DynamoRecords("records").get(A)
        assert remedy in str(caught.value.remedy)

    def test_a_malformed_dynamodb_endpoint_is_an_error_with_a_remedy(
        self, dynamodb: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        point_to("not an address", monkeypatch)
        with pytest.raises(Unavailable) as caught:
            DynamoRecords("records")
        assert "AWS_" in str(caught.value.remedy)

    def test_a_dynamodb_item_of_another_program_is_reported_as_unavailable(
        self, store: DynamoRecords, table: str
    ) -> None:
        client = boto3.session.Session().client("dynamodb")
        client.put_item(TableName=table, Item={"partition": {"S": "p"}, "sort": {"S": "a"}})
        client.close()
        with pytest.raises(Unavailable, match="did not write"):
            store.get(A)


def sorts(items: list[Item]) -> list[str]:
    return [item.key.sort for item in items]


def values(store: DynamoRecords, *keys: Key) -> list[object]:
    return [item.value if (item := store.get(key)) else None for key in keys]
