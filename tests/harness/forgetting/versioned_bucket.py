"""A bucket that keeps versions, as bytes that another program can look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple


class VersionedBucket(NamedTuple):
    client: Any
    name: str

    def save(self, directory: Path) -> Path:
        """Write every version of every object into files, and all names into one."""
        directory.mkdir()
        page = self.client.list_object_versions(Bucket=self.name)
        assert not page["IsTruncated"]
        versions, deletions = page["Versions"], page.get("DeleteMarkers", [])
        for number, one in enumerate(versions):
            at = {"Bucket": self.name, "Key": one["Key"], "VersionId": one["VersionId"]}
            end = Path(one["Key"]).name[-40:]
            data = self.client.get_object(**at)["Body"].read()
            (directory / f"{number:05}-{end}").write_bytes(data)
        names = "\n".join(one["Key"] for one in [*versions, *deletions])
        (directory / "names.txt").write_text(names)
        return directory
