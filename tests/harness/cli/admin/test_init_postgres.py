"""`harness admin init-postgres`: the table of a home whose records are in PostgreSQL, and the password that
nobody sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness import Harness
from harness.backup.create import create
from harness.bootstrap.doctor import examine
from harness.bootstrap.join import join
from harness.cli.app import app
from harness.models.demo import DemoModel
from harness.runtime.settings import read_settings
from tests.postgres_server import PASSWORD, PostgresServer
from tests.servers import BUCKET, S3Server
from workspaces.errors import Refused, Unavailable
from workspaces.ids import new_id


@pytest.fixture
def address(postgres: PostgresServer, seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a schema without the table. Shared records go with shared files."""
    address = postgres.address(postgres.new_schema())
    monkeypatch.setenv("HARNESS_RECORDS", address)
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HARNESS_S3", f"s3://{BUCKET}/{new_id('test')}")
    return address


def test_init_postgres_creates_the_table_once_and_homes_share_it(
    address: str, tmp_path: Path
) -> None:
    with pytest.raises(Unavailable, match="table does not exist") as caught:
        Harness.open(tmp_path / "home")
    assert "init-postgres" in (caught.value.remedy or "")
    for arguments in ([], [address]):  # by the variable, and by name
        result = CliRunner().invoke(app, ["admin", "init-postgres", *arguments])
        assert result.exit_code == 0, result.output
        assert_hidden(result.output)
    with Harness.open(tmp_path / "home", model=DemoModel()) as harness:
        assert "tea is green" in harness.run("Remember that tea is green.").reply
    assert not (tmp_path / "home/state.db").exists()
    with Harness.open(tmp_path / "other", model=DemoModel()) as another:
        another.workspaces.sync("notes").run()
        assert "tea is green" in another.workspaces.get("notes").read("MEMORY.md").text
        with pytest.raises(Refused, match="other machines share the records"):
            another.workspaces.create("local", config={"storage": {"provider": "local"}})


def test_nothing_that_a_person_reads_shows_the_password(
    address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    CliRunner().invoke(app, ["admin", "init-postgres"])
    with Harness.open(home, model=DemoModel()) as harness:
        assert_hidden(repr(harness.settings))
    (finding,) = [one for one in examine(home) if one.check == "records"]
    assert finding.state == "ok"
    assert finding.detail.startswith("postgresql://harness@%2Ftmp")
    assert_hidden(repr(examine(home)))
    result = CliRunner().invoke(app, ["doctor", "--home", str(home), "--json"])
    assert json.loads(result.output)
    assert_hidden(result.output)
    with pytest.raises(Refused) as refused:
        create(home, str(tmp_path / "backups"))
    assert "pg_dump" in (refused.value.remedy or "")
    assert_hidden(repr([refused.value, refused.value.value]))
    with pytest.raises(Refused) as refused:
        join(home, "s3://another-bucket")
    assert_hidden(repr([refused.value, refused.value.value]))
    assert read_settings(home).records == address
    assert_hidden(caplog.text)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://harness:s3cr@et@host/db",
        "postgresql://harness:s3cr/et@host/db",
        "postgresql://harness:s3cr#et@host/db",
        "postgresql://harness:s3cr%zzet@host/db",
        "postgresql://harness:s3cr et@host/db",
        "postgresql://host/db?passwort=s3cret",
        "postgresql:harness:s3cret@host/db",
        "Postgresql://harness:s3cret@host/db",
        "mysql://harness:s3cret@host/db",
        "harness:s3cret@host/db",
    ],
)
def test_a_malformed_address_is_refused_without_its_password(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = CliRunner().invoke(app, ["admin", "init-postgres", address])
    refused = result.exception
    assert isinstance(refused, Refused)
    assert "s3cr" not in f"{refused} {refused.value} {refused.remedy} {result.output}"
    monkeypatch.setenv("HARNESS_RECORDS", address)
    monkeypatch.setenv("HARNESS_S3", "s3://bucket")
    with pytest.raises(Refused, match="postgresql://") as caught:
        Harness.open(tmp_path / "home")
    assert "s3cr" not in f"{caught.value} {caught.value.value} {caught.value.remedy}"


def assert_hidden(text: str) -> None:
    assert PASSWORD not in text
    assert "%2Fword" not in text
