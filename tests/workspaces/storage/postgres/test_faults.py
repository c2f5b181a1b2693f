"""Records in PostgreSQL when something fails: lost answers, servers that end or stop, refusals."""

from __future__ import annotations

import logging
import os
import random
import signal
from collections.abc import Iterator

import pytest

from tests.conformance.race import race
from tests.conformance.serial import has_an_order, run_batches
from tests.postgres_server import (
    PASSWORD,
    USER,
    PostgresServer,
    PostgresWire,
    schema_of,
    wire_to,
)
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict, Refused, Unavailable
from workspaces.storage import attempts
from workspaces.storage.attempts import TRIES_MAX
from workspaces.storage.postgres import database
from workspaces.storage.postgres.database import Database, TransactionId
from workspaces.storage.postgres.records import PostgresRecords
from workspaces.storage.postgres.table import create_table
from workspaces.storage.records import Check, Delete, Key, Put

A, B, C = Key("p", "a"), Key("p", "b"), Key("p", "c")
ORDERS = 200 if os.environ.get("SOAK") else 4


@pytest.fixture
def store(postgres_address: str) -> Iterator[PostgresRecords]:
    store = PostgresRecords(postgres_address)
    yield store
    store.close()


@pytest.fixture
def wire(postgres: PostgresServer) -> Iterator[tuple[PostgresWire, str]]:
    with wire_to(postgres) as wire:
        yield wire


@pytest.fixture
def far(
    wire: tuple[PostgresWire, str], postgres: PostgresServer, postgres_address: str
) -> Iterator[PostgresRecords]:
    """A store behind the wire."""
    schema = schema_of(postgres_address)
    store = PostgresRecords(postgres.address(schema, host=wire[1]))
    yield store
    store.close()


