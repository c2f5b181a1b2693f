"""Addresses of databases: what is shown of them, and what is refused before the driver reads it."""

from __future__ import annotations

import pytest

from workspaces.errors import Refused
from workspaces.home.locations import are_shared, is_database, local_file, records_at, shown_records
from workspaces.storage.postgres.address import secrets_of


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u:pw@h:5433/db?sslmode=require", "postgresql://u@h:5433/db"),
        ("postgres://u:p%40w@h/db", "postgres://u@h/db"),
        ("postgresql://:pw@h", "postgresql://h"),
        ("postgresql://u@a:1,b:2,[::1]:3/db?target_session_attrs=any", "postgresql://u@a:1,b:2,[::1]:3/db"),
        ("postgresql:///db?password=pw&host=/tmp", "postgresql:///db"),
        ("postgresql://", "postgresql://"),
        ("postgresql://u:pw@h@h/db", "postgresql://…"),
        ("postgresql://u:p/w@h/db", "postgresql://…"),
        ("postgresql://h:pw", "postgresql://…"),
        ("postgresql://h/db?a=b?password=pw", "postgresql://…"),
        ("mysql://u:pw@h", "mysql:…"),
        ("u:pw@h", "u:…"),
        ("sqlite:mail@home.db", "sqlite:mail@home.db"),
        ("dynamodb:table", "dynamodb:table"),
    ],
)  # fmt: skip
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    assert shown_records(address) == shown


def test_every_password_of_a_postgres_address_is_hidden_encoded_and_decoded() -> None:
    address = "postgresql://u:p%40w@h/db?password=a%20b&sslpassword=c&sslmode=require"
    assert sorted(secrets_of(address)) == ["a b", "a%20b", "c", "p%40w", "p@w"]
    assert secrets_of("postgresql://u@h/db") == []
    assert secrets_of("postgresql://u:p/w@h") == []


@pytest.mark.parametrize("address", ["postgresql://u:pw@h/db", "postgres://h/db"])
def test_records_in_postgres_are_shared_and_not_on_this_machine(address: str, tmp_path) -> None:
    assert are_shared(address)
    assert is_database(address)
    assert local_file(address, tmp_path) is None
    records_at(address).close()  # nothing is connected yet


def test_a_postgres_address_with_an_unknown_option_is_refused_with_a_remedy() -> None:
    with pytest.raises(Refused, match="does not know") as caught:
        records_at("postgresql://h/db?sslmod=require")
    assert caught.value.value == "postgresql://h/db"
    assert "PGPASSWORD" in (caught.value.remedy or "")
