"""`harness admin init-dynamodb`: creating the table of a home whose records are in DynamoDB."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness import Harness
from harness.cli.app import app
from harness.models.demo import DemoModel
from tests.dynamodb_server import dynamodb, dynamodb_url
from tests.servers import BUCKET, S3Server
from workspaces.errors import Refused, Unavailable
from workspaces.ids import new_id

__all__ = ["dynamodb", "dynamodb_url"]


@pytest.mark.usefixtures("dynamodb")
def test_init_dynamodb_creates_the_table_once_and_a_home_uses_that_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seaweedfs: S3Server
) -> None:
    """Shared records go with shared files."""
    monkeypatch.setenv("HARNESS_RECORDS", "dynamodb:harness-records")
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HARNESS_S3", f"s3://{BUCKET}/{new_id('test')}")
    with pytest.raises(Unavailable) as caught:
        Harness.open(tmp_path / "home")
    assert "init-dynamodb" in (caught.value.remedy or "")
    for _ in range(2):
        result = CliRunner().invoke(app, ["admin", "init-dynamodb", "harness-records"])
        assert result.exit_code == 0, result.output
    for said, heard in (("Remember that tea is green.", "tea is green"), ("tea?", "tea is green")):
        with Harness.open(tmp_path / "home", model=DemoModel()) as harness:
            assert heard in harness.run(said).reply
    assert not (tmp_path / "home" / "state.db").exists()
    with Harness.open(tmp_path / "other", model=DemoModel()) as another:
        another.workspaces.sync("notes").run()
        assert "tea is green" in another.workspaces.get("notes").read("MEMORY.md").text
        with pytest.raises(Refused, match="other machines share the records"):
            another.workspaces.create("local", config={"storage": {"provider": "local"}})
    monkeypatch.delenv("HARNESS_S3")
    with pytest.raises(Refused, match="shared with other machines"):
        Harness.open(tmp_path / "home")


def test_an_invalid_table_name_is_refused() -> None:
    result = CliRunner().invoke(app, ["admin", "init-dynamodb", "a/b"])
    assert isinstance(result.exception, Refused)