class TestLostAnswers:
    @pytest.mark.parametrize("end", ["lost", "cut"])
    @pytest.mark.parametrize("expect", [ABSENT, ANY])
    def test_a_postgres_batch_whose_connection_broke_is_applied_once(
        self, far: PostgresRecords, wire: tuple[PostgresWire, str], end: str, expect: object
    ) -> None:
        far.write(Put(C, {}))
        wire[0].next_ends = [end]
        assert far.write(Put(A, {"n": 1}, expect), Put(B, {}, expect), Delete(C, 1)) == (1, 1)
        wire[0].next_ends = [end, end]
        counter = 1 if expect is ABSENT else ANY
        assert far.write(Put(A, {"n": 2}, counter), Check(B, 1)) == (2,)
        assert [item.value for item in far.scan("p")] == [{"n": 2}, {}]
        wire[0].next_ends = [end]
        far.write(Delete(A, 2))
        assert far.get(A) is None

    def test_a_postgres_batch_that_never_arrives_is_unavailable_and_not_written(
        self, far: PostgresRecords, wire: tuple[PostgresWire, str]
    ) -> None:
        far.write(Put(A, {"n": 1}))
        wire[0].next_ends = ["cut"] * 9
        with pytest.raises(Unavailable, match="no answer came"):
            far.write(Put(A, {"n": 2}, 1))
        wire[0].next_ends = []
        with pytest.raises(Conflict):
            far.write(Put(A, {"n": 2}, 2))
        assert far.write(Put(A, {"n": 2}, 1)) == (2,)

    def test_one_order_explains_the_answers_of_postgres_although_connections_break(
        self,
        far: PostgresRecords,
        wire: tuple[PostgresWire, str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        seed = random.randrange(2**32)
        print(f"seed {seed}")
        dice = random.Random(seed)
        monkeypatch.setattr(attempts, "LOST_ANSWERS_MAX", 1000)
        monkeypatch.setattr(attempts, "TRIES_MAX", 1000)
        for number in range(ORDERS):
            wire[0].next_ends = dice.choices(["", "lost", "cut"], [4, 1, 1], k=1000)
            done = run_batches(far, f"p{number}", seed + number)
            assert has_an_order(done), (seed, number, done)

    def test_a_postgres_commit_whose_end_nobody_can_tell_is_unknown(
        self,
        far: PostgresRecords,
        store: PostgresRecords,
        wire: tuple[PostgresWire, str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        assert far.get(A) is None
        monkeypatch.setattr(far._database, "_connect", _no_other)
        wire[0].next_ends = ["lost"]
        with pytest.raises(Unavailable, match="may have happened") as caught:
            far.write(Put(A, {}, ABSENT))
        assert "read the records" in (caught.value.remedy or "")
        with pytest.raises(Conflict):  # it had happened
            store.write(Put(A, {}, ABSENT))

    def test_a_transaction_of_a_replaced_postgres_server_is_unknown(
        self, postgres_address: str
    ) -> None:
        """The server that answers now may have given the number to another transaction."""
        asked = Database(postgres_address)
        with asked.connected() as connection:
            (((number,),),) = connection.ask(("select pg_current_xact_id()::text", ()))
            here = connection.server_start
        assert asked.has_committed(TransactionId(number, here)) is True
        with pytest.raises(Unavailable, match="may have happened") as caught:
            asked.has_committed(TransactionId(number, "another"))
        assert "read the records" in (caught.value.remedy or "")
        asked.close()

    def test_a_postgres_transaction_that_is_under_way_has_not_ended(
        self, postgres_address: str
    ) -> None:
        asked = Database(postgres_address)
        with asked.connected() as connection:
            (((number,),),) = connection.begin(("select pg_current_xact_id()::text", ()))
            sent = TransactionId(number, connection.server_start)
            assert asked.has_committed(sent) is None
            connection.ask(("rollback", ()))
        assert asked.has_committed(sent) is False
        asked.close()


class TestServer:
    def test_connections_that_the_postgres_server_has_ended_are_replaced(
        self, store: PostgresRecords, postgres: PostgresServer
    ) -> None:
        store.write(Put(A, {"n": 1}))
        race(4, lambda _: store.get(A))
        for call in (lambda: store.get(A), lambda: store.write(Put(A, {}))):
            postgres.run(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'workspace-harness'"
            )
            assert call()

    def test_a_postgres_server_that_stops_answering_is_given_up(
        self, store: PostgresRecords, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with store._database.connected() as connection:
            (((process,),),) = connection.ask(("select pg_backend_pid()", ()))
        os.kill(process, signal.SIGSTOP)
        try:
            with monkeypatch.context() as patched:
                patched.setattr(database, "ANSWER_TIMEOUT_S", 0.1)
                patched.setattr(store._database, "_connect", _no_other)
                with pytest.raises(Unavailable, match="no other"):
                    store.write(Put(A, {}))
        finally:
            os.kill(process, signal.SIGCONT)
        assert store.write(Put(A, {})) == (1,)

    def test_a_postgres_batch_is_repeated_after_serialisation_failures(
        self, store: PostgresRecords, postgres: PostgresServer, postgres_address: str
    ) -> None:
        fails = failing(postgres, postgres_address, "40001")
        fails(3)
        assert store.write(Put(A, {}), Put(B, {})) == (1, 1)
        slept: list[float] = []
        store._sleep = slept.append
        fails(1000)
        with pytest.raises(Unavailable, match="busy"):
            store.write(Put(A, {}))
        assert len(slept) == TRIES_MAX - 1
        fails(0)
        assert store.write(Put(A, {})) == (2,)

    def test_another_failure_of_postgres_is_told_in_its_own_words(
        self, store: PostgresRecords, postgres: PostgresServer, postgres_address: str
    ) -> None:
        failing(postgres, postgres_address, "53100")(1)
        with pytest.raises(Unavailable, match=r"planned \(53100\)"):
            store.write(Put(A, {}))
        assert store.write(Put(A, {})) == (1,)

    def test_a_postgres_write_is_durable_whatever_the_server_is_told(
        self, postgres: PostgresServer, postgres_address: str
    ) -> None:
        for told, effective in (("off", "on"), ("remote_apply", "remote_apply")):
            option = f"%20-csynchronous_commit%3D{told}"
            asked = Database(postgres_address + option)
            with asked.connected() as connection:
                assert connection.ask(("show synchronous_commit", ())) == [[(effective,)]]
            asked.close()

    def test_more_threads_than_connections_share_them_and_closing_ends_them(
        self, postgres_address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(database, "CONNECTIONS_MAX", 2)
        store = PostgresRecords(postgres_address)
        race(6, lambda n: [store.write(Put(Key("p", f"{n}"), {})) for _ in range(3)])
        assert [item.counter for item in store.scan("p")] == [3] * 6
        (pool,) = store._database._pools.values()
        assert 1 <= len(pool.idle) <= 2
        store.close()
        assert not pool.idle
        with pytest.raises(Unavailable, match="closed"):
            store.get(A)

    def test_a_caller_that_gets_no_postgres_connection_in_time_is_told(
        self, postgres_address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(database, "CONNECTIONS_MAX", 1)
        monkeypatch.setattr(database, "WAIT_FOR_CONNECTION_S", 0.01)
        store = PostgresRecords(postgres_address)
        with store._database.connected(), pytest.raises(Unavailable, match="in use"):
            store.get(A)
        store.close()


class TestRefusals:
    @pytest.mark.parametrize(
        ("user", "password", "reason"),
        [(USER, "wr0ng", "password authentication failed"), ("nobody", "wr0ng", "nobody")],
    )
    def test_a_wrong_postgres_password_is_refused_with_a_remedy(
        self,
        postgres: PostgresServer,
        caplog: pytest.LogCaptureFixture,
        user: str,
        password: str,
        reason: str,
    ) -> None:
        caplog.set_level(logging.DEBUG)
        store = PostgresRecords(postgres.address(user=user, password=password))
        with pytest.raises(Unavailable, match=reason) as caught:
            store.get(A)
        assert "PGPASSWORD" in (caught.value.remedy or "")
        assert (
            password
            not in f"{caught.value!r} {caught.value} {caught.value.__cause__} {caplog.text}"
        )

    def test_the_postgres_password_may_come_from_the_environment(
        self, postgres: PostgresServer, postgres_address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before, _, rest = postgres_address.partition(f"{USER}:")
        store = PostgresRecords(f"{before}{USER}@{rest.partition('@')[2]}")
        with pytest.raises(Unavailable, match="no password supplied"):
            store.get(A)
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        assert store.get(A) is None
        store.close()

    def test_a_postgres_server_that_is_not_there_is_named_at_once(self) -> None:
        store = PostgresRecords(f"postgresql://u:{'s3cret'}@%2Fnowhere/db")
        for call in (lambda: store.get(A), lambda: store.write(Put(A, {}))):
            with pytest.raises(Unavailable, match=r"u@%2Fnowhere/db.*No such file") as caught:
                call()
            assert "check that the server runs" in (caught.value.remedy or "")
            assert "s3cret" not in f"{caught.value!r} {caught.value}"

    @pytest.mark.parametrize(
        ("name", "other", "reason"),
        [
            ("_PREPARE", "select 'now', 'CockroachDB 26', %s, %s, %s", "another product"),
            ("VERSION_MIN", 1000, "1000 or newer is needed"),
        ],
    )
    def test_a_server_that_does_not_keep_the_locks_of_postgres_is_refused(
        self,
        postgres_address: str,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        other: object,
        reason: str,
    ) -> None:
        monkeypatch.setattr(database, name, other)
        store = PostgresRecords(postgres_address)
        with pytest.raises(Unavailable, match=reason):
            store.get(A)
        assert not [one for pool in store._database._pools.values() for one in pool.idle]

    def test_a_missing_postgres_table_is_named_with_a_remedy(
        self, postgres: PostgresServer
    ) -> None:
        store = PostgresRecords(postgres.address(postgres.new_schema()))
        for call in (
            lambda: store.get(A),
            lambda: store.scan("p"),
            lambda: store.write(Put(A, {})),
            lambda: store.write(Check(A, ABSENT)),
        ):
            with pytest.raises(Unavailable, match="its table does not exist") as caught:
                call()
            assert "harness admin init-postgres" in (caught.value.remedy or "")
        store.close()

    def test_a_postgres_table_with_other_columns_is_refused_and_left_alone(
        self, postgres: PostgresServer
    ) -> None:
        schema = postgres.new_schema()
        postgres.run(f"create table {schema}.harness_records (id int)")
        with pytest.raises(Refused, match="other columns") as caught:
            create_table(postgres.address(schema))
        assert "search_path" in (caught.value.remedy or "")
        store = PostgresRecords(postgres.address(schema))
        with pytest.raises(Unavailable, match="other columns"):
            store.get(A)
        store.close()
        assert postgres.run(f"select * from {schema}.harness_records") == []

    def test_several_callers_may_create_the_postgres_table_at_once(
        self, postgres: PostgresServer
    ) -> None:
        address = postgres.address(postgres.new_schema())
        assert len(race(4, lambda _: create_table(address))) == 4

    def test_missing_rights_in_postgres_are_named(
        self, postgres: PostgresServer, postgres_address: str
    ) -> None:
        schema = schema_of(postgres_address)
        postgres.run("drop role if exists guest")
        postgres.run("create role guest login password 'guest'")
        postgres.run(f"grant usage on schema {schema} to guest")
        store = PostgresRecords(postgres.address(schema, user="guest", password="guest"))
        with pytest.raises(Unavailable, match="permission denied") as caught:
            store.get(A)
        assert "grant select" in (caught.value.remedy or "")
        postgres.run(f"grant select, insert, update, delete on {schema}.harness_records to guest")
        assert store.write(Put(A, {})) == (1,)
        with pytest.raises(Unavailable, match="permission denied"):
            create_table(postgres.address("pg_catalog", user="guest", password="guest"))
        store.close()
        postgres.run("drop owned by guest")

    def test_a_postgres_server_that_takes_no_writes_can_be_read(
        self, store: PostgresRecords, postgres_address: str
    ) -> None:
        store.write(Put(A, {"n": 1}))
        standby = PostgresRecords(postgres_address + "%20-cdefault_transaction_read_only%3Don")
        assert standby.get(A) is not None
        with pytest.raises(Unavailable, match="takes no writes") as caught:
            standby.write(Put(A, {}))
        assert "primary" in (caught.value.remedy or "")
        standby.close()

    def test_a_postgres_item_of_another_program_is_reported(
        self, store: PostgresRecords, postgres: PostgresServer, postgres_address: str
    ) -> None:
        postgres.run(
            f"insert into {schema_of(postgres_address)}.harness_records"
            " values ('p', 'a', 1, '\\xff', 'infinity')"
        )
        with pytest.raises(Unavailable, match="did not write"):
            store.get(A)


def failing(postgres: PostgresServer, address: str, state: str):
    """Let the next inserts fail. Their number is a sequence, which no rollback sets back."""
    schema = schema_of(address)
    postgres.run(f"create sequence {schema}.left_over minvalue -1000 maxvalue 1000000 increment -1")
    postgres.run(
        f"create function {schema}.fail() returns trigger language plpgsql as $$ begin"
        f" if nextval('{schema}.left_over') > 0 then"
        f" raise exception 'planned' using errcode = '{state}'; end if; return null; end $$"
    )
    postgres.run(f"select setval('{schema}.left_over', 1)")
    postgres.run(
        f"create trigger fail before insert on {schema}.harness_records"
        f" for each statement execute function {schema}.fail()"
    )
    return lambda times: postgres.run(f"select setval('{schema}.left_over', {times + 1})")


def _no_other() -> None:
    raise Unavailable("a server", "no other connection is made")
